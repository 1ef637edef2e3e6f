"""Encodes the arguments of a task as for all handlers: an array is positional, a map is by name.

Django's tasks may be called with both at once. Then positional arguments get their names. A call is refused if they
have none, because a payload must be readable with nothing but the function's signature.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stoker.integrations.django.tasks_api import InvalidTask, Task
from stoker.model.options import Codec
from stoker.worker.errors import BadArguments, BadResult

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def encode_arguments(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The values are plain already: Django refuses others."""
    if not args:
        return msgspec.msgpack.encode(dict(kwargs))
    return msgspec.msgpack.encode(list(args) if not kwargs else by_name(task, args, kwargs))


def by_name(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    named = [
        name
        for name, parameter in list(inspect.signature(task.func).parameters.items())[bool(task.takes_context) :]
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if len(args) > len(named):
        raise InvalidTask(
            f"{task.module_path} was called with {len(args)} positional arguments and with some by name, but only"
            f" {len(named)} of its parameters have a name: use one kind of arguments"
        )
    found = dict(zip(named, args, strict=False))
    if twice := sorted(found.keys() & kwargs.keys()):
        raise InvalidTask(f"{task.module_path} was called with {', '.join(twice)} twice")
    return found | dict(kwargs)


def decode_arguments(payload: bytes, codec: Codec) -> Arguments:
    """The arguments of a handler call."""
    decode: Callable[[bytes], Any] = msgspec.json.decode if codec == "json" else msgspec.msgpack.decode
    try:
        found = decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadArguments(f"the payload is not {codec}: {error}") from None
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict) and all(isinstance(name, str) for name in found):
        return (), found
    raise BadArguments("the payload is neither an array (positional arguments) nor a map (arguments by name)")


def encode_result(value: Any) -> bytes | None:
    """Anything that JSON can write, as Django demands of results."""
    try:
        return None if value is None else msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadResult(f"the task returned a value that cannot be stored: {error}") from None
