"""Notice fields that a request has and its command does not: a misspelt option must not be dropped in silence.

A command refuses fields that it does not have. The values inside it (options, schedules) stay lenient, because clients
read the same types in the replies of later servers. So for each command there is a twin that knows the names of its
fields, at every depth, and leaves their values undecoded. It is asked where a command brings such a value, and to say
which name is wrong.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.hints import did_you_mean

NAME_CHARS_MAX = 64
"""Of an unknown name that is quoted."""
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$\.?(?P<place>.*)`)?", re.DOTALL)


@cache
def names_only(hint: Any) -> Any:
    """The same type with structs that refuse unknown fields; `Raw` where there are none inside."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = [(field.name, names_only(field.type), None) for field in msgspec.structs.fields(hint)]
        return msgspec.defstruct(hint.__name__, fields, forbid_unknown_fields=True)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        parts = [names_only(part) for part in inner]
        found = [part for part in parts if part is not msgspec.Raw]
        return Union[(*found, None)] if found else msgspec.Raw
    if isinstance(origin, type) and issubclass(origin, Sequence):
        item = names_only(inner[0])
        return msgspec.Raw if item is msgspec.Raw else list[item]  # type: ignore[valid-type]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        value = names_only(inner[1])
        return msgspec.Raw if value is msgspec.Raw else dict[str, value]  # type: ignore[valid-type]
    return msgspec.Raw


@cache
def is_lenient(hint: Any) -> bool:
    """Whether there is a struct in this type that drops unknown fields."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return not hint.__struct_config__.forbid_unknown_fields or any(
            is_lenient(field.type) for field in msgspec.structs.fields(hint)
        )
    return any(map(is_lenient, get_args(hint)))


@cache
def names_in(hint: Any) -> frozenset[str]:
    """The names of all fields of a struct and of those inside it."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = msgspec.structs.fields(hint)
        return frozenset(field.name for field in fields).union(*(names_in(field.type) for field in fields))
    return frozenset[str]().union(*map(names_in, get_args(hint)))


class NameCheck:
    """Refuses a body that has a field which its command does not have."""

    def __init__(self, kind: type, decoder: Any) -> None:
        self._kind = kind
        self._decode = decoder(names_only(kind)).decode
        self._lenient = [
            (field.name, field.default) for field in msgspec.structs.fields(kind) if is_lenient(field.type)
        ]

    def is_needed(self, command: Any) -> bool:
        """Whether the command brings a value that may have dropped a field."""
        for name, default in self._lenient:  # noqa: SIM110  a generator costs as much as decoding a push
            if getattr(command, name) is not default:
                return True
        return False

    def __call__(self, name: str, body: msgspec.Raw) -> None:
        try:
            self._decode(body)
        except msgspec.ValidationError as error:
            found = _UNKNOWN.fullmatch(str(error))
            if found is not None:
                unknown, place = found["name"], found["place"]
                where = f" in {place}" if place else ""
                hint = did_you_mean(unknown, names_in(self._kind))
                raise InvalidRequest(f"invalid {name}: unknown field {cut(unknown)!r}{where}{hint}") from None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass  # decoding the command itself says what is wrong


def cut(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else name[:NAME_CHARS_MAX] + "..."
