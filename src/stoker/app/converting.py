"""Types that msgspec cannot handle: pydantic models, paths, addresses, and unions that it cannot tell apart.

Everything else (dataclasses, structs, enums, dates, UUIDs, decimals, sets, ...) msgspec reads and writes by itself.
Nothing here knows functions or jobs. Nothing is pickled, so a payload can only become a value of a type that the reader
has named.
"""

import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import msgspec

Written = Literal["msgpack", "json"]

TEXTUAL = frozenset({"pathlib", "ipaddress", "zoneinfo", "fractions"})
"""Modules whose values are rebuilt from their `str`."""
PYDANTIC = frozenset({"pydantic", "pydantic_core", "annotated_types"})


class Misfit(ValueError):
    """A value that does not fit, with the rest of its path below the place that msgspec knows."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path


# --- writing -----------------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """msgspec's hook for a value that it cannot write."""
    kind: Any = type(value)
    if kind.__module__.partition(".")[0] in TEXTUAL:
        return str(value)
    if hasattr(kind, "__pydantic_serializer__") and hasattr(kind, "model_dump"):
        return value.model_dump(by_alias=True, round_trip=True)
    if hasattr(kind, "__get_pydantic_core_schema__"):
        return to_plain_and_back(value, adapter_of(kind))
    raise TypeError(f"a value of type {type_name(kind)} cannot be encoded")


def to_plain_and_back(value: Any, adapter: Any) -> Any:
    """Refuse types that hide their value when written: a job would get the stars of a password."""
    plain = adapter.dump_python(value, mode="json")
    if adapter.validate_python(plain) != value:
        raise TypeError(f"a value of type {type_name(type(value))} changes when it is encoded and decoded")
    return plain


ENCODERS: dict[Written, Callable[[Any], bytes]] = {
    "msgpack": msgspec.msgpack.Encoder(enc_hook=to_plain).encode,
    "json": msgspec.json.Encoder(enc_hook=to_plain).encode,
}
PLAIN: dict[Written, Callable[[bytes], Any]] = {"msgpack": msgspec.msgpack.decode, "json": msgspec.json.decode}
encode = ENCODERS["msgpack"]
"""The encoder for an app's payloads and results."""


@functools.cache
def adapter_of(kind: Any) -> Any:
    """pydantic's reader and writer for a type. Only called for pydantic types, so pydantic is already loaded."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


# --- reading -----------------------------------------------------------------------------------------


class Chosen(type):
    """msgspec checks that a hook returns the requested type; a stand-in for a union accepts any value."""

    def __instancecheck__(cls, value: object) -> bool:
        return True


class Checked(metaclass=Chosen):
    """Stands for a type that pydantic has to check."""

    kind: ClassVar[Any] = None


class Choice(metaclass=Chosen):
    """Stands for a union that msgspec refuses because it cannot tell the members apart by their shape.

    A value becomes the first member that keeps all of it: one that writes back what was read. Without such a member, it
    becomes the first one that takes it. Text comes last, so that a UUID or a date is not read as plain text.
    """

    members: ClassVar[tuple[Any, ...]] = ()
    decoders: ClassVar[dict[Written, list[Callable[[bytes], Any]]]] = {}

    @classmethod
    def choose(cls, value: Any, codec: Written) -> Any:
        if codec not in cls.decoders:
            cls.decoders[codec] = [decoder_for(member, codec) for member in cls.members]
        data = ENCODERS[codec](value)
        taken: list[Any] = []
        for decode in cls.decoders[codec]:
            try:
                found = decode(data)
            except msgspec.ValidationError:
                continue
            if PLAIN[codec](ENCODERS[codec](found)) == value:
                return found
            taken.append(found)
        if taken:
            return taken[0]
        raise Misfit(f"Expected `{cls.__name__}`, got `{type_name(type(value))}`")


def readable(annotation: Any) -> Any:
    """The same type for msgspec: what it refuses, or would not check, is replaced by a stand-in."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if is_checked_by_pydantic(annotation):
        return Chosen(type_name(annotation), (Checked,), {"kind": annotation})
    if not arguments or origin is Literal:
        return annotation
    if origin is Annotated:
        inner = readable(arguments[0])
        return annotation if inner is arguments[0] else Annotated[(inner, *arguments[1:])]
    changed = tuple(readable(argument) for argument in arguments)
    is_same = all(new is old for new, old in zip(changed, arguments, strict=True))
    if origin in (Union, types.UnionType):
        return annotation if is_same and is_supported(annotation) else readable_union(list(changed))
    return annotation if is_same else rebuilt(annotation, changed)


def is_checked_by_pydantic(annotation: Any) -> bool:
    """`Annotated[int, Field(gt=0)]` and pydantic dataclasses: msgspec would read them without pydantic's checks."""
    if get_origin(annotation) is Annotated:
        return any(type(note).__module__.partition(".")[0] in PYDANTIC for note in get_args(annotation)[1:])
    return dataclasses.is_dataclass(annotation) and hasattr(annotation, "__pydantic_validator__")


def readable_union(members: list[Any]) -> Any:
    union: Any = functools.reduce(operator.or_, members)
    if is_supported(union):
        return union
    some = [member for member in members if member is not type(None)]
    name = " | ".join(type_name(member) for member in some)
    ordered = tuple(sorted(some, key=lambda member: member in (str, Any)))
    choice: Any = Chosen(name, (Choice,), {"members": ordered, "decoders": {}})
    return choice if len(some) == len(members) else choice | None


def rebuilt(annotation: Any, arguments: tuple[Any, ...]) -> Any:
    """`list[A]` with other arguments. What cannot be rebuilt stays, and msgspec reports what is wrong with it."""
    try:
        if hasattr(annotation, "copy_with"):
            return annotation.copy_with(arguments)
        return get_origin(annotation)[arguments]
    except TypeError:
        return annotation


def is_supported(annotation: Any) -> bool:
    try:
        msgspec.msgpack.Decoder(annotation)
    except Exception:  # mostly a TypeError; a NameError where a class refers to missing classes
        return False
    return True


def decoder_for(annotation: Any, codec: Written) -> Callable[[bytes], Any]:
    """A function that decodes and checks in one step. Raises `TypeError` for a type that cannot be decoded at all."""
    if codec == "json":
        return msgspec.json.Decoder(annotation, dec_hook=from_json).decode
    return msgspec.msgpack.Decoder(annotation, dec_hook=from_msgpack).decode


def from_msgpack(kind: Any, value: Any) -> Any:
    return to_kind(kind, value, "msgpack")


def from_json(kind: Any, value: Any) -> Any:
    return to_kind(kind, value, "json")


def to_kind(kind: Any, value: Any, codec: Written) -> Any:
    """msgspec's hook for a type that it does not know."""
    bare = get_origin(kind) or kind
    if kind is object:
        return value
    if bare is Iterable:
        return decoder_for(list[get_args(kind) or Any], codec)(ENCODERS[codec](value))  # type: ignore[misc]
    if isinstance(bare, type):
        if issubclass(bare, Choice):
            return bare.choose(value, codec)
        if issubclass(bare, Checked):
            return from_pydantic(bare.kind, value, codec)
        if bare.__module__.partition(".")[0] in TEXTUAL:
            return from_text(bare, value)
    if hasattr(bare, "__get_pydantic_core_schema__"):
        return from_pydantic(kind, value, codec)
    raise Misfit(
        f"Expected `{type_name(kind)}`, which cannot be made from a payload: use a dataclass, a msgspec struct, a"
        " pydantic model or a type of the standard library"
    )


def from_text(kind: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise Misfit(f"Expected `{type_name(kind)}`, got `{type_name(type(value))}`")
    try:
        return kind(value)
    except (ValueError, KeyError, OSError) as error:
        raise Misfit(f"Expected `{type_name(kind)}`: {error}") from None


def from_pydantic(kind: Any, value: Any, codec: Written) -> Any:
    from pydantic import ValidationError

    adapter = adapter_of(kind)
    try:
        if codec == "json":  # there bytes and sets have other shapes than in Python
            return adapter.validate_json(ENCODERS["json"](value))
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misfit(f"{first['msg']} (for `{type_name(kind)}`)", path_below(first["loc"])) from None


def path_below(steps: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def type_name(kind: Any) -> str:
    """The type as a person would write it."""
    if kind is type(None):
        return "None"
    if isinstance(kind, type) and not get_args(kind):
        return kind.__qualname__ if kind.__module__ == "builtins" else kind.__name__
    return str(kind).replace("typing.", "")
