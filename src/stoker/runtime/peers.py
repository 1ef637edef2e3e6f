"""What the processes that share a data directory say to each other, as values and as bytes.

A process asks another one to carry something out and gets one answer; it may say that it does not wait any more. How
the bytes travel is not known here: somebody implements `Peers`, and hands in what arrives.
"""

from collections.abc import Mapping
from typing import Any, Protocol, get_args

import msgspec

from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.options import Options
from stoker.runtime import parts


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Carry this out, and answer with the same number."""

    number: int
    tenant: str
    command: c.Command[Any]
    whole: bool = False
    """All of it, with the help of others where that is needed; else only for the shards that live with the asked."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came of it: a reply, or an error."""

    number: int
    kind: str
    """The name of the command that it answers: only who knows it can read the reply from bytes."""
    reply: Any


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Nobody waits for the answer any more. It comes all the same, because it may have been on its way."""

    number: int


Message = Ask | Answer | Drop


class Peers(Protocol):
    """The way to the other processes: in order, and everything at most once."""

    def send(self, process: int, data: bytes) -> bool:
        """Hand a message over, without waiting; false if there is no way to that process: then nothing was sent."""
        ...


class Unreadable(Exception):
    """A message whose content is not what its name says."""

    def __init__(self, number: int, is_ask: bool, why: str) -> None:
        super().__init__(why)
        self.number, self.is_ask = number, is_ask


# --- as bytes ----------------------------------------------------------------------------------------

ASKED, ANSWERED, REFUSED, DROPPED = range(4)

_COMMANDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (*c.ALL, *parts.REPLIES)}


def _reply_of(kind: type[Any]) -> Any:
    if kind in parts.REPLIES:
        return parts.REPLIES[kind]
    return get_args(next(base for base in kind.__orig_bases__ if get_args(base)))[0]


RANGE = -1
"""No id: what follows is where a range of ids starts and stops, and its step."""


def _widened(value: Any) -> Any:
    """The same value with its ids as a range where they were one."""
    kind = type(value)
    if kind is r.Delivery:
        for run in value.runs:
            _widened(run)
    elif kind is parts.Taken:
        _widened(value.delivery)
    elif kind is parts.Looked:
        _widened(value.claimed)
    elif kind is not r.PushedWorkflow:  # whose `ids` are a method
        ids = getattr(value, "ids", None)
        if ids and ids[0] == RANGE and len(ids) == 4 and ids[3]:
            msgspec.structs.force_setattr(value, "ids", range(*ids[1:]))
    return value


def _plain(value: Any) -> Any:
    """What msgspec does not know."""
    if type(value) is range:
        return (RANGE, value.start, value.stop, value.step)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent to another process")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_head = msgspec.msgpack.Decoder(tuple[int, int, str, str, bool, msgspec.Raw])
_asks = {name: msgspec.msgpack.Decoder(kind) for name, kind in _COMMANDS.items()}
_replies = {name: msgspec.msgpack.Decoder(_reply_of(kind)) for name, kind in _COMMANDS.items()}


def to_bytes(message: Message) -> bytes:
    """Raises `InvalidRequest` for a command that is not made of what its types promise."""
    if isinstance(message, Ask):
        name, body = type(message.command).__name__, message.command
        head: tuple[Any, ...] = (ASKED, message.number, name, message.tenant, message.whole, body)
    elif isinstance(message, Drop):
        head = (DROPPED, message.number, "", "", False, None)
    elif isinstance(message.reply, errors.StokerError):
        head = (REFUSED, message.number, message.reply.code, "", False, message.reply.message)
    else:
        head = (ANSWERED, message.number, message.kind, "", False, message.reply)
    try:
        return _encoder.encode(head)
    except (TypeError, ValueError, OverflowError, NotImplementedError, msgspec.MsgspecError) as error:
        raise errors.InvalidRequest(f"malformed {head[2] or 'reply'}: {error}") from error


class LooseBatch(c.PushBatch, frozen=True, gc=False):
    """A batch in which some items may have options that are none: they are refused one by one."""

    each: list[msgspec.Raw] | None = None  # type: ignore[assignment]


_loose = msgspec.msgpack.Decoder(LooseBatch)
_options = msgspec.msgpack.Decoder(Options)


def _command(name: str, body: msgspec.Raw) -> c.Command[Any]:
    try:
        return _asks[name].decode(body)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        if name != c.PushBatch.__name__:
            raise
        loose = _loose.decode(body)
        fields = {field: getattr(loose, field) for field in c.PushBatch.__struct_fields__}
        return c.PushBatch(**{**fields, "each": [_options_of(raw) for raw in loose.each or ()]})


def _options_of(raw: msgspec.Raw) -> Options:
    """What does not fit is kept as it is, for the queue to refuse it by name."""
    try:
        return _options.decode(raw)
    except msgspec.ValidationError:
        return Options(**msgspec.msgpack.decode(raw))


def from_bytes(data: bytes) -> Message:
    verb, number, name, tenant, whole, body = _head.decode(data)
    try:
        if verb == ASKED:
            return Ask(number, tenant, _widened(_command(name, body)), whole)
        if verb == ANSWERED:
            return Answer(number, name, _widened(_replies[name].decode(body)))
    except (KeyError, TypeError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreadable(number, verb == ASKED, f"malformed {name}: {error}") from error
    if verb == REFUSED:
        return Answer(number, "", errors.BY_CODE.get(name, errors.StokerError)(msgspec.msgpack.decode(body, type=str)))
    return Drop(number)
