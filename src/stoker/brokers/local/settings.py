"""How an embedded broker is set up, and what of it a URL may say."""

from typing import TYPE_CHECKING

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.model.replies import LEVELS, Level

if TYPE_CHECKING:
    from stoker.journal.sqlite import JournalSettings


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an embedded broker is set up."""

    engine: Settings = Settings()
    limits: Limits = DEFAULT_LIMITS
    shards: int | None = None
    """A power of two up to 64. If you do not say, `memory://` has 1, a new directory 16, an old one what it has."""
    durability: Level = "commit"
    """What replies wait for where neither the push nor the queue says; `memory://` can only give `memory`."""
    events_bytes_max: int = 64 * 1024 * 1024
    """How much of the latest history `memory://` keeps for readers of events."""
    memory_bytes_max: int = 1024 * 1024 * 1024
    """Beyond it the queue takes no new jobs, entries and log lines; in a data directory payloads and results are left
    in the journal long before. 0 = no limit."""
    journal: "JournalSettings | None" = None
    """How a data directory is kept."""


def with_parameters(
    settings: LocalSettings, parameters: dict[str, str], known: tuple[str, ...], scheme: str
) -> LocalSettings:
    """What the URL says besides its path."""
    unknown = sorted(parameters.keys() - set(known))
    if unknown:
        raise InvalidRequest(f"unknown parameters {unknown}: {scheme} knows only {', '.join(known)}")
    if "shards" in parameters:
        if not parameters["shards"].isdecimal():
            raise InvalidRequest(f"shards={parameters['shards']!r}: expected a number")
        settings = msgspec.structs.replace(settings, shards=int(parameters["shards"]))
    if "durability" in parameters:
        if parameters["durability"] not in LEVELS:
            raise InvalidRequest(f"durability={parameters['durability']!r}: expected one of {', '.join(LEVELS)}")
        settings = msgspec.structs.replace(settings, durability=parameters["durability"])
    return settings
