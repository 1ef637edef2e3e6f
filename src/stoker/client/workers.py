"""Reading what workers tell about themselves."""

from collections.abc import Iterable

import msgspec

from stoker.model.replies import KvValue
from stoker.model.workers import WorkerView


def worker_views(values: Iterable[KvValue]) -> list[WorkerView]:
    """Entries that have left meanwhile, or that something else wrote there, are nobody's."""
    views = []
    for entry in values:
        if not entry.exists:
            continue
        try:
            views.append(msgspec.json.decode(entry.value, type=WorkerView))
        except (msgspec.MsgspecError, RecursionError):
            continue
    return views
