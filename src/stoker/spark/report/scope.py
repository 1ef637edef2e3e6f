"""The part of a lake that a report is about: a period, a queue, a tenant."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame

from stoker.spark.lake.layout import Lake

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class ReportScope:
    """A period, in whole minutes, and optionally one queue or one tenant."""

    since: datetime | None = None
    until: datetime | None = None
    """Not included."""
    queue: str | None = None
    tenant: str | None = None

    def in_minutes(self) -> "ReportScope":
        """The same, widened to whole minutes: gold has no finer ones."""
        since = None if self.since is None else whole_minute(self.since)
        until = None if self.until is None else whole_minute(self.until + MINUTE - timedelta(microseconds=1))
        return replace(self, since=since, until=until)

    def before(self, end: datetime) -> "ReportScope":
        """The period of the same length that ends where this one begins; `end` is the end of one that has none."""
        assert self.since is not None
        length = (self.until or end) - self.since
        return replace(self, since=self.since - length, until=self.since).in_minutes()

    def read(self, lake: Lake, layer: str) -> DataFrame | None:
        """The rows of a layer that belong to it. The table of workers does not know queues."""
        queue = None if layer == "workers" else self.queue
        return lake.read(layer, since=self.since, until=self.until, tenant=self.tenant, queue=queue)

    def read_earlier(self, lake: Lake, layer: str) -> DataFrame | None:
        """The rows of a layer from before the period."""
        return lake.read(layer, until=self.since, tenant=self.tenant, queue=self.queue)


def whole_minute(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(second=0, microsecond=0)
