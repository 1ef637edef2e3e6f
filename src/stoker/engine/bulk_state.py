"""A bulk operation as a shard holds it, and the records that change it."""

from stoker.engine import deadlines as kinds
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers, Tenant
from stoker.model.bulk import BulkState, BulkView
from stoker.records import records as rec

ENDED_MAX = 50
"""Ended operations of a tenant that are kept, so that clients can see how they ended."""


class BulkRun:
    """One shard's part of a bulk operation."""

    __slots__ = ("changed", "cursor", "ended_at", "looked", "made", "next_at", "refused", "state", "tenant")

    def __init__(self, tenant: Tenant, made: rec.BulkStarted) -> None:
        self.tenant, self.made = tenant, made
        self.cursor = 0
        """The last job that it looked at."""
        self.looked = self.changed = self.refused = 0
        self.state: BulkState = "running"
        self.next_at = made.at + 1
        """When its next step comes; 0 after the last. Starting it does no step."""
        self.ended_at = 0

    def view(self) -> BulkView:
        made = self.made
        return BulkView(
            key=made.key,
            action=made.action,
            filter=made.filter,
            priority=made.priority,
            rate=made.rate,
            state=self.state,
            started_at=made.at,
            ended_at=self.ended_at,
            looked=self.looked,
            changed=self.changed,
            refused=self.refused,
        )


def started(shard: ShardState, record: rec.BulkStarted) -> None:
    tenant = shard.tenant(record.tenant)
    ended = [key for key, bulk in tenant.bulks.items() if bulk.state != "running"]
    for key in ended[: max(0, len(ended) - ENDED_MAX + 1)]:
        del tenant.bulks[key]
    bulk = tenant.bulks[record.key] = BulkRun(tenant, record)
    shard.deadlines.arm(bulk.next_at, kinds.BULK, bulk)


def stepped(shard: ShardState, record: rec.BulkStepped) -> None:
    bulk = shard.tenants[record.tenant].bulks[record.key]
    bulk.cursor, bulk.looked, bulk.changed = record.cursor, record.looked, record.changed
    bulk.refused, bulk.state, bulk.next_at = record.refused, record.state, record.next_at
    if record.state != "running":
        bulk.ended_at = record.at
    else:
        shard.deadlines.arm(bulk.next_at, kinds.BULK, bulk)


APPLY: Appliers = {rec.BulkStarted: started, rec.BulkStepped: stepped}
