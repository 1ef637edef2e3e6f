"""What came of running what was due."""

from dataclasses import dataclass

from stoker.model.errors import StokerError


class StillBusy(StokerError):
    """A drain that does not come to an end: a job that comes back at once for ever, or a handler that hangs."""

    code = "still_busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The jobs that a drain has brought to an end or sent back, by their ids, in the order in which it happened."""

    completed: tuple[int, ...] = ()
    retried: tuple[int, ...] = ()
    """Deliveries that failed and will be tried again."""
    failed: tuple[int, ...] = ()
    """Dead letters."""
    cancelled: tuple[int, ...] = ()
    snoozed: tuple[int, ...] = ()
    """Sent back for later, at no cost."""
    errors: tuple[str, ...] = ()
    """What the failed deliveries said, each with its traceback if there is one."""

    @property
    def ran(self) -> int:
        """How many deliveries there were."""
        return sum(map(len, (self.completed, self.retried, self.failed, self.cancelled, self.snoozed)))

    def check(self) -> "Drained":
        """Raise if a delivery failed, with what it said: `world.drain().check()`."""
        if self.errors:
            raise AssertionError(f"{len(self.errors)} deliveries failed:\n\n" + "\n".join(self.errors))
        return self
