"""From flashQ's names of options to ours."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from stoker.model.limits import INT_MAX
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


def options_of(wanted: JobOptions, codec: Codec) -> Options:
    backoff, keep_age = wanted.backoff, wanted.keep_completed_age_ms
    return Options(
        priority=wanted.priority,
        delay_ms=wanted.delay,
        run_at=wanted.run_at,
        ttl_ms=wanted.ttl,
        timeout_ms=wanted.timeout,
        lease_ms=wanted.stall_timeout or DEFAULT_OPTIONS.lease_ms,
        max_attempts=wanted.max_attempts,
        max_crashes=wanted.max_crashes,
        backoff=Backoff(base_ms=backoff) if isinstance(backoff, int) else Backoff(*astuple(backoff)),
        unique_key=wanted.unique_key,
        unique_ttl_ms=wanted.unique_ttl_ms,
        on_conflict=wanted.on_conflict or "keep",
        custom_id=wanted.job_id,
        custom_id_ttl_ms=_or_default(wanted.custom_id_ttl_ms, DEFAULT_OPTIONS.custom_id_ttl_ms),
        debounce_id=wanted.debounce_id,
        debounce_ms=wanted.debounce_ttl,
        depends_on=tuple(map(_edge, wanted.depends_on)),
        group_id=wanted.group_id,
        lifo=wanted.lifo,
        tags=wanted.tags,
        remove_on_complete=wanted.remove_on_complete,
        remove_on_fail=wanted.remove_on_fail,
        keep_completed_age_ms=keep_age if keep_age is not None else wanted.keep_completed_age or None,
        keep_completed_count=wanted.keep_completed_count or None,
        trace=wanted.trace,
        parent_id=wanted.parent_id,
        codec=wanted.codec or codec,
        name=wanted.name,
        workflow=wanted.workflow,
    )


def _edge(wanted: int | q.Dependency) -> Dependency:
    return Dependency(wanted) if isinstance(wanted, int) else Dependency(*astuple(wanted))


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


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
