"""Batches in which some items have malformed options. The batch is still read, and only those items are refused."""

from collections.abc import Callable
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.options import Options

OPTIONS_BYTES_MAX = 64 * 1024
"""Larger malformed options refuse the whole request: decoding them without types takes many times their bytes of
memory.
"""


class LooseBatch(c.PushBatch, frozen=True, gc=False):
    """A batch in which the options of the items are not decoded yet."""

    each: list[msgspec.Raw] | None = None  # type: ignore[assignment]


def with_misfits(loose: LooseBatch, decode: Callable[[Any], Options], anything: Callable[[Any], Any]) -> c.PushBatch:
    """The batch with decoded options. Malformed options are kept as they are, so that the queue refuses those items by
    name.
    """

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
