"""Says where in the arguments or in a result something is wrong: `user.address[2].zip`.

When reading, msgspec says so in its own words. When writing it does not, so the value is searched; only failed calls
pay for that.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stoker.app.converting import Misfit, to_plain, type_name

PLACED = re.compile(r"(?P<text>.*?)(?: - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`)?", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
INDEX = re.compile(r"\[(?P<number>\d+)\](?P<rest>.*)", re.DOTALL)


def misread(error: Exception, names: Sequence[str] = ()) -> tuple[str, str]:
    """Path and text of what msgspec could not read. `names` are the names of positions, if it was an array."""
    found = PLACED.fullmatch(str(error))
    assert found is not None, "the pattern matches any text"
    path, text = found["path"] or "", found["text"]
    if isinstance(error.__cause__, Misfit):
        path, text = path + error.__cause__.path, str(error.__cause__)
    placed = INDEX.fullmatch(path)
    if placed is not None and int(placed["number"]) < len(names):
        path = names[int(placed["number"])] + placed["rest"]
    path = path.removeprefix(".")
    if found["key"]:
        text = f"a key is wrong: {text}"
    lacking = MISSING.fullmatch(text)
    if lacking is not None:
        return f"{path}.{lacking['name']}".removeprefix("."), "it is missing"
    return path, text[:1].lower() + text[1:]


def unwritable(value: Any, path: str, encode: Callable[[Any], bytes]) -> tuple[str, str]:
    """Path and text of the innermost value that cannot be encoded."""
    while True:
        for step, inner in inner_values(value):
            try:
                encode(inner)
            except Exception:
                value, path = inner, path + step
                break
        else:
            return path, why_unwritable(value, encode)


def why_unwritable(value: Any, encode: Callable[[Any], bytes]) -> str:
    try:
        encode(value)
    except OverflowError:
        return f"the number {value} does not fit into 64 bits"
    except UnicodeEncodeError:
        return "the text has invalid characters (lone surrogates)"
    except Exception as error:
        if isinstance(value, Mapping):
            return f"a key cannot be encoded: {error}"
        return f"a value of type `{type_name(type(value))}` cannot be encoded"
    return "it cannot be encoded"


def inner_values(value: Any) -> Iterator[tuple[str, Any]]:
    """The values inside a value, each with its step of the path."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", inner) for name, inner in zip(value._fields, value, strict=True))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{place}]", inner) for place, inner in enumerate(value))
    elif hasattr(type(value), "__pydantic_serializer__"):
        yield from ((f".{name}", inner) for name, inner in plain_fields(value).items())


def plain_fields(model: Any) -> Mapping[str, Any]:
    try:
        fields = to_plain(model)
    except Exception:
        return {}
    return fields if isinstance(fields, Mapping) else {}
