"""Records to bytes and back: a version byte, then the tagged msgpack array."""

from functools import reduce
from operator import or_

import msgspec

from stoker.model.errors import StokerError
from stoker.records.records import ALL, VERSION, Record

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(reduce(or_, ALL))
_PREFIX = bytes([VERSION])


class UnreadableRecord(StokerError):
    """The bytes are no record of a version that this release knows."""

    code = "unreadable_record"


def encode(record: Record) -> bytes:
    return _PREFIX + _encoder.encode(record)


def decode(data: bytes) -> Record:
    if not data or data[0] != VERSION:
        found = data[0] if data else "nothing"
        raise UnreadableRecord(f"record of version {found}, expected {VERSION}: it was written by another release")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecord(f"damaged record: {error}") from error
