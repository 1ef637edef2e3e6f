"""Payloads and results for display: decoded where possible, else raw."""

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.model.replies import JobView


def value_of(data: bytes, codec: str) -> Any:
    """The data as a JSON value; bytes that are neither JSON nor MessagePack become `{"$bytes": base64}`."""
    import msgspec

    try:
        if codec == "json":
            return msgspec.Raw(msgspec.json.format(data, indent=-1))  # on one line, without rounding numbers
        if codec == "msgpack":
            return msgspec.Raw(msgspec.json.encode(msgspec.msgpack.decode(data), enc_hook=_extension))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        pass  # the job names the wrong codec, or its MessagePack has values that JSON does not have
    return {"$bytes": base64.b64encode(data).decode()}


def _extension(value: Any) -> Any:
    import msgspec

    if isinstance(value, msgspec.msgpack.Ext):
        return {"$ext": value.code, "$bytes": base64.b64encode(value.data).decode()}
    raise TypeError(f"no JSON for {type(value).__name__}")


def text_of(data: bytes, codec: str) -> bytes:
    """For people: unchanged, unless it is MessagePack, or JSON of several lines."""
    import msgspec

    as_it_is = codec == "bytes" or (codec == "json" and b"\n" not in data)
    return data if as_it_is else msgspec.json.encode(value_of(data, codec))


def line_of(data: bytes, codec: str, chars_max: int | None = None) -> str:
    """On one line, safe to print on a terminal, at most `chars_max` long."""
    from stoker.cli.formatting import cut, plain

    text = text_of(data, codec)
    if chars_max is None:
        return plain(text.decode("utf-8", "backslashreplace"))
    return cut(plain(text[: 4 * chars_max].decode("utf-8", "backslashreplace")), chars_max)


def job_value(job: "JobView") -> dict[str, Any]:
    """A job for JSON: all of its fields, with payload and result decoded."""
    import msgspec

    fields = msgspec.structs.asdict(job)
    fields["payload"] = value_of(job.payload, job.options.codec)
    fields["result"] = None if job.result is None else value_of(job.result, job.result_codec)
    return fields
