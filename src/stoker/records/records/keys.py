"""Records of keys that make repeated requests harmless, and of key-value entries."""

from stoker.records.records.shape import Record

# --- of jobs and pushes --------------------------------------------------------------------------


class RequestRemembered(Record, frozen=True, gc=False, tag=2):
    """The answer to a batch with a request key: its ids, refused items as (item, code, message), duplicates as (item,
    by).
    """

    at: int
    tenant: str
    queue: str
    key: str
    runs: list[tuple[int, int]]
    """Neighbouring ids in the order of the items; (0, n) stands for n refused items."""
    refused: list[tuple[int, str, str]]
    duplicates: list[tuple[int, str]]
    expires_at: int


class Answered(Record, frozen=True, gc=False, tag=41):
    """The answer to a push that may be sent again; the fields are those of `RequestRemembered`."""

    at: int
    tenant: str
    queue: str
    sender: str
    number: int
    settled: int
    runs: list[tuple[int, int]]
    refused: list[tuple[int, str, str]]
    duplicates: list[tuple[int, str]]


class PushesAnswered(Record, frozen=True, gc=False, tag=60):
    """The answers to pushes of one job each that may be sent again, as runs of (sender, first number, count, settled,
    first id). The jobs of a run are neighbours.
    """

    at: int
    tenant: str
    queue: str
    runs: list[tuple[str, int, int, int, int]]


class KeyExtended(Record, frozen=True, gc=False, tag=3):
    at: int
    tenant: str
    queue: str
    key: str
    expires_at: int


class KeysStored(Record, frozen=True, gc=False, tag=37):
    """Keys of ended jobs moved from memory to the store of old keys, as (table, key)."""

    at: int
    tenant: str
    queue: str
    keys: list[tuple[str, str]]


class KeysForgotten(Record, frozen=True, gc=False, tag=27):
    """Keys expired, as (table, key)."""

    at: int
    tenant: str
    queue: str
    keys: list[tuple[str, str]]


# --- entries -------------------------------------------------------------------------------------


class KvWritten(Record, frozen=True, gc=False, tag=38):
    """Entries were set, as (key, value, index into `CODECS`, expiry time or 0). They replace earlier values."""

    at: int
    tenant: str
    entries: list[tuple[str, bytes, int, int]]


class KvRemoved(Record, frozen=True, gc=False, tag=39):
    """Entries were deleted, or have `expired`."""

    at: int
    tenant: str
    keys: list[str]
    expired: bool = False


class KvTimed(Record, frozen=True, gc=False, tag=40):
    """The expiry time of an entry changed; 0 = never."""

    at: int
    tenant: str
    key: str
    expires_at: int
