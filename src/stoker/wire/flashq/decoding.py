"""From a frame to a typed request, or to an error that names the field.

Any bytes give one of the two. The most common requests have a narrow type that is tried first. A request that does not
fit is tried with the whole type, and then with its fields renamed (`spelling.py`).
"""

from typing import Any, Literal, NoReturn

import msgspec

from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.wire import counting
from stoker.wire.counting import CODECS
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.requests import AnyRequest
from stoker.wire.flashq.spelling import TooMany, UnknownField, fields_of, holds_many, items_of, respelt

Codec = Literal["json", "msgpack"]

NARROW: dict[type[AnyRequest], type[AnyRequest]] = {q.PushFields: q.PlainPush, q.PushBatchFields: q.PlainPushBatch}
"""What is tried first: with a handful of fields a decoder is three times as fast."""
MISFITS = (msgspec.DecodeError, ValueError, RecursionError, OverflowError)
"""Everything that decoding may raise; a ValidationError is a DecodeError, a bad UTF-8 a ValueError."""
COUNTED_BYTES = 4 * 1024 * 1024
"""Jobs of larger frames are counted before anything else: also without options each becomes ten times its size."""
TEXT_MAX = 300


class Tried:
    """The decoders of one command in one codec, in the order in which they are tried."""

    __slots__ = ("decoders", "holds_many")

    def __init__(self, kind: type[AnyRequest], codec: Any) -> None:
        kinds = [NARROW[kind], kind] if kind in NARROW else [kind]
        self.holds_many = holds_many(kind)
        self.decoders = [codec.Decoder(one).decode for one in kinds]


_TRIED: dict[tuple[type[AnyRequest], str], Tried] = {}


def decode_as(
    kind: type[AnyRequest],
    frame: bytes,
    codec: Codec,
    limits: Limits = DEFAULT_LIMITS,
    unknown: UnknownField | None = None,
) -> AnyRequest:
    """The request that the frame holds. Raises InvalidRequest or LimitExceeded, and nothing else.

    `unknown` is called with the fields that the command does not have.
    """
    unknown = unknown or UnknownField()
    tried = _TRIED.get((kind, codec))
    if tried is None:
        tried = _TRIED[kind, codec] = Tried(kind, CODECS[codec])
    if codec == "json":
        frame = _clean(frame)
    if len(frame) > COUNTED_BYTES and kind is q.PushBatchFields:
        _count(frame, codec, limits)
    for decoder in tried.decoders:
        if decoder is tried.decoders[-1] and len(frame) > counting.COUNTED_BYTES and tried.holds_many:
            _count(frame, codec, limits)
        try:
            return decoder(frame)  # type: ignore[no-any-return]
        except MISFITS:
            pass  # the last attempt below says what is wrong
    try:
        return (
            _mixed_batch(frame, codec, limits, unknown)
            if kind is q.PushBatchFields
            else _respelt(kind, frame, codec, unknown)
        )
    except TooMany:
        _over(limits)


def _clean(frame: bytes) -> bytes:
    """Values are stored and handed on as they came, so they must be fit to stand in a line of JSON."""
    if b"\n" in frame:
        try:
            frame = msgspec.json.format(frame, indent=-1)
        except MISFITS as error:
            _refuse(error)
    if not frame.isascii():
        try:
            str(frame, "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"invalid request: it is not UTF-8 ({error.reason} at byte {error.start})") from None
    return frame


def _respelt(kind: type[AnyRequest], frame: bytes, codec: Codec, unknown: UnknownField) -> AnyRequest:
    module = CODECS[codec]
    try:
        fields = respelt(fields_of(frame, kind, module), kind, module, unknown)
        return module.decode(module.encode(fields), type=kind)  # type: ignore[no-any-return]
    except MISFITS as error:
        _refuse(error)


def _mixed_batch(frame: bytes, codec: Codec, limits: Limits, unknown: UnknownField) -> AnyRequest:
    """Item by item: one that cannot be understood must not cost the others their place."""
    batch = _respelt(q.RawPushBatch, frame, codec, unknown)
    assert isinstance(batch, q.RawPushBatch)
    module = CODECS[codec]
    try:
        items = items_of(batch.jobs, module, limits.batch_jobs_max)
    except MISFITS as error:
        _refuse(error)
    decode_item = module.Decoder(q.JobItem).decode
    jobs: list[q.JobItem] = []
    wrong: dict[int, str] = {}
    for number, raw in enumerate(items):
        try:
            item = respelt(fields_of(raw, q.JobItem, module), q.JobItem, module, unknown, f"jobs[{number}]")
            jobs.append(decode_item(module.encode(item)))
        except MISFITS as error:
            wrong[number] = _text(error)
            jobs.append(_NO_JOB)
    said = {name: getattr(batch, name) for name in q.AnyBatch.__struct_fields__}
    return q.MixedPushBatch(**said, jobs=jobs, wrong=wrong)


_NO_JOB = q.JobItem(data=msgspec.Raw(b""))


def _count(frame: bytes, codec: Codec, limits: Limits) -> None:
    """Stop at the first one over the limit, before a frame of millions of empty ones has become objects."""
    if counting.judge(frame, codec, limits.batch_jobs_max + limits.edges_per_batch_max) == "many":
        _over(limits)


def _over(limits: Limits) -> NoReturn:
    most = limits.batch_jobs_max
    raise LimitExceeded(f"invalid batch: more than {most} jobs are over the limit of {most}: split it")


def _refuse(error: Exception) -> NoReturn:
    raise InvalidRequest(f"invalid request: {_text(error)}") from None


def _text(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error).replace(" - at `$`", "").replace("`$.", "`")
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."
