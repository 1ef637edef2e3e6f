"""Batches of which some items have malformed options: the batch is read, and those items are refused one by one."""

from collections.abc import Callable
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.options import Options

OPTIONS_BYTES_MAX = 64 * 1024
"""Larger malformed options are not looked into: an untyped value takes many times its bytes."""


class LooseBatch(c.PushBatch, frozen=True, gc=False):
    """A batch whose items' options are not decoded yet."""

    each: list[msgspec.Raw] | None = None  # type: ignore[assignment]


def with_misfits(loose: LooseBatch, decode: Callable[[Any], Options], anything: Callable[[Any], Any]) -> c.PushBatch:
    """The batch with the options of each item; malformed ones are kept as they are, for the queue to refuse by name."""

    def options_of(raw: msgspec.Raw) -> Options:
        try:
            return decode(raw)
        except msgspec.ValidationError:
            if len(bytes(raw)) > OPTIONS_BYTES_MAX:
                raise
            return Options(**anything(raw))

    fields = {field: getattr(loose, field) for field in c.PushBatch.__struct_fields__}
    each = None if loose.each is None else [options_of(raw) for raw in loose.each]
    return c.PushBatch(**{**fields, "each": each})
