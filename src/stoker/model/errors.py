"""All errors, as a small tree with stable codes.

    StokerError
    |-- Refused               the request is at fault; sending it again unchanged fails again
    |   |-- InvalidRequest      invalid              malformed name, option or combination
    |   |-- LimitExceeded       limit_exceeded       over a limit of `limits.py`
    |   |-- NotFound            not_found            no such job (or it belongs to another tenant)
    |   |-- WrongState          wrong_state          the job is in a state that does not allow this
    |   |-- LostLease           lost_lease           the delivery's token is no longer current
    |   |-- UnknownDependency   unknown_dependency   depends_on names a job that never existed
    |   |-- DependencyCycle     dependency_cycle     jobs of one batch wait for each other
    |   |-- UnknownStage        unknown_stage        the stage expired or was never written
    |   |-- TransactionOver     transaction_over     the transaction was already published or aborted
    |   |-- QueueActive         queue_active         obliterate found running jobs, and `force` was not set
    |   |-- Unauthenticated     unauthenticated      no token, or an invalid or expired one
    |   |-- Forbidden           forbidden            a valid token without the permission for this
    |   |-- QuotaExceeded       quota_exceeded       over the quota of the tenant
    |   `-- Unsupported         unsupported          this broker does not have the command
    |-- Unavailable           the server's condition; a retry later may succeed
    |   |-- DiskFull            disk_full            no room on the disk for new jobs; work on existing jobs goes on
    |   |-- MemoryFull          memory_full          no room in memory for new jobs; work on existing jobs goes on
    |   |-- Busy                busy                 too many requests or connections at once
    |   |-- ShuttingDown        shutting_down        the server is stopping and gives out no more jobs
    |   |-- Unreachable         unreachable          no server answers
    |   `-- Closed              closed               this broker was closed
    |-- Unknown               unknown              it may have happened or not: look, or send it again with a key
    `-- CannotOpen            a data directory cannot be opened
        |-- InUse               in_use               another process has it open
        |-- Damaged             damaged              it does not contain what was written to it
        `-- NewerFormat         newer_format         a later release wrote it

A message says what was wrong, what was expected and what to do. A refused request has changed nothing.
"""

from typing import ClassVar, Self


class StokerError(Exception):
    """The base of every error that Stoker raises on purpose."""

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
        """The error for a command or feature (`what`) that `broker` does not have. `instead` names a broker that has
        it.
        """
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
"""The class for each error code on the wire."""
