"""Encodes calls as payloads and decodes them: `welcome.push(7)` is `{"user_id": 7}` in MessagePack.

The payload is a map by parameter name, or an array where a function takes its arguments by position only. It is read
into a struct made from the function's signature: one call into C decodes and checks all of it. An error names the path
of the value that does not fit, and the expected type. Nothing here knows queues.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from stoker.app import paths
from stoker.app.converting import ENCODERS, Written, decoder_for, encode, is_supported, readable, type_name
from stoker.app.signatures import PushedParameter, Signature
from stoker.model.options import Codec
from stoker.worker.errors import BadArguments, BadHandler

Call = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments."""
NO_VALUES: Sequence[Any] = ()
NO_KEYWORDS: Mapping[str, Any] = {}

FIRST_OF_MAP = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
"""The first byte of a map in MessagePack."""
NIL = b"\xc0"


class Arguments:
    """Encodes and decodes the arguments of one function."""

    def __init__(self, signature: Signature, label: str) -> None:
        self._label = label
        self._signature = signature
        pushed = signature.pushed
        self._rest = next((one for one in pushed if one.kind is Parameter.VAR_POSITIONAL), None)
        self._others = next((one for one in pushed if one.kind is Parameter.VAR_KEYWORD), None)
        self._named = tuple(one for one in pushed if one is not self._rest and one is not self._others)
        self._positional = tuple(one for one in self._named if one.kind is not Parameter.KEYWORD_ONLY)
        self._is_plain = not self._rest and not self._others and not self._has(Parameter.POSITIONAL_ONLY)
        self._call = self._struct_of_a_call() if self._is_plain else None
        self._is_by_position = signature.is_leading and not self._has(Parameter.KEYWORD_ONLY) and not self._others
        self._shapes: dict[Written, _Shape] = {}
        for one in pushed:
            self._check_type(one)

    def _has(self, kind: Any) -> bool:
        return any(one.kind is kind for one in self._signature.pushed)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._signature.pushed)

    # --- writing ---------------------------------------------------------------------------------

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The payload of a call. Raises `TypeError` as the function would, or `BadArguments`."""
        if self._call is None:
            return self._encode_any(args, kwargs)
        try:
            call = self._call(*args, **kwargs)
        except TypeError as error:
            self.bind(args, kwargs)  # raises Python's own, clearer error
            raise TypeError(f"{self._label}: {error}") from None
        try:
            return encode(call)
        except Exception as error:
            raise self._unwritable(self._given(args, kwargs), error) from None

    def _encode_any(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        bound = self.bind(args, kwargs)
        try:
            if not bound.kwargs and not self._has(Parameter.KEYWORD_ONLY) and not self._others:
                return encode(bound.args)
            return encode(self._as_map(bound.arguments))
        except BadArguments:
            raise
        except Exception as error:
            raise self._unwritable(self._given(args, kwargs), error) from None

    def _as_map(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The payload by name; `*args` is a list under its own name."""
        written = dict(given)
        for name, value in written.pop(self._others.name, {}).items() if self._others else ():
            if name in self.names or name in self._taken():
                raise BadArguments(f"{self._label}: {name!r} cannot be an extra keyword argument: it is a parameter")
            written[name] = value
        return written

    def _taken(self) -> tuple[str | None, ...]:
        return (self._signature.context, *self._signature.dependencies)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises `TypeError` for a call that the function would not take. Does not look at the values."""
        if self._call is not None:
            try:
                self._call(*args, **kwargs)
                return
            except TypeError:
                pass
        self.bind(args, kwargs)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The call by parameters. Raises `TypeError` as Python does."""
        try:
            return self._signature.bindable.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._label}: {error}") from None

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all parameters by name, defaults included."""
        bound = self.bind(args, kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(self.bind(args, kwargs).arguments)

    def _unwritable(self, given: Mapping[str, Any], error: Exception) -> BadArguments:
        if isinstance(error, RecursionError):
            for name, value in given.items():
                try:
                    encode(value)
                except RecursionError:
                    return BadArguments(f"{self._label}: {name} contains itself, or is nested too deeply")
                except Exception:  # not the value that is searched
                    continue
        for name, value in given.items():
            try:
                encode(value)
            except Exception:
                path, why = paths.unwritable(value, name, encode)
                expected = {one.name: one.annotation for one in self._signature.pushed}.get(name, Any)
                hint = "" if expected is Any else f"; the parameter {name} takes `{type_name(expected)}`"
                return BadArguments(f"{self._label}: {path}: {why}{hint}")
        return BadArguments(f"{self._label}: the arguments cannot be encoded: {error}")

    def sizes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
        """How many bytes each argument takes."""
        return {name: len(encode(value)) for name, value in self._given(args, kwargs).items()}

    # --- reading ---------------------------------------------------------------------------------

    def decode(self, payload: bytes, codec: Codec) -> Call:
        """The call in a payload. Raises `BadArguments`, whatever the payload is."""
        try:
            return self._from_bytes(payload) if codec == "bytes" else self._decode(payload, codec)
        except BadArguments:
            raise
        except msgspec.ValidationError as error:
            raise self._misread(error) from None
        except msgspec.DecodeError as error:
            raise BadArguments(f"{self._label}: the payload is not {codec}: {error}") from None
        except RecursionError:
            raise BadArguments(f"{self._label}: the payload is nested too deeply") from None
        except Exception as error:  # raised by a class that validates itself
            raise BadArguments(f"{self._label}: the arguments were refused: {type(error).__name__}: {error}") from error

    def _decode(self, payload: bytes, codec: Written) -> Call:
        shape = self._shapes.get(codec) or self._shape(codec)
        if not payload:
            return self._from_other(shape.nothing, shape)
        try:
            values = shape.by_name(payload)
        except msgspec.ValidationError:
            if shape.is_map(payload):
                raise
            return self._from_other(payload, shape)
        if self._is_by_position and self._rest is None:
            return values, NO_KEYWORDS
        return self._as_call(values, payload, shape)

    @functools.cached_property
    def read(self) -> Callable[[bytes, Codec], Call]:
        """A fast `decode`, for callers that decode a hundred thousand payloads a second.

        Payloads that an app has pushed are read by two calls into C; all others, and errors, go to `decode`.
        """
        if not self._is_plain:
            return self.decode
        read_any, read = self.decode, (self._shapes.get("msgpack") or self._shape("msgpack")).read_map
        if self._is_by_position:
            as_tuple = msgspec.structs.astuple

            def decode(payload: bytes, codec: Codec) -> Call:
                if codec == "msgpack":
                    try:
                        return as_tuple(read(payload)), NO_KEYWORDS
                    except Exception:
                        pass
                return read_any(payload, codec)

        else:
            as_dict = msgspec.structs.asdict

            def decode(payload: bytes, codec: Codec) -> Call:
                if codec == "msgpack":
                    try:
                        return NO_VALUES, as_dict(read(payload))
                    except Exception:
                        pass
                return read_any(payload, codec)

        return decode

    def _from_bytes(self, payload: bytes) -> Call:
        """A payload of raw bytes is an argument only for a function that takes bytes."""
        if not payload and not any(one.is_required for one in self._named):
            return self._decode(encode({}), "msgpack")
        if len(self._named) == 1 and self._named[0].annotation in (bytes, Any):
            return ((payload,), NO_KEYWORDS) if self._is_by_position else ((), {self._named[0].name: payload})
        raise BadArguments(
            f"{self._label}: the payload is raw bytes: push it with codec msgpack or json, as a map {self._expected()}"
        )

    def _from_other(self, payload: bytes, shape: "_Shape") -> Call:
        """An array has the arguments by position; an empty payload means no arguments."""
        if payload == shape.nothing:
            return self._decode(shape.encode({}), shape.codec)
        try:
            parts = shape.parts(payload)
        except msgspec.ValidationError:
            raise BadArguments(
                f"{self._label}: expected the arguments as a map {self._expected()}, or as an array"
            ) from None
        count = len(self._positional)
        if len(parts) > count and self._rest is None:
            raise BadArguments(f"{self._label}: takes at most {count} arguments by position, got {len(parts)}")
        try:
            values = shape.by_place(shape.encode(parts[:count]))
        except msgspec.ValidationError as error:
            if len(parts) < count and self._positional[len(parts)].is_required:
                raise BadArguments(f"{self._label}: {self._positional[len(parts)].name}: it is missing") from None
            raise self._misread(error, [one.name for one in self._positional]) from None
        missing = [one.name for one in self._named if one.kind is Parameter.KEYWORD_ONLY and one.is_required]
        if missing:
            raise BadArguments(f"{self._label}: {missing[0]}: it is missing; it cannot be given by position")
        return self._sorted(values, [self._rest_at(place, raw, shape) for place, raw in enumerate(parts[count:])], {})

    def _rest_at(self, place: int, raw: Raw, shape: "_Shape") -> Any:
        assert self._rest is not None, "checked by the caller"
        try:
            return shape.rest(bytes(raw))
        except msgspec.ValidationError as error:
            path, text = paths.misread(error)
            raise BadArguments(f"{self._label}: {self._rest.name}[{place}]{_joint(path)}: {text}") from None

    def _as_call(self, values: Sequence[Any], payload: bytes, shape: "_Shape") -> Call:
        rest: Sequence[Any] = ()
        others: dict[str, Any] = {}
        if self._rest is not None or self._others is not None:
            names = {one.name for one in self._named}
            for name, raw in shape.further(payload).items():
                if self._rest is not None and name == self._rest.name:
                    rest = self._read(raw, shape.rests, name)
                elif self._others is None or name in self._taken():
                    raise BadArguments(
                        f"{self._label}: {name}: there is no such parameter; expected {self._expected()}"
                    )
                elif name not in names:
                    others[name] = self._read(raw, shape.other, name)
        return self._sorted(values, rest, others)

    def _read(self, raw: Raw, decode: Callable[[bytes], Any], name: str) -> Any:
        try:
            return decode(bytes(raw))
        except msgspec.ValidationError as error:
            path, text = paths.misread(error)
            raise BadArguments(f"{self._label}: {name}{_joint(path)}: {text}") from None

    def _sorted(self, values: Sequence[Any], rest: Sequence[Any], others: dict[str, Any]) -> Call:
        """Split the values into positional arguments, where that is the only way, and keyword arguments."""
        if self._is_by_position:
            return (*values, *rest), NO_KEYWORDS
        by_position: list[Any] = []
        by_name = others
        takes_position = True
        for one, value in zip(self._named, values, strict=False):  # an array may have no keyword-only ones
            takes_position = takes_position and (one.kind is Parameter.POSITIONAL_ONLY or self._rest is not None)
            if takes_position and one.kind is not Parameter.KEYWORD_ONLY:
                by_position.append(value)
            else:
                by_name[one.name] = value
        return (*by_position, *rest), by_name

    def _misread(self, error: Exception, names: Sequence[str] = ()) -> BadArguments:
        path, text = paths.misread(error, names)
        unknown = paths.UNKNOWN.fullmatch(str(error))
        if unknown is not None:
            text = f"there is no such parameter; expected {self._expected()}"
            path = unknown["name"]
        return BadArguments(f"{self._label}: {path}: {text}" if path else f"{self._label}: {text}")

    def _expected(self) -> str:
        return "{" + ", ".join(one.name if one.is_required else f"{one.name}?" for one in self._named) + "}"

    # --- shapes ----------------------------------------------------------------------------------

    def _shape(self, codec: Written) -> "_Shape":
        """Made when first needed: most functions never see JSON."""
        shape = self._shapes[codec] = _Shape(self._named, self._positional, self._rest, self._others, codec)
        return shape

    def _struct_of_a_call(self) -> Callable[..., Any]:
        """A struct that takes arguments as the function does, and is encoded as a map of those that were given."""
        fields = [_open_field(one) for one in self._positional]
        base = msgspec.defstruct("Call", fields)
        keyword_only = [_open_field(one) for one in self._named if one.kind is Parameter.KEYWORD_ONLY]
        return msgspec.defstruct("Call", keyword_only, bases=(base,), kw_only=True) if keyword_only else base

    def _check_type(self, one: PushedParameter) -> None:
        kind = readable(one.annotation)
        if not is_supported(kind):
            try:
                decoder_for(kind, "msgpack")
            except Exception as error:
                raise BadHandler(
                    f"{self._label}: the type `{type_name(one.annotation)}` of {one.name!r} cannot be decoded: {error}"
                ) from None


class _Shape:
    """The payloads of one function in one codec."""

    def __init__(
        self,
        named: tuple[PushedParameter, ...],
        positional: tuple[PushedParameter, ...],
        rest: PushedParameter | None,
        others: PushedParameter | None,
        codec: Written,
    ) -> None:
        self.codec = codec
        self.encode = ENCODERS[codec]
        self.nothing = NIL if codec == "msgpack" else b"null"
        is_exact = rest is None and others is None
        by_name = msgspec.defstruct("Arguments", _fields_of(named), kw_only=True, forbid_unknown_fields=is_exact)
        by_place = msgspec.defstruct("Arguments", _fields_of(positional), kw_only=True, array_like=True)
        self.read_map = decoder_for(by_name, codec)
        self.read_array = decoder_for(by_place, codec)
        self.parts = decoder_for(list[Raw], codec)
        self.further = decoder_for(dict[str, Raw], codec)
        self.rest = decoder_for(readable(rest.annotation) if rest else Any, codec)
        self.rests = decoder_for(list[readable(rest.annotation)] if rest else Any, codec)  # type: ignore[misc]
        self.other = decoder_for(readable(others.annotation) if others else Any, codec)

    def by_name(self, payload: bytes) -> tuple[Any, ...]:
        """The values of all named parameters, in their order."""
        values: tuple[Any, ...] = msgspec.structs.astuple(self.read_map(payload))
        return values

    def by_place(self, payload: bytes) -> tuple[Any, ...]:
        """The values of the parameters that can be given by position."""
        values: tuple[Any, ...] = msgspec.structs.astuple(self.read_array(payload))
        return values

    def is_map(self, payload: bytes) -> bool:
        if self.codec == "msgpack":
            return payload[0] in FIRST_OF_MAP
        return payload.lstrip(b" \t\r\n").startswith(b"{")


def _open_field(one: PushedParameter) -> Any:
    return (one.name, Any) if one.is_required else (one.name, Any, UNSET)


def _fields_of(parameters: Sequence[PushedParameter]) -> list[Any]:
    """With the function's own default objects, as in a call."""
    fields: list[Any] = []
    for one in parameters:
        kind = readable(one.annotation)
        if one.is_required:
            fields.append((one.name, kind))
        elif isinstance(one.default, int | float | str | bytes | None):
            fields.append((one.name, kind, one.default))
        else:
            fields.append((one.name, kind, msgspec.field(default_factory=_always(one.default))))
    return fields


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _joint(path: str) -> str:
    return path if not path or path.startswith("[") else f".{path}"
