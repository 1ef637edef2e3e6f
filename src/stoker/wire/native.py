"""Stoker's own dialect: the commands of the contract, field for field, and their typed replies.

A request is `{cmd, reqId?, tenant?, body}`, a reply `{ok, reqId?, body}` or `{ok, reqId?, error, code}`, in MessagePack
or JSON. Bytes are `bin`, or base64 in JSON. An array of ids that begins with -1 is a range: `[-1, start, stop, step]`;
no id is negative, and a batch of ten thousand costs as much as one of ten.
"""

import re
from typing import Annotated, Any, Final, get_args

import msgspec

from stoker.model import commands as c
from stoker.model.command_table import WITH_OPTIONS, with_field
from stoker.model.errors import BY_CODE, InvalidRequest, LimitExceeded, StokerError, Unknown
from stoker.model.events import Event
from stoker.model.id_ranges import has_ids, plain, widen
from stoker.model.loose_batch import LooseBatch, with_misfits
from stoker.model.options import Options
from stoker.wire.counting import COUNTED_BYTES, OBJECTS_MAX, judge
from stoker.wire.frames import Codec
from stoker.wire.unknown_fields import NameCheck

NOT_SAID: Final = msgspec.Raw(b"")
PROTOCOL: Final = 1
"""Raised when a client of before would misread an answer."""
SNAPSHOT: Final = "snapshot"
"""What the owner of a data directory is asked by another process, over the socket in the directory."""
RequestId = Annotated[str, msgspec.Meta(max_length=256)] | int | None
"""Comes back with the answer, and with every event of a subscription: so it is short."""


class Envelope(msgspec.Struct, gc=False):
    """The fields that every request has."""

    cmd: str
    reqId: RequestId = None
    tenant: str | None = None
    body: msgspec.Raw = NOT_SAID


class ReplyHead(msgspec.Struct, gc=False):
    """What every reply has."""

    ok: bool
    reqId: str | int | None = None
    code: str = ""
    error: str = ""
    body: msgspec.Raw = NOT_SAID


class NativeHello(msgspec.Struct, gc=False):
    """What a peer may say about itself in HELLO, in the body or beside the command."""

    token: str | None = None
    client: str = ""
    entitlement: str | None = None
    tokens: bool = True
    """Whether it must prove each delivery with its token; false for a peer that may act on the current one."""
    ranges: bool = False
    """Whether it reads ranges of ids also in flashQ's dialect."""


class Welcome(msgspec.Struct, gc=False):
    """What a client needs to know of the answer to its greeting."""

    protocol: int


class GivenUp(msgspec.Struct, gc=False):
    """The request that a peer does not wait for any more."""

    reqId: str | int


class Wish(msgspec.Struct, gc=False):
    """Which events a peer wants to be told of: of one queue or all, of some kinds or all, from now or from before."""

    queue: str | None = None
    kinds: list[str] = []
    after: dict[int, int | tuple[int, int]] | None = None
    """The positions to go on from, by shard, instead of now: a sequence number of which every event was seen, or
    `[sequence, index]` of the last event that was seen."""


class NativeRequest(msgspec.Struct, omit_defaults=True, gc=False):
    cmd: str
    body: Any
    reqId: str | int | None = None
    tenant: str | None = None


class NativeReply(msgspec.Struct, omit_defaults=True, gc=False):
    ok: bool
    body: Any = None
    reqId: str | int | None = None


class WireError(msgspec.Struct, omit_defaults=True, gc=False):
    """An error on the wire, in both dialects."""

    ok: bool
    error: str
    code: str
    reqId: str | int | None = None
    retryable: bool = False


def name_of(kind: type) -> str:
    """`PushBatch` is called `push_batch` on the wire."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def reply_of(kind: type) -> Any:
    """The type of a command's reply."""
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]


COMMANDS: dict[str, type[c.Command[Any]]] = {name_of(kind): kind for kind in c.ALL}


class Outline(msgspec.Struct, gc=False):
    """Where a command may hold many small things."""

    each: msgspec.Raw = NOT_SAID
    options: msgspec.Raw = NOT_SAID
    steps: msgspec.Raw = NOT_SAID


class CommandReader:
    """How a server reads one kind of command."""

    def __init__(self, kind: type[c.Command[Any]], decoder: Any) -> None:
        self.decode: Any = decoder(kind).decode
        self.check_names = NameCheck(kind, decoder)
        self.has_many = kind in WITH_OPTIONS or kind in with_field("steps")
        """Whether it holds options for each of many jobs, or edges to many."""
        self.has_ids = has_ids(kind)


class CommandReaders(dict[str, CommandReader]):
    """By the command's name. Each is made when it is first needed: clients read no commands."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self._decoder = decoder

    def __missing__(self, name: str) -> CommandReader:
        kind = COMMANDS.get(name)
        if kind is None:
            raise InvalidRequest(f"unknown command {name[:64]!r}: the reference lists the commands that there are")
        reader = self[name] = CommandReader(kind, self._decoder)
        return reader


class Format:
    """One codec: how requests and replies are written and read."""

    def __init__(self, codec: Codec) -> None:
        module: Any = msgspec.json if codec == "json" else msgspec.msgpack
        self.codec = codec
        self.encode: Any = module.Encoder(enc_hook=plain).encode
        self.envelope: Any = module.Decoder(Envelope).decode
        self.head: Any = module.Decoder(ReplyHead).decode
        self.welcome: Any = module.Decoder(Welcome).decode
        self.given_up: Any = module.Decoder(GivenUp).decode
        self.wish: Any = module.Decoder(Wish).decode
        self.greeting: Any = module.Decoder(NativeHello).decode
        self.loose: Any = module.Decoder(LooseBatch).decode
        self.outline: Any = module.Decoder(Outline).decode
        self.options: Any = module.Decoder(Options).decode
        self.anything: Any = module.Decoder().decode
        self.readers = CommandReaders(module.Decoder)
        self.replies: dict[type, Any] = {kind: module.Decoder(reply_of(kind)).decode for kind in COMMANDS.values()}


FORMATS: dict[Codec, Format] = {"json": Format("json"), "msgpack": Format("msgpack")}

NAMES: dict[type, str] = {kind: name for name, kind in COMMANDS.items()}


# --- at the server -------------------------------------------------------------------------------


def open_envelope(frame: bytes, codec: Codec) -> Envelope:
    try:
        return FORMATS[codec].envelope(frame)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"invalid request: {decode_error_text(error)}; expected a map with `cmd` and the command's fields"
        ) from None


def command_of(envelope: Envelope, codec: Codec) -> c.Command[Any]:
    """The command in an envelope. Raises `InvalidRequest` that names the field."""
    cmd, body = envelope.cmd, envelope.body
    reader = FORMATS[codec].readers[cmd]
    if body is NOT_SAID:
        body = EMPTY[codec]
    is_odd = reader.has_many and is_large(body, codec) and not is_bearable(body, cmd, codec)
    try:
        command: c.Command[Any] = reader.decode(body)
    except msgspec.ValidationError as error:
        reader.check_names(cmd, body)
        if is_odd:
            raise InvalidRequest(f"invalid {cmd}: {decode_error_text(error)}") from None
        return item_by_item(cmd, body, codec, error)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid {cmd}: {decode_error_text(error)}") from None
    if reader.check_names.is_needed(command):
        reader.check_names(cmd, body)
    return widen(command) if reader.has_ids else command


def is_large(body: msgspec.Raw, codec: Codec) -> bool:
    """Whether it is worth counting. Most large bodies are payloads, which are passed over."""
    if memoryview(body).nbytes <= COUNTED_BYTES:
        return False
    try:
        outline = FORMATS[codec].outline(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return True
    return max(len(bytes(part)) for part in (outline.each, outline.options, outline.steps)) > COUNTED_BYTES


def is_bearable(body: msgspec.Raw, name: str, codec: Codec) -> bool:
    """Raises if it has too many items; false if something is wrong with them, so they are not decoded one by one."""
    verdict = judge(body, codec)
    if verdict == "many":
        raise LimitExceeded(f"invalid {name}: more than {OBJECTS_MAX} items and edges in one request: split it")
    return verdict == "few"


def item_by_item(name: str, body: msgspec.Raw, codec: Codec, error: Exception) -> c.Command[Any]:
    """A batch that did not fit its types, with the misfits left to be refused one by one."""
    if name == NAMES[c.PushBatch]:
        try:
            format = FORMATS[codec]
            return with_misfits(format.loose(body), format.options, format.anything)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, TypeError):
            pass
    raise InvalidRequest(f"invalid {name}: {decode_error_text(error)}") from None


def greeting(envelope: Envelope, frame: bytes, codec: Codec) -> NativeHello:
    try:
        return FORMATS[codec].greeting(frame if envelope.body is NOT_SAID else envelope.body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid HELLO: {decode_error_text(error)}") from None


def given_up(envelope: Envelope, codec: Codec) -> str | int:
    try:
        return FORMATS[codec].given_up(envelope.body).reqId  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid give_up: {decode_error_text(error)}") from None


def wish(envelope: Envelope, codec: Codec) -> Wish:
    try:
        return FORMATS[codec].wish(EMPTY[codec] if envelope.body is NOT_SAID else envelope.body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"invalid subscription: {decode_error_text(error)}") from None


def event_frame(event: Event, request_id: str | int | None, codec: Codec) -> bytes:
    """An event that a subscription of this number brings."""
    return FORMATS[codec].encode({"event": event, "subscription": request_id})  # type: ignore[no-any-return]


def missed_frame(missed: Any, request_id: str | int | None, codec: Codec) -> bytes:
    """Says to a subscription of this number that some events are not there any more."""
    return FORMATS[codec].encode({"missed": missed, "subscription": request_id})  # type: ignore[no-any-return]


EMPTY: dict[Codec, msgspec.Raw] = {"json": msgspec.Raw(b"{}"), "msgpack": msgspec.Raw(b"\x80")}


def decode_error_text(error: Exception) -> str:
    """A decoder's complaint in one line."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def answered(reply: Any, request_id: str | int | None, codec: Codec) -> bytes:
    return FORMATS[codec].encode(NativeReply(True, reply, request_id))  # type: ignore[no-any-return]


def refused(error: StokerError, request_id: str | int | None, codec: Codec) -> bytes:
    return FORMATS[codec].encode(  # type: ignore[no-any-return]
        WireError(False, str(error), error.code, request_id, error.retryable)
    )


# --- at the client -------------------------------------------------------------------------------


def request(command: c.Command[Any], request_id: int | None, tenant: str | None, codec: Codec) -> bytes:
    """A command as a frame's body."""
    name = NAMES.get(type(command))
    if name is None:
        raise InvalidRequest(f"unknown command {type(command).__name__}: the commands are in stoker.model.commands")
    return encoded(NativeRequest(name, command, request_id, tenant), codec)


def without_false_text(request: NativeRequest) -> Any:
    """JSON writes bytes as text: bytes where text belongs, and text where bytes belong, must not pass for the other."""
    raw = msgspec.Raw(FORMATS["msgpack"].encode(request.body))
    command = command_of(Envelope(request.cmd, body=raw), "msgpack")
    if type(command) is c.PushBatch and command.each is not None:
        for options in command.each:
            for field in options.__struct_fields__:
                if type(getattr(options, field)) is bytes:
                    msgspec.structs.force_setattr(options, field, NO_TEXT)
    return command


NO_TEXT: Final = 0
"""Stands for bytes in a place of text, and is refused like them."""


def encoded(request: NativeRequest, codec: Codec) -> bytes:
    """Raises `InvalidRequest` for what no wire can carry."""
    try:
        if codec == "json" and request.cmd in COMMANDS:
            request.body = without_false_text(request)
        return FORMATS[codec].encode(request)  # type: ignore[no-any-return]
    except (NotImplementedError, TypeError, OverflowError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"invalid {request.cmd}: {error}") from None


def open_head(frame: bytes, codec: Codec) -> ReplyHead:
    return FORMATS[codec].head(frame)  # type: ignore[no-any-return]


def protocol_of(head: ReplyHead, codec: Codec) -> int:
    """What a server's answer to HELLO says that it speaks."""
    try:
        protocol: int = FORMATS[codec].welcome(head.body).protocol
        return protocol
    except msgspec.MsgspecError:
        return 0


def error_of(head: ReplyHead) -> StokerError:
    return BY_CODE.get(head.code, StokerError)(head.error)


def reply(head: ReplyHead, kind: type[c.Command[Any]], codec: Codec) -> Any:
    """The reply in a frame, or the error in it, raised."""
    if not head.ok:
        raise error_of(head)
    try:
        value = FORMATS[codec].replies[kind](head.body)
    except msgspec.MsgspecError as error:
        raise Unknown(f"the server's answer to {NAMES[kind]} cannot be read: {error}; is it a later release?") from None
    return widen(value)
