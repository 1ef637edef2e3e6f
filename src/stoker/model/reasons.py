"""Why a delivery failed, or why a job did not complete. Dead letters are counted and filtered by these words.

The engine decides them: `settling.py` for failed deliveries, `ending.py`, `timers.py`, `dependencies.py` and
`workflows.py` for the rest. Redis decides in `brokers/redis/lua/`: `settle.lua`, `moves.lua`.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Why a delivery failed, or why a job did not complete."""

    FAILED = "failed"
    EXPLICIT_FAIL = "explicit_fail"
    INVALID_ARGUMENTS = "invalid_arguments"
    INVALID_RESULT = "invalid_result"
    MAX_ATTEMPTS = "max_attempts_exceeded"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    WORKER_LOST = "worker_lost"
    CORRUPT = "corrupt"
    DEPENDENCY_FAILED = "dependency_failed"
    TTL_EXPIRED = "ttl_expired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    DRAINED = "drained"
    CLEANED = "cleaned"
    OBLITERATED = "obliterated"
    UNKNOWN = "unknown"


GIVEN_REASONS = (Reason.EXPLICIT_FAIL, Reason.INVALID_ARGUMENTS, Reason.INVALID_RESULT)
"""The reasons that a worker may give when it fails a job for good."""
