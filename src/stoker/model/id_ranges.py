"""Ranges of ids on the wire, so that ten thousand ids cost as much as one.

An array of ids that begins with -1 is a range: `[-1, start, stop, step]`. No id is negative.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from stoker.model import replies as r
from stoker.model.errors import InvalidRequest

RANGE = -1


def plain(value: Any) -> Any:
    """The plain form of values that msgspec does not encode: ranges, and read-only maps."""
    if type(value) is range:
        return (RANGE, value.start, value.stop, value.step)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"cannot encode a {type(value).__name__}")


def widen(value: Any) -> Any:
    """Turn ids that were sent as a range back into a `range`, in place."""
    kind: type = type(value)
    if kind is r.Delivery:
        for run in value.runs:
            widen(run)
    elif has_ids(kind):
        ids = value.ids
        if ids and ids[0] == RANGE:
            if len(ids) != 4 or not ids[3]:
                raise InvalidRequest("invalid ids: expected a range as [-1, start, stop, step]")
            msgspec.structs.force_setattr(value, "ids", range(*ids[1:]))
    return value


@cache
def has_ids(kind: type) -> bool:
    return "ids" in getattr(kind, "__struct_fields__", ())
