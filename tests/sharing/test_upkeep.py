"""Backups and checks of a directory that another process has open: its owner makes a snapshot, the caller reads it."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import maintenance
from stoker.brokers.connect import open_broker
from stoker.brokers.remote.links import SocketLink, read_head
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.brokers.shared_directory import SharedBroker
from stoker.journal.directory_store import DirectoryStore
from stoker.model.errors import InvalidRequest, Unavailable
from stoker.server.snapshots import Snapshots
from stoker.wire import native
from tests.conformance.pictures import taken
from tests.crash.zygote import the_zygote
from tests.histories.scene import SETTINGS
from tests.processes.serving import QUEUES
from tests.processes.serving import serving as serving_in_processes
from tests.sharing.roles import join, wait_until
from tests.sharing.test_who_may_share import serving

KINDS = ("embedded", "server", "processes")
ADDRESSES: dict[Path, str] = {}
TENANT = "quiet"
"""Nobody works for it but one test."""
PUSHED = 40
"""So many before the backup begins."""


@contextmanager
def owned(kind: str, path: Path) -> Iterator[str]:
    """Another process has the directory open: where it listens for clients, too, if it does."""
    if kind == "embedded":
        with the_zygote().fork(join, str(path), SETTINGS) as owner:
            assert owner.receive() == "open"
            yield ""
    elif kind == "server":
        with serving(path) as server:
            yield ""
            server.terminate()
            server.communicate(timeout=60)
    else:
        with serving_in_processes(path.parent) as served:
            yield served.where["tcp"]


@pytest.fixture(scope="module", params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp(request.param) / "data"
    with owned(request.param, path) as address:
        request.module.ADDRESSES[path] = address
        yield path


@pytest.fixture
def queue(path: Path) -> Iterator[stoker.Client]:
    with stoker.connect(f"sqlite:///{path}") as queue:
        assert isinstance(queue.broker, SharedBroker)
        assert queue.broker.owned is None, "this process is the guest"
        yield queue


def command(*arguments: object) -> Any:
    """What `stoker` says in a process of its own, as JSON."""
    words = [sys.executable, "-m", "stoker", *map(str, arguments), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def snapshots(path: Path) -> list[str]:
    return [found.name for found in path.iterdir() if found.name.startswith("snapshot-")]


def pulled(queue: stoker.Client, name: str) -> Iterator[bytes]:
    while delivery := queue.pull(name, 10_000):
        yield from delivery.payloads


class Pushing(threading.Thread):
    """Pushes numbers into two queues by turns, each when the one before is answered. They live in different shards,
    and in different processes where there are several."""

    def __init__(self, queue: stoker.Client) -> None:
        super().__init__()
        self._queue = queue
        self._stop_asked = threading.Event()
        self.done = 0

    def run(self) -> None:
        for number in count():
            if self._stop_asked.is_set():
                return
            self._queue.push(f"{QUEUES[number % 2]}", b"%d" % number, tags=("load",))
            self.done = number + 1

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def test_a_backup_taken_from_another_process_is_one_moment_of_the_load(
    path: Path, queue: stoker.Client, tmp_path: Path
):
    pushing = Pushing(queue)
    pushing.start()
    try:
        wait_until(lambda: pushing.done >= PUSHED)
        before = pushing.done
        made = command("backup", tmp_path / "safe", "--url", f"sqlite:///{path}")
        after = pushing.done
    finally:
        pushing.stop()
    assert after > before, "the owner went on serving"
    assert snapshots(path) == []
    maintenance.restore(str(tmp_path / "safe"), str(tmp_path / "again"), made["name"])
    with stoker.connect(f"sqlite:///{tmp_path}/again") as again:
        numbers = sorted(int(payload) for name in QUEUES.values() for payload in pulled(again, name))
    assert numbers == list(range(len(numbers))), "what came later is not there without what came before"
    assert before <= len(numbers) <= after + 1


def test_what_is_restored_is_what_the_owner_had(path: Path, tmp_path: Path):
    with stoker.connect(f"sqlite:///{path}", tenant=TENANT) as queue:
        queue.kv_set("colour", b"red")
        jobs = [queue.push(f"q{number}", b"first", unique_key="one").id for number in range(8)]
        queue.push("later", b"second", depends_on=tuple(map(stoker.Dependency, jobs)), custom_id="mine")
        queue.pause("q3")
        (job,) = queue.pull("q5")
        queue.ack(job.id, job.token, b"done")
        there = taken(queue.broker, TENANT)
        maintenance.backup(queue, str(tmp_path / "safe"))
    maintenance.restore(str(tmp_path / "safe"), str(tmp_path / "again"))
    assert [one.status for one in maintenance.verify(str(tmp_path / "again")) if one.status != "ok"] == []
    again = open_broker(f"sqlite:///{tmp_path}/again")
    try:
        restored = taken(again, TENANT)
    finally:
        again.close()
    assert restored == there


def test_every_record_is_read_beside_the_owner(path: Path, queue: stoker.Client):
    queue.push(QUEUES[0], b"")
    found = maintenance.verify(str(path))
    assert {one.status for one in found} == {"ok"}
    assert any("sequence" in one.name for one in found)
    assert snapshots(path) == []


def test_the_doctor_examines_a_directory_that_is_in_use(path: Path, queue: stoker.Client):
    queue.push(QUEUES[0], b"")
    found = {one["name"]: one for one in command("doctor", "--full", "--url", f"sqlite:///{path}")}
    assert [one for one in found.values() if one["status"] == "problem"] == []
    assert "waiting" in found["jobs"]["found"]
    assert "open in another process" in found["lock"]["found"]
    assert any(name.endswith("sequence") for name in found)
    assert {one.status for one in maintenance.check(str(path)) if "left-overs" in one.name} == {"ok"}


@pytest.mark.parametrize("path", ["processes"], indirect=True)
def test_only_the_socket_in_the_directory_makes_snapshots(path: Path):
    """A server's own listeners do not, whatever their clients may do otherwise."""
    host, _, port = ADDRESSES[path].rpartition(":")
    link = SocketLink(ServerAddress("tcp", host, int(port)), RemoteSettings())
    try:
        head = read_head(link.call(native.encoded(native.NativeRequest(native.SNAPSHOT, {}), "msgpack"), 10), "msgpack")
    finally:
        link.close()
    assert (head.ok, head.code) == (False, "forbidden")
    assert "the socket in the data directory" in head.error
    assert snapshots(path) == []


# --- what goes wrong ---------------------------------------------------------------------------------


def test_a_backup_outlives_the_owner(tmp_path: Path):
    """Its files are links of their own: the next owner may remove the originals."""
    path, url = tmp_path / "data", f"sqlite:///{tmp_path}/data"
    with the_zygote().fork(join, str(path), SETTINGS) as owner:
        assert owner.receive() == "open"
        with stoker.connect(url) as queue:
            queue.push("mail", b"hello")
            told: list[int] = []

            def lose_the_owner(done: int, total: int) -> None:
                if not told:
                    os.kill(owner.pid, signal.SIGKILL)
                    queue.push("mail", b"later")  # this process owns the directory from now on
                told.append(done)

            maintenance.backup(queue, str(tmp_path / "safe"), lose_the_owner)
            assert told
            assert isinstance(queue.broker, SharedBroker)
            assert queue.broker.owned is not None
            assert snapshots(path) == []
    maintenance.restore(str(tmp_path / "safe"), str(tmp_path / "again"))
    with stoker.connect(f"sqlite:///{tmp_path}/again") as again:
        assert list(again.pull("mail", 10).payloads) == [b"hello"]


def test_a_server_in_processes_lets_programs_in_again_after_the_one_at_the_door_was_killed(tmp_path: Path):
    with serving_in_processes(tmp_path) as server, stoker.connect(f"sqlite:///{tmp_path}/data") as queue:
        for number in range(4):
            queue.push(QUEUES[number % 2], b"")
        os.kill(server.child(0), signal.SIGKILL)
        queue.push(QUEUES[1], b"")
        assert [queue.get_counts(name).waiting for name in QUEUES.values()] == [2, 3]
        made = maintenance.backup(queue, str(tmp_path / "safe"))
    maintenance.restore(str(tmp_path / "safe"), str(tmp_path / "again"), made.name)
    with stoker.connect(f"sqlite:///{tmp_path}/again") as again:
        assert again.get_counts().waiting == 5


KILLED = """
import os, signal, sys
import stoker
with stoker.connect(sys.argv[1]) as queue:
    stoker.maintenance.backup(queue, sys.argv[2], lambda done, total: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_what_a_killed_process_leaves_is_removed(tmp_path: Path):
    """By the owner when the connection ends; and by the next owner, if both have died."""
    path, url = tmp_path / "data", f"sqlite:///{tmp_path}/data"
    with the_zygote().fork(join, str(path), SETTINGS) as owner:
        assert owner.receive() == "open"
        killed = [sys.executable, "-c", KILLED, url, str(tmp_path / "safe")]
        assert subprocess.run(killed, timeout=60, check=False).returncode == -signal.SIGKILL
        wait_until(lambda: not snapshots(path))
    (path / "snapshot-0123456789abcdef").mkdir()
    with stoker.connect(url):
        assert snapshots(path) == []


def test_only_a_data_directory_can_be_backed_up(tmp_path: Path):
    with stoker.connect("memory://") as queue, pytest.raises(InvalidRequest, match="only a data directory"):
        maintenance.backup(queue, str(tmp_path))


def test_an_owner_that_cannot_make_a_snapshot_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def make(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def ask() -> Any:
        made, asked = Snapshots(tmp_path, make), asyncio.get_running_loop().create_future()
        made.submit(asked.set_result)
        reply = await asked
        await made.close()
        return reply

    reply = asyncio.run(ask())
    assert isinstance(reply, Unavailable)
    assert "No space left on device" in reply.message
    assert f"a snapshot of {tmp_path} could not be made" in caplog.text
    assert snapshots(tmp_path) == []


def test_an_owner_of_an_earlier_release_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It does not know the command, as this one does not know one of the future."""
    monkeypatch.setattr(native, "SNAPSHOT", "snapshot_of_tomorrow")
    with the_zygote().fork(join, str(tmp_path / "data"), SETTINGS) as owner:
        assert owner.receive() == "open"
        with (
            stoker.connect(f"sqlite:///{tmp_path}/data") as queue,
            pytest.raises(InvalidRequest, match=f"process {owner.pid} owns .* earlier release"),
        ):
            maintenance.backup(queue, str(tmp_path / "safe"))


def test_a_backup_has_what_was_answered_while_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also if the log went on in its next file just before the moment of the backup, and no further one is made."""
    with stoker.connect(f"sqlite:///{tmp_path}/data") as queue:
        assert isinstance(queue.broker, SharedBroker)
        owned = queue.broker.owned
        assert owned is not None
        store = owned.store
        assert isinstance(store, DirectoryStore)
        prepare = store._prepare

        def use_up() -> None:
            monkeypatch.undo()
            prepare()
            with owned.guard:
                store.journal.go_on()  # as a turn does when a file is full
            queue.push("mail", b"answered")

        monkeypatch.setattr(store, "_prepare", use_up)
        maintenance.backup(queue, str(tmp_path / "safe"))
    maintenance.restore(str(tmp_path / "safe"), str(tmp_path / "again"))
    with stoker.connect(f"sqlite:///{tmp_path}/again") as again:
        assert list(again.pull("mail", 10).payloads) == [b"answered"]
