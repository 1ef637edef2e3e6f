"""A filter of jobs in an address: the fields of `JobFilter`, and times as `1h`, counted back from now."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from stoker.model.errors import Forbidden, InvalidRequest
from stoker.model.filters import FIELDS, JobFilter
from stoker.model.hints import did_you_mean
from stoker.model.states import STATES
from stoker.model.units import parse_duration_ms
from stoker.server.dashboard.page import DashboardPage

AGES = {
    "pushed_since": "pushed_from",
    "pushed_until": "pushed_before",
    "ended_since": "ended_from",
    "ended_until": "ended_before",
}
"""Names for people: `pushed_since=1h` is `pushed_from` an hour ago."""
NOT_FILTERS = frozenset(("after", "csrf", "key", "action", "rate", "to_priority"))


def filter_of(page: DashboardPage, given: Mapping[str, str]) -> JobFilter:
    """The filter that is meant. Empty fields of a form count as left out. Raises `InvalidRequest`."""
    fields: dict[str, Any] = {}
    for name, text in given.items():
        if not text or name in NOT_FILTERS:
            continue
        if name in AGES:
            fields[AGES[name]] = page.now - _age_ms(name, text)
        elif name in FIELDS:
            fields[name] = text
        else:
            raise InvalidRequest(f"unknown filter {name[:40]!r}{did_you_mean(name, (*FIELDS, *AGES))}")
    if "state" in fields and fields["state"] not in tuple(STATES):
        raise InvalidRequest(f"invalid state {fields['state'][:40]!r}: expected one of {', '.join(STATES)}")
    if "text" in fields and (page.settings.payloads == "hidden" or page.settings.redact):
        raise Forbidden("this dashboard hides payloads, or parts of them, and so cannot search in them")
    try:
        return msgspec.convert(fields, JobFilter, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid filter: {error}") from None


def _age_ms(name: str, text: str) -> int:
    try:
        return round(parse_duration_ms(text))
    except ValueError as error:
        raise InvalidRequest(f"invalid {name}: {error}; expected a time such as 30m or 1h") from None


def query_of(wanted: JobFilter) -> str:
    """The filter as it stands in an address. Times become exact, so that the same jobs are meant later."""
    return urlencode(msgspec.to_builtins(wanted))


def words_of(wanted: JobFilter) -> str:
    """`state failed, queue mail`; empty for all jobs."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in msgspec.to_builtins(wanted).items())
