"""Old idempotency keys on disk: custom ids of ended jobs and answers to requests that have left memory.

One SQLite file with one table, opened by the one owner of the data directory. What `put_many` has returned is on
disk. In front of the file stands a filter, so that a new key costs no look-up; the file alone decides.

`find` and `forget_queue` belong to the thread of the engine. The others may run in a second thread, one call at a
time, because they wait for the disk; a `find` that needs the file waits for them.
"""

import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from zlib import crc32

import apsw
import msgspec

from stoker.engine.old_keys import Duplicates, Kind, OldKey, Refused, Runs
from stoker.journal.bloom_filters import Hint
from stoker.journal.transient_errors import is_not_opened
from stoker.model.errors import Busy, Damaged, NewerFormat

FORMAT = 1

CREATE = """
CREATE TABLE keys (
    tenant TEXT, queue TEXT, kind TEXT, key TEXT, value BLOB NOT NULL, expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue, kind, key)
) WITHOUT ROWID;
CREATE INDEX keys_by_expiry ON keys (expires_at);
"""
GET = "SELECT value, expires_at FROM keys WHERE tenant = ? AND queue = ? AND kind = ? AND key = ?"
PUT = "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?)"
FORGET = "DELETE FROM keys WHERE tenant = ? AND queue = ? AND kind = ? AND key = ? AND expires_at = ?"
FORGET_QUEUE = """
DELETE FROM keys WHERE (tenant, queue, kind, key) IN
    (SELECT tenant, queue, kind, key FROM keys WHERE tenant = ? AND queue = ? LIMIT ?)
"""
FORGET_EXPIRED = """
DELETE FROM keys WHERE (tenant, queue, kind, key) IN
    (SELECT tenant, queue, kind, key FROM keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)
"""
PAGE = """
SELECT tenant, queue, kind, key FROM keys WHERE (tenant, queue, kind, key) > (?, ?, ?, ?)
ORDER BY tenant, queue, kind, key LIMIT ?
"""
COUNT = "SELECT count(*) FROM keys"

STEP_KEYS = 10_000
"""Deleted in one go: a look-up waits no longer than that takes."""

Place = tuple[str, str, str, str]
"""Tenant, queue, kind and key."""

FIRST: Place = ("", "", "", "")
"""Before every place: a kind is never empty."""

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(tuple[Runs, Refused, Duplicates]).decode
decode_custom_id = msgspec.msgpack.Decoder(int).decode


class KeyStore:
    """The file, and the filters before it. It is the `OldKeys` of every shard."""

    def __init__(
        self, path: Path | str, vfs: str = "", *, hint: Hint | None = None, cleanup: Hint | None = None
    ) -> None:
        self.lookups = 0
        """How often the file was asked for a key."""
        self.hits = 0
        """How often it had the key."""
        self._hint, self._cleanup = hint, cleanup
        self._lock = threading.Lock()
        self._forgotten: set[tuple[str, str]] = set()
        """Obliterated queues: their keys are not found any more, and go with the next `put_many`."""
        self._filled: int | None = None
        """When the filling began that gave the filter every key of the file; None before that."""
        self._filling: tuple[int, Place] | None = None
        """When the filling began that is under way, and how far it is."""
        self._path = path
        self._file = open_file(path, vfs)
        self._keys = self.count()
        """How many there are, or a few more: one that is put again is counted again."""

    # --- for the engine ----------------------------------------------------------------------------

    def find(self, tenant: str, queue: str, kind: Kind, key: str, now: int) -> OldKey | None:
        """The key, if it is stored and has not expired. A key that the filter does not know costs no look-up."""
        if self._forgotten and (tenant, queue) in self._forgotten:
            return None
        if self._hint is not None and self._filled is not None:
            known = self._hint.might_have(name_of((tenant, queue, kind, key)), now)
            if not known and self._hint.remembers(self._filled):
                return None
        return self.get(tenant, queue, kind, key, now)

    def forget_queue(self, tenant: str, queue: str) -> None:
        """None of its keys is found from now on. They leave the file with the next `put_many`, or at the end."""
        self._forgotten.add((tenant, queue))

    # --- the file ----------------------------------------------------------------------------------

    def get(self, tenant: str, queue: str, kind: Kind, key: str, now: int) -> OldKey | None:
        """What the file says."""
        with self._lock:
            self.lookups += 1
            try:
                row = self._file.execute(GET, (tenant, queue, kind, key)).fetchone()
            except (apsw.Error, UnicodeDecodeError) as error:
                if is_not_opened(error):
                    raise Busy(f"{self._path} cannot be read now ({error}): try again in a moment") from error
                raise Damaged(f"{self._path} is damaged ({error}): restore the directory from a backup") from error
        if row is None or row[1] <= now:
            return None
        self.hits += 1
        try:
            return decoded((tenant, queue, kind, key), *row)
        except Damaged as error:
            raise Damaged(f"{self._path}: {error}") from None

    def put_many(self, keys: Iterable[OldKey], now: int) -> list[OldKey]:
        """Store the keys, all or none, and return those that are on disk now.

        Keys of a queue that was forgotten are left out, because they may be from before that; then the queue's old
        keys leave the file, and the next time its keys are taken. So nothing may be put between the choosing of
        keys and the putting of these.
        """
        forgotten = frozenset(self._forgotten)
        put = [key for key in keys if (key.tenant, key.queue) not in forgotten]
        self._empty(forgotten)
        if put:
            with self._lock:
                for key in put:
                    self._add(place_of(key), now)
                with self._file:
                    self._file.executemany(PUT, [(*place_of(key), value_of(key), key.expires_at) for key in put])
                self._keys += len(put)
        return put

    def _empty(self, forgotten: Collection[tuple[str, str]]) -> None:
        """Take out the keys of queues whose keys are no longer looked up; after that, new keys may be looked up."""
        for tenant, queue in forgotten:
            while self._delete(FORGET_QUEUE, [(tenant, queue, STEP_KEYS)]):
                pass
        self._forgotten.difference_update(forgotten)

    def _delete(self, statement: str, values: list[tuple[str | int, ...]]) -> int:
        with self._lock:
            before = self._file.total_changes()
            with self._file:
                self._file.executemany(statement, values)
            deleted = self._file.total_changes() - before
            self._keys -= deleted
        return deleted

    def forget(self, keys: Sequence[OldKey], now: int) -> int:
        """Take out keys that need not be remembered after all, as they are given. Returns how many were there.

        Those that were never put, as far as the filter knows, cost nothing; if it is wrong, they go when they expire.
        """
        chosen = [key for key in keys if self._was_put(place_of(key), now)]
        return self._delete(FORGET, [(*place_of(key), key.expires_at) for key in chosen]) if chosen else 0

    def forget_expired(self, now: int, limit: int) -> int:
        """Take out up to `limit` keys whose time has passed, those that expired first. Returns how many."""
        return self._delete(FORGET_EXPIRED, [(now, limit)])

    def copy_to(self, path: Path) -> None:
        """A consistent copy of the file."""
        with self._lock:
            other = apsw.Connection(str(path))
            with other.backup("main", self._file, "main") as copying:
                while not copying.done:
                    copying.step(1000)
            other.close()

    def count(self) -> int:
        """How many keys are in the file, the expired ones included. It looks at all of them."""
        with self._lock:
            found: int = self._file.execute(COUNT).get
        return found

    def close(self) -> None:
        self._empty(frozenset(self._forgotten))
        with self._lock:
            self._file.close()

    # --- the filter --------------------------------------------------------------------------------

    def is_complete(self) -> bool:
        """Whether the filter has every key of the file, so that its "no" counts."""
        return self._hint is not None and self._filled is not None and self._hint.remembers(self._filled)

    def fill(self, now: int, limit: int) -> bool:
        """Tell the filter up to `limit` keys of the file, if it needs to hear them. Returns whether it has them all.

        It does after every start and after every rotation: what a rotation leaves behind, the next one forgets. While
        a filling is under way the one before it still counts, as long as the filter has rotated only once since.
        """
        hint = self._hint
        if hint is None:
            return False
        with self._lock:
            mark = hint.mark(now)
            if self._filled == mark and hint.remembers(mark):
                return True
            if self._filling is None or not hint.remembers(self._filling[0]):
                hint.make_room(2 * self._keys)  # so that it does not rotate again only because of this
                self._filling = (mark, FIRST)
            began, last = self._filling
            page: list[Place] = list(self._file.execute(PAGE, (*last, limit)))
            for place in page:
                hint.add(name_of(place), now)
            if len(page) == limit:
                self._filling = (began, page[-1])
            else:
                self._filling, self._filled = None, began
        return self.is_complete()

    def _add(self, place: Place, now: int) -> None:
        for hint in (self._hint, self._cleanup):
            if hint is not None:
                hint.add(name_of(place), now)

    def _was_put(self, place: Place, now: int) -> bool:
        return self._cleanup is None or self._cleanup.might_have(name_of(place), now)


def open_file(path: Path | str, vfs: str) -> apsw.Connection:
    """The file, ready for use: one owner, and a commit is on disk when it returns."""
    try:
        file = apsw.Connection(str(path), vfs=vfs or None)
        try:
            set_up(file, path)
        except BaseException:
            file.close()
            raise
    except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError) as error:
        raise Damaged(f"{path} cannot be opened ({error}): restore the directory from a backup") from error
    return file


def verify_file(path: Path) -> None:
    """Refuse a file that is not as it was left, without changing it."""
    try:
        file = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            found = file.pragma("user_version")
            fault = "ok" if found > FORMAT else file.pragma("quick_check", 1)
            if path.stat().st_size % file.pragma("page_size"):
                fault = "its end is cut off"
        finally:
            file.close()
    except (apsw.Error, UnicodeDecodeError) as error:
        raise Damaged(f"{path} cannot be opened ({error}): restore the directory from a backup") from error
    if not found or fault != "ok":
        raise Damaged(f"{path} is damaged ({fault}): restore the directory from a backup")


def set_up(file: apsw.Connection, path: Path | str) -> None:
    file.pragma("locking_mode", "exclusive")
    file.pragma("journal_mode", "truncate")  # not a write-ahead log: a damaged end of one is dropped without a word
    file.pragma("synchronous", "full")
    found = file.pragma("user_version")
    if found > FORMAT:
        raise NewerFormat(f"{path} has format {found}, this version reads up to {FORMAT}: use a newer version")
    if not found:
        with file:
            file.execute(CREATE)
            file.pragma("user_version", FORMAT)


def name_of(place: Place) -> str:
    """A place as one text, for the filters."""
    return "\0".join(place)


def place_of(key: OldKey) -> Place:
    return key.tenant, key.queue, key.kind, key.key


def value_of(key: OldKey) -> bytes:
    value = encode(key.job if key.kind == "custom_ids" else (key.runs, key.refused, key.duplicates))
    return checksum(place_of(key), value, key.expires_at) + value


def checksum(place: Place, value: bytes, expires_at: int) -> bytes:
    return crc32(value, crc32(f"{name_of(place)}\0{expires_at}".encode())).to_bytes(4, "little")


def decoded(place: tuple[str, str, Kind, str], value: bytes, expires_at: int) -> OldKey:
    found, value = value[:4], value[4:]
    if checksum(place, value, expires_at) != found:
        raise Damaged(
            f"the stored key {place[3]!r} of queue {place[1]!r} is damaged: restore the directory from a backup"
        )
    if place[2] == "custom_ids":
        return OldKey(*place, expires_at, decode_custom_id(value))
    return OldKey(*place, expires_at, 0, *decode_request(value))
