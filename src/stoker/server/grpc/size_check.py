"""Is a message worth unpacking? Two bytes may become hundreds in memory, so its fields are counted before.

Nothing is copied or kept. What is not a message at all is left to protobuf, which says so.
"""

from functools import cache
from typing import Any

from stoker.model.errors import LimitExceeded

SMALL_BYTES = 256 * 1024
"""Messages up to this size are not counted: what they unpack to is small enough, and usual batches fit."""
FIELDS_MAX = 250_000
"""In all, at every depth: ten thousand jobs with two dozen options each."""
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5


def check_size(descriptor: Any, sent: bytes) -> None:
    """Raises `LimitExceeded` for a message that would be unpacked into too many pieces."""
    if len(sent) > SMALL_BYTES:
        try:
            count(descriptor, sent, 0, len(sent), 0)
        except (IndexError, ValueError):
            pass


@cache
def parts_of(descriptor: Any) -> dict[int, Any]:
    """The fields that are messages themselves, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}


def count(descriptor: Any, sent: bytes, at: int, end: int, found: int) -> int:
    """The fields up to `end`, with those that were found before."""
    parts = parts_of(descriptor)
    while at < end:
        found += 1
        if found > FIELDS_MAX:
            raise LimitExceeded(f"too many values in one message: more than {FIELDS_MAX}; send less at once")
        tag = sent[at]  # numbers are mostly of one byte: a call for each would take as long as all the rest
        if tag < 0x80:
            at += 1
        else:
            tag, at = varint(sent, at)
        kind = tag & 7
        if kind == SIZED:
            size = sent[at]
            if size < 0x80:
                at += 1
            else:
                size, at = varint(sent, at)
            part = parts.get(tag >> 3)
            if part is not None and size:
                found = count(part, sent, at, min(at + size, end), found)
            at += size
        elif kind == VARINT:
            _, at = varint(sent, at)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            at += 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError("no message of ours has groups")
    return found


def varint(sent: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (sent[at] & 0x7F) << shift
        at += 1
        if sent[at - 1] < 0x80:
            return value, at
    raise ValueError("a number has at most ten bytes")
