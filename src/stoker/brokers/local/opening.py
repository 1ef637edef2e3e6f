"""Opening embedded brokers: one for all users of a name or a directory in this process, closed at its end.

In a process that was forked off, those of the parent are the parent's alone.
"""

import atexit
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stoker.brokers.local.broker import CLOSED, LocalBroker
from stoker.brokers.local.settings import LocalSettings, with_parameters
from stoker.journal.contract import Store
from stoker.model.errors import Closed, InvalidRequest
from stoker.runtime.clock import AheadClock, Clock, SystemClock

if TYPE_CHECKING:
    from stoker.journal.directory import Holder
    from stoker.journal.disk import Disk

OpenStore = Callable[[int], Store]
"""Recovers a store, or makes a new one. It gets the time of the broker's clock."""

_shared: dict[str, LocalBroker] = {}
_shared_lock = threading.Lock()


@atexit.register
def _close_all() -> None:
    """A program that forgot to close a broker leaves a data directory that was closed in good order all the same."""
    for broker in list(_shared.values()):
        while broker.open_again():  # however many users it has
            broker.close()
            broker.close()


def _forget_all() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for broker in _shared.values():
        broker.leave_to_parent()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_all)


def open_memory(name: str, parameters: dict[str, str], settings: LocalSettings | None) -> LocalBroker:
    """A new broker, or for a name the one that this process shares under it."""
    asked = settings is not None or bool(parameters)
    settings = with_parameters(settings or LocalSettings(), parameters, ("shards",), "memory://")
    if not name:
        return LocalBroker(settings)
    return _share(f"memory://{name}", settings, asked, lambda: LocalBroker(settings))


def open_sqlite(
    path: str,
    parameters: dict[str, str],
    settings: LocalSettings | None = None,
    clock: Clock | None = None,
    disk: "Disk | None" = None,
    notice: str = "",
) -> LocalBroker:
    """The broker over a data directory: a new one, or the one that this process has open already.

    `notice` is what processes read that find the directory in use; see `brokers/shared_directory.py`.
    """
    asked = settings is not None or bool(parameters)
    settings = with_parameters(settings or LocalSettings(), parameters, ("shards", "durability"), "sqlite://")
    if not path:
        raise InvalidRequest("sqlite:// needs a directory: sqlite:///relative/path or sqlite:////absolute/path")

    return _share(os.path.realpath(path), settings, asked, lambda: _open_directory(path, settings, clock, disk, notice))


def open_part(
    path: str, settings: LocalSettings | None = None, clock: Clock | None = None, disk: "Disk | None" = None
) -> LocalBroker:
    """The broker over one process's part of a data directory that is dealt (`journal/resharding.py`).

    It carries out commands for its own shards only; `runtime/process_router.py` puts it together with those of the
    others.
    """
    return _open_directory(path, settings or LocalSettings(), clock, disk, part=True)


def open_seat(
    url: str,
    seat: int,
    node: str,
    address: str,
    settings: LocalSettings | None = None,
    clock: Clock | None = None,
    *,
    instead_of: int = 0,
) -> LocalBroker:
    """The broker over one seat of a cluster in PostgreSQL, by whose clock its time begins (`journal/postgres/`)."""
    from stoker.journal.postgres.store import open_store, time_ms

    chosen = settings or LocalSettings()
    own = clock or SystemClock(time_ms(url))
    return open_over(lambda now: open_store(url, seat, node, address, chosen, now, instead_of=instead_of), chosen, own)


def open_without_shards(total: int, settings: LocalSettings | None = None) -> LocalBroker:
    """For a process that has none of `total` shards: it only finds out where each one is. Its own ones stay empty."""
    return LocalBroker(msgspec.structs.replace(settings or LocalSettings(), shards=total, durability="memory"))


def _open_directory(
    path: str,
    settings: LocalSettings,
    clock: Clock | None,
    disk: "Disk | None",
    notice: str = "",
    *,
    part: bool = False,
) -> LocalBroker:
    from stoker.journal.directory_store import open_store

    return open_over(lambda now: open_store(path, settings, now, disk, notice, part=part), settings, clock)


def open_over(open_store: OpenStore, settings: LocalSettings, clock: Clock | None = None) -> LocalBroker:
    """The broker over any store (`journal/contract.py`): all that a new journal needs to be embedded or served."""
    own = clock or SystemClock()
    store = open_store(own.now_ms())
    try:
        behind = store.at - own.now_ms()
        if behind > 0:
            own = AheadClock(own, behind)
            for shard in store.shards:
                shard.ahead_ms = behind
        return LocalBroker(settings, own, store)
    except BaseException:
        store.close()
        raise


def holder_of(path: Path) -> "Holder":
    """The process that has a data directory open, or had it last."""
    from stoker.journal.directory import holder_of

    return holder_of(path)


def is_locked(path: Path) -> bool:
    """Whether another process has a data directory open."""
    from stoker.journal.directory import is_locked

    return is_locked(path)


def shards_of(path: Path) -> int:
    """Of a data directory that another process has open."""
    from stoker.journal.directory import read_manifest
    from stoker.journal.shard_layout import layout_of

    layout = layout_of(path)
    return read_manifest(path / "manifest.json").shards if layout is None else layout.shards


def snapshot_of(broker: LocalBroker) -> Path:
    """A new folder in the broker's data directory with its state of this moment; see `journal/snapshots.py`."""
    from stoker.journal import snapshots

    directory = broker.data_directory
    if directory is None:
        raise Closed(CLOSED)
    folder = snapshots.new_folder(directory.path)
    try:
        directory.snapshot_into(folder)
    except BaseException:
        snapshots.remove(folder)
        raise
    return folder


def _share(name: str, settings: LocalSettings, asked: bool, make: Callable[[], LocalBroker]) -> LocalBroker:
    """One broker for all users of a name in this process."""
    with _shared_lock:
        broker = _shared.get(name)
        if broker is None or not broker.open_again():
            broker = _shared[name] = make()
        elif asked and settings != broker.settings:
            broker.close()
            raise InvalidRequest(f"{name} is open with other settings: use another one, or the same settings")
        return broker
