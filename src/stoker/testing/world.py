"""A broker, a clock and clients of several tenants in one object, for tests that read as claims."""

from datetime import timedelta
from types import TracebackType

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.client.sync import Client
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.testing.clock import FakeClock


class World:
    """The engine in memory under a fake clock."""

    def __init__(self, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS, *, shards: int = 1) -> None:
        self.clock = FakeClock()
        self.broker = LocalBroker(
            LocalSettings(engine=settings or Settings(), limits=limits, shards=shards), clock=self.clock
        )
        self.client = Client(self.broker)

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def advance(self, by: int | str | timedelta) -> None:
        """Let time pass (`"5m"`, a timedelta or whole milliseconds); everything that comes due happens."""
        self.clock.advance(by)
        self.broker.advance()

    def client_for(self, tenant: str) -> Client:
        return self.client.as_tenant(tenant)

    def close(self) -> None:
        self.broker.close()
