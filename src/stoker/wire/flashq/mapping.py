"""A request of flashQ's dialect as a command under other names: its type and its way to the command derive from data.

A `Field` says where the request differs from the command: its name, its type, its default, its unit. All other fields
are those of the command. A command that has a `codec` takes any value for its bytes, and stores it as the codec says.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import NoneType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, Raw

from stoker.model.options import Codec
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.payloads import stored_as
from stoker.wire.flashq.requests import FlashqRequest

Convert = Callable[[Any, RequestContext], Any]
Build = Callable[[Any, RequestContext], Any]
"""Makes the command of a request."""
STORED = 'How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`.'


class Field(msgspec.Struct, frozen=True):
    """One field of a request."""

    to: str = ""
    """The command's field; empty if the command has none, and only the row's own function reads it."""
    type: Any = UNSET
    """UNSET: the command's."""
    default: Any = UNSET
    """UNSET: the command's; none if the type is another one."""
    convert: Convert | None = None
    """From what was sent to what the command takes."""
    meaning: str = ""


class Fixed(msgspec.Struct, frozen=True):
    """A field of the command that flashQ's word does not have, with what it always is."""

    value: Any = UNSET
    """UNSET: the command's default."""


Said = dict[str, Field | Fixed | str]
"""By flashQ's name; a text is the command's name for the same thing."""


def also(kind: Any, default: Any = NODEFAULT, meaning: str = "") -> Field:
    """A field that the command does not have."""
    return Field(type=kind, default=default, meaning=meaning)


def fields_of(command: type[msgspec.Struct] | None, said: Said) -> dict[str, Field]:
    """The fields of the request, each with a type: those of the command in its order, then those it does not have."""
    known = {one.name: one for one in msgspec.structs.fields(command)} if command is not None else {}
    for name, one in said.items():
        if _target(name, one) not in known and not (isinstance(one, Field) and not one.to):
            raise TypeError(f"{name}: {command} has no field {_target(name, one)}")
    named = {_target(name, one): (name, one) for name, one in said.items() if _target(name, one) in known}
    found: dict[str, Field] = {}
    for target, own in known.items():
        name, one = named.get(target, (target, Field()))
        if not isinstance(one, Fixed):
            found[name] = _whole(own, Field() if isinstance(one, str) else one, "codec" in known)
    return found | {
        name: one for name, one in said.items() if isinstance(one, Field) and _target(name, one) not in known
    }


def _target(name: str, one: Field | Fixed | str) -> str:
    """The command's field that is meant."""
    return one if isinstance(one, str) else (one.to or name) if isinstance(one, Field) else name


def _whole(own: msgspec.structs.FieldInfo, one: Field, has_codec: bool) -> Field:
    """What is said about a field, and of the command's own what is not said."""
    kind, default, convert, meaning = one.type, one.default, one.convert, one.meaning
    if has_codec and own.name == "codec":
        kind, default, meaning = Codec | None, None, meaning or STORED
    elif kind is UNSET:
        kind = Raw if has_codec and own.type is bytes else listed(own.type)
        default = own.default if default is UNSET else default
    elif default is UNSET:
        default = NODEFAULT
    return Field(own.name, kind, default, convert, meaning)


def listed(hint: Any) -> Any:
    """The same type with lists for sequences, which is what a decoder makes of them."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Sequence:
        return list[listed(inner[0])]  # type: ignore[misc]
    if inner and NoneType in inner:
        return Union[tuple(map(listed, inner))]  # noqa: UP007 (made of types that are values here)
    return hint


def summary_of(kind: type | None, fields: Mapping[str, Field]) -> str:
    """What the command or the request is for, in the names that flashQ's word has for the fields."""
    text = " ".join(((kind and kind.__doc__) or "").split())
    for name, one in fields.items():
        if one.to:
            text = text.replace(f"`{one.to}`", f"`{name}`")
    return text


def request_type(word: str, fields: Mapping[str, Field], base: type[msgspec.Struct] | None = FlashqRequest) -> Any:
    return msgspec.defstruct(
        word,
        [
            (name, one.type) if one.default is NODEFAULT else (name, one.type, one.default)
            for name, one in fields.items()
        ],
        bases=None if base is None else (base,),
        kw_only=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def builder(command: Any, fields: Mapping[str, Field], said: Said) -> Build:
    """What makes the command of a request."""
    fixed = {name: one.value for name, one in said.items() if isinstance(one, Fixed) and one.value is not UNSET}
    targets = {one.to: name for name, one in fields.items() if one.to}
    converts = {one.to: one.convert for one in fields.values() if one.to and one.convert is not None}
    stored = [one.to for one in fields.values() if one.type is Raw] if "codec" in targets else []
    names = list(targets.values())
    said_by: Any = attrgetter(*names) if len(names) > 1 else lambda request: [getattr(request, one) for one in names]

    def build(request: Any, context: RequestContext) -> Any:
        values = dict(zip(targets, said_by(request), strict=True), **fixed)
        for name, convert in converts.items():
            values[name] = convert(values[name], context)
        for name in stored:
            values[name] = stored_as(values[name], context.codec, values["codec"])
        if stored:
            values["codec"] = values["codec"] or context.codec
        return command(**values)

    return build
