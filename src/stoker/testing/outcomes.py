"""The outcome of a drain."""

from dataclasses import dataclass

from stoker.model.errors import StokerError


class StillBusy(StokerError):
    """A drain does not end: a job keeps coming back at once, or a handler hangs."""

    code = "still_busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The jobs that a drain has ended or sent back, by id, in the order in which it happened."""

    completed: tuple[int, ...] = ()
    retried: tuple[int, ...] = ()
    """Deliveries that failed and will be retried."""
    failed: tuple[int, ...] = ()
    """Dead letters."""
    cancelled: tuple[int, ...] = ()
    snoozed: tuple[int, ...] = ()
    """Sent back for later, without a counted attempt."""
    errors: tuple[str, ...] = ()
    """The errors of the failed deliveries, each with its traceback if there is one."""

    @property
    def ran(self) -> int:
        """How many deliveries there were."""
        return sum(map(len, (self.completed, self.retried, self.failed, self.cancelled, self.snoozed)))

    def check(self) -> "Drained":
        """Raise with the errors if a delivery failed: `world.drain().check()`."""
        if self.errors:
            raise AssertionError(f"{len(self.errors)} deliveries failed:\n\n" + "\n".join(self.errors))
        return self
