"""Messages between the processes that share a data directory, as values and as bytes.

A process asks another one to execute something and gets one answer; it may say that it no longer waits. This module
does not know how the bytes travel: an implementation of `Peers` sends them, and hands in what arrives.
"""

from typing import Any, Protocol, get_args

import msgspec

from stoker.model import commands as c
from stoker.model import errors
from stoker.model.id_ranges import plain, widen
from stoker.model.loose_batch import LooseBatch, with_misfits
from stoker.model.options import Options
from stoker.runtime import process_requests


class PeerAsk(msgspec.Struct, frozen=True, gc=False):
    """Carry this out, and answer with the same number."""

    number: int
    tenant: str
    command: c.Command[Any]
    whole: bool = False
    """All of it, with the help of others where that is needed; else only for the shards that live with the asked."""


class PeerAnswer(msgspec.Struct, frozen=True, gc=False):
    """What came of it: a reply, or an error."""

    number: int
    kind: str
    """The name of the command that it answers, which is needed to decode the reply."""
    reply: Any


class PeerDrop(msgspec.Struct, frozen=True, gc=False):
    """The asking process no longer waits for the answer. It comes all the same, because it may have been on its way."""

    number: int


Message = PeerAsk | PeerAnswer | PeerDrop


class Peers(Protocol):
    """The way to the other processes: in order, and everything at most once."""

    def send(self, process: int, data: bytes) -> bool:
        """Hand a message over, without waiting; false if there is no way to that process: then nothing was sent."""
        ...


class UnreadableMessage(Exception):
    """A message whose content is not what its name says."""

    def __init__(self, number: int, is_ask: bool, why: str) -> None:
        super().__init__(why)
        self.number, self.is_ask = number, is_ask


# --- as bytes ----------------------------------------------------------------------------------------

ASKED, ANSWERED, REFUSED, DROPPED = range(4)

_COMMANDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (*c.ALL, *process_requests.REPLIES)}


def _reply_of(kind: type[Any]) -> Any:
    if kind in process_requests.REPLIES:
        return process_requests.REPLIES[kind]
    return get_args(next(base for base in kind.__orig_bases__ if get_args(base)))[0]


def _widen(value: Any) -> Any:
    """The same value with its ids as ranges; so are those of a delivery inside of it."""
    inside = (
        value.delivery
        if type(value) is process_requests.TakenJobs
        else value.claimed
        if type(value) is process_requests.Looked
        else value
    )
    widen(inside)
    return value


_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_head = msgspec.msgpack.Decoder(tuple[int, int, str, str, bool, msgspec.Raw])
_asks = {name: msgspec.msgpack.Decoder(kind) for name, kind in _COMMANDS.items()}
_replies = {name: msgspec.msgpack.Decoder(_reply_of(kind)) for name, kind in _COMMANDS.items()}


def to_bytes(message: Message) -> bytes:
    """Raises `InvalidRequest` for a command that is not made of what its types promise."""
    if isinstance(message, PeerAsk):
        name, body = type(message.command).__name__, message.command
        head: tuple[Any, ...] = (ASKED, message.number, name, message.tenant, message.whole, body)
    elif isinstance(message, PeerDrop):
        head = (DROPPED, message.number, "", "", False, None)
    elif isinstance(message.reply, errors.StokerError):
        head = (REFUSED, message.number, message.reply.code, "", False, message.reply.message)
    else:
        head = (ANSWERED, message.number, message.kind, "", False, message.reply)
    try:
        return _encoder.encode(head)
    except (TypeError, ValueError, OverflowError, NotImplementedError, msgspec.MsgspecError) as error:
        raise errors.InvalidRequest(f"malformed {head[2] or 'reply'}: {error}") from error


_loose = msgspec.msgpack.Decoder(LooseBatch)
_options = msgspec.msgpack.Decoder(Options)


def _command(name: str, body: msgspec.Raw) -> c.Command[Any]:
    try:
        return _asks[name].decode(body)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        if name != c.PushBatch.__name__:
            raise
        return with_misfits(_loose.decode(body), _options.decode, msgspec.msgpack.decode)


def from_bytes(data: bytes) -> Message:
    verb, number, name, tenant, whole, body = _head.decode(data)
    try:
        if verb == ASKED:
            return PeerAsk(number, tenant, _widen(_command(name, body)), whole)
        if verb == ANSWERED:
            return PeerAnswer(number, name, _widen(_replies[name].decode(body)))
    except (KeyError, TypeError, msgspec.MsgspecError, UnicodeDecodeError, errors.InvalidRequest) as error:
        raise UnreadableMessage(number, verb == ASKED, f"malformed {name}: {error}") from error
    if verb == REFUSED:
        return PeerAnswer(
            number, "", errors.BY_CODE.get(name, errors.StokerError)(msgspec.msgpack.decode(body, type=str))
        )
    return PeerDrop(number)
