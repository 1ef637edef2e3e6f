"""Encodes what a handler returns, and decodes it by the function's return annotation.

None is no result. A value that cannot be encoded is an error that names its path: a job must not complete with half a
result. Nothing here knows queues.
"""

from typing import Any

import msgspec

from stoker.app import paths
from stoker.app.converting import decoder_for, encode, readable, type_name
from stoker.model.options import Codec
from stoker.worker.errors import BadHandler, BadResult


class Results:
    """The results of one function."""

    def __init__(self, annotation: Any, label: str) -> None:
        self._label = label
        self._kind = Any if annotation is None else readable(annotation)
        try:
            self._read = {"msgpack": decoder_for(self._kind, "msgpack"), "json": decoder_for(self._kind, "json")}
        except Exception as error:
            raise BadHandler(
                f"{label}: results of type `{type_name(annotation)}` cannot be decoded: {error}; return a dataclass, a"
                " msgspec struct, a pydantic model or a type of the standard library"
            ) from None

    def encode(self, value: Any) -> bytes | None:
        """Raises `BadResult`."""
        if value is None:
            return None
        try:
            return encode(value)
        except RecursionError:
            raise BadResult(f"{self._label}: the result contains itself, or is nested too deeply") from None
        except Exception:
            path, why = paths.unwritable(value, "result", encode)
            raise BadResult(f"{self._label}: {path}: {why}") from None

    def decode(self, data: bytes | None, codec: Codec) -> Any:
        """Raises `BadResult`. Raw bytes are returned unchanged."""
        if data is None:
            return None
        if codec == "bytes":
            return data
        try:
            return self._read[codec](data)
        except msgspec.ValidationError as error:
            path, text = paths.misread(error)
            place = f"result{'' if not path or path.startswith('[') else '.'}{path}"
            raise BadResult(f"{self._label}: {place}: {text}") from None
        except msgspec.DecodeError as error:
            raise BadResult(f"{self._label}: the result is not {codec}: {error}") from None


ANYTHING = Results(Any, "a job of an unknown kind")
"""For jobs that no function of the app made."""
