"""What can go wrong, as a small tree with stable codes.

    StokerError
    |-- Refused               the caller's request; sending it again unchanged fails again
    |   |-- InvalidRequest      invalid              malformed name, option or combination
    |   |-- LimitExceeded       limit_exceeded       over a bound of `limits.py`
    |   |-- NotFound            not_found            no such job (or it belongs to another tenant)
    |   |-- WrongState          wrong_state          the job is not in a state that allows this
    |   |-- LostLease           lost_lease           the delivery's token is no longer current
    |   |-- UnknownDependency   unknown_dependency   depends_on names a job that never was
    |   |-- DependencyCycle     dependency_cycle     jobs of one batch wait for each other
    |   |-- UnknownStage        unknown_stage        the stage expired or was never written
    |   |-- TransactionOver     transaction_over     it was published or aborted before
    |   |-- QueueActive         queue_active         obliterate found running jobs and no `force`
    |   |-- Unauthenticated     unauthenticated      no token, or one that is not valid (any more)
    |   |-- Forbidden           forbidden            a valid token without the right to do this
    |   |-- QuotaExceeded       quota_exceeded       over what this tenant may use
    |   `-- Unsupported         unsupported          this broker does not have the command
    |-- Unavailable           the server's condition; retrying later may succeed
    |   |-- DiskFull            disk_full            no room for new jobs; what is there can still be worked off
    |   |-- MemoryFull          memory_full          the same for memory
    |   |-- Busy                busy                 too many requests or connections at once
    |   |-- ShuttingDown        shutting_down        the server is about to stop and gives out no more jobs
    |   |-- Unreachable         unreachable          no server answers
    |   `-- Closed              closed               this broker was closed
    |-- Unknown               unknown              it may have happened or not: ask, or repeat with a key
    `-- CannotOpen            a data directory stays closed
        |-- InUse               in_use               another process has it open
        |-- Damaged             damaged              it does not hold what was written to it
        `-- NewerFormat         newer_format         a later release wrote it

The message says what was wrong, what was expected and what to do. A refused request has changed nothing.
"""

from typing import ClassVar, Self


class StokerError(Exception):
    """The root of every error that Stoker raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        return str(self)


class Refused(StokerError):
    code = "refused"


class InvalidRequest(Refused):
    code = "invalid"


class LimitExceeded(Refused):
    code = "limit_exceeded"


class NotFound(Refused):
    code = "not_found"


class WrongState(Refused):
    code = "wrong_state"


class LostLease(Refused):
    code = "lost_lease"


class UnknownDependency(Refused):
    code = "unknown_dependency"


class DependencyCycle(Refused):
    code = "dependency_cycle"


class UnknownStage(Refused):
    code = "unknown_stage"


class TransactionOver(Refused):
    code = "transaction_over"


class QueueActive(Refused):
    code = "queue_active"


class Unauthenticated(Refused):
    code = "unauthenticated"


class Forbidden(Refused):
    code = "forbidden"


class QuotaExceeded(Refused):
    code = "quota_exceeded"


class Unsupported(Refused):
    code = "unsupported"

    @classmethod
    def by(cls, broker: str, what: str, instead: str = "sqlite:///DIRECTORY") -> Self:
        """`what`: a command, or a feature. `broker` does not have it, and `instead` does."""
        return cls(f"{what}: the broker {broker!r} does not support it; use one that does, such as {instead}")


class Unavailable(StokerError):
    code = "unavailable"
    retryable = True


class DiskFull(Unavailable):
    code = "disk_full"


class MemoryFull(Unavailable):
    code = "memory_full"


class Busy(Unavailable):
    code = "busy"


class ShuttingDown(Unavailable):
    code = "shutting_down"


class Unreachable(Unavailable):
    code = "unreachable"


class Closed(Unavailable):
    code = "closed"


class Unknown(StokerError):
    code = "unknown"


class CannotOpen(StokerError):
    code = "cannot_open"


class InUse(CannotOpen):
    code = "in_use"
    retryable = True


class Damaged(CannotOpen):
    code = "damaged"


class NewerFormat(CannotOpen):
    code = "newer_format"


def _tree(root: type[StokerError]) -> list[type[StokerError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


BY_CODE: dict[str, type[StokerError]] = {error.code: error for error in _tree(StokerError)}
"""For transports: the class that a code on the wire stands for."""
