"""Ranges of ids between processes: ten thousand ids cost as much as one.

An array of ids that begins with -1 is a range, `[-1, start, stop, step]`; no id is negative.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from stoker.model import replies as r
from stoker.model.errors import InvalidRequest

RANGE = -1


def plain(value: Any) -> Any:
    """What msgspec does not encode by itself: ranges, and maps that cannot be changed."""
    if type(value) is range:
        return (RANGE, value.start, value.stop, value.step)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"cannot send a {type(value).__name__}")


def widen(value: Any) -> Any:
    """The same value with its ids as a range where they were sent as one."""
    kind: type = type(value)
    if kind is r.Delivery:
        for run in value.runs:
            widen(run)
    elif has_ids(kind):
        ids = value.ids
        if ids and ids[0] == RANGE:
            if len(ids) != 4 or not ids[3]:
                raise InvalidRequest("invalid ids: a range is [-1, start, stop, step]")
            msgspec.structs.force_setattr(value, "ids", range(*ids[1:]))
    return value


@cache
def has_ids(kind: type) -> bool:
    return "ids" in getattr(kind, "__struct_fields__", ())
