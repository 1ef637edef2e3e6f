"""From flashQ's names of options to ours."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from stoker.model.limits import INT_MAX
from stoker.model.option_table import TABLE
from stoker.model.options import DEFAULT_OPTIONS, Backoff, Dependency, Options
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.decoding import Codec
from stoker.wire.flashq.requests import JobItem, JobOptions

PLAIN: dict[str, Options] = {
    codec: msgspec.structs.replace(DEFAULT_OPTIONS, codec=codec) for codec in ("json", "msgpack")
}
"""The options of a job that asks for nothing."""

REFUSED = Options(priority=INT_MAX + 1)
"""What no queue takes: keeps the place of an item that could not be understood, so that `item` edges still fit."""


_NAMES = [name for name, row in TABLE.items() if row.flashq]
_said = attrgetter(*(TABLE[name].flashq for name in _NAMES))


def options_of(wanted: JobOptions, codec: Codec) -> Options:
    said: dict[str, Any] = dict(zip(_NAMES, _said(wanted), strict=True))
    for name, convert in _CONVERTERS.items():
        said[name] = convert(said[name])
    if said["codec"] is None:
        said["codec"] = codec
    if said["keep_completed_age_ms"] is None and wanted.keep_completed_age:
        said["keep_completed_age_ms"] = wanted.keep_completed_age
    return Options(**said)


def _backoff(wanted: int | q.Backoff) -> Backoff:
    return Backoff(base_ms=wanted) if isinstance(wanted, int) else Backoff(*astuple(wanted))


def _edge(wanted: int | q.Dependency) -> Dependency:
    return Dependency(wanted) if isinstance(wanted, int) else Dependency(*astuple(wanted))


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "lease_ms": lambda wanted: wanted or DEFAULT_OPTIONS.lease_ms,
    "backoff": _backoff,
    "on_conflict": lambda wanted: wanted or DEFAULT_OPTIONS.on_conflict,
    "custom_id_ttl_ms": lambda wanted: DEFAULT_OPTIONS.custom_id_ttl_ms if wanted is None else wanted,
    "depends_on": lambda wanted: tuple(map(_edge, wanted)),
    "keep_completed_count": lambda wanted: wanted or None,
}
"""Options that flashQ says in another way; of the others only the names differ."""


def options_of_all(items: Sequence[JobItem], codec: Codec) -> tuple[Options, list[Options] | None]:
    """The options that all items share, or else one for each.

    Items of one batch mostly ask for the same few things, so each set of wishes is translated once.
    """
    known: dict[tuple[Any, ...], Options] = {}
    each: list[Options] = []
    for item in items:
        wishes = astuple(item)[:-1]  # all but the payload
        options = known.get(wishes)
        if options is None:
            options = known[wishes] = options_of(item, codec)
        each.append(options)
    if len(known) == 1:
        return each[0], None
    return DEFAULT_OPTIONS, each
