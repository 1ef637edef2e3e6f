"""A push of Stoker's own dialect, decoded in one piece: half of what an envelope and then its body cost.

Most requests of many callers are pushes. Only what is certain is taken here. `native.py` takes all other frames, and
says what is wrong with a push that is malformed.
"""

from typing import Final

import msgspec

from stoker.model import commands as c
from stoker.model.options import DEFAULT_OPTIONS
from stoker.wire.counting import COUNTED_BYTES
from stoker.wire.native import RequestId
from stoker.wire.unknown_fields import names_only

START: Final = b"\xa3cmd\xa4push"
"""How a push begins in MessagePack, after the size of its map, if its command stands first: as our clients write it."""


class PushRequest(msgspec.Struct, gc=False, tag_field="cmd", tag="push"):
    body: c.Push
    reqId: RequestId = None
    tenant: str | None = None


class PushNames(msgspec.Struct, gc=False, tag_field="cmd", tag="push"):
    """The names of its fields: see `unknown_fields.py`."""

    body: names_only(c.Push)  # type: ignore[valid-type]


_decode = msgspec.msgpack.Decoder(PushRequest).decode
_check_names = msgspec.msgpack.Decoder(PushNames).decode


def open_push(frame: bytes) -> PushRequest | None:
    """The push in a frame of MessagePack; None if it is another request, large, or malformed."""
    if frame[1:10] != START or len(frame) > COUNTED_BYTES:
        return None
    try:
        request = _decode(frame)
        if request.body.options is not DEFAULT_OPTIONS:
            _check_names(frame)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return request
