"""Who may share a directory, with which settings, and who has it alone."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.brokers import shared_directory
from stoker.brokers.local import LocalSettings
from stoker.brokers.remote import retrying
from stoker.brokers.remote.settings import RemoteSettings
from stoker.brokers.shared_directory import SharedBroker
from stoker.model.errors import InUse, InvalidRequest, Unreachable
from stoker.wire import native
from tests.crash.zygote import Child, the_zygote
from tests.faults.roles import QUIET, serve
from tests.sharing.conftest import Start
from tests.test_layers import modules_loaded_by

NOBODY = 65534


def owns(queue: stoker.Client) -> bool:
    assert isinstance(queue.broker, SharedBroker)
    return queue.broker.owned is not None


def test_the_socket_is_private(owner: Child, path: Path):
    assert stat.S_IMODE((path / "socket").stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    if os.getuid() == 0:
        os.chmod(path, 0o755)
        assert can_connect(path, 0)
        assert not can_connect(path, NOBODY)


def can_connect(path: Path, user: int) -> bool:
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setuid(user)
            with socket.socket(socket.AF_UNIX) as tried:
                tried.connect(str(path / "socket"))
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_a_path_may_be_longer_than_a_socket_s(path: Path):
    deep = path / ("a" * 80) / ("b" * 80)
    with stoker.connect(f"sqlite:///{deep}") as queue:
        child = os.fork()
        if not child:
            code = 1
            try:
                queue.push("q", b"from the child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert list(queue.pull("q").payloads) == [b"from the child"]


def test_shards_are_those_of_the_directory(start: Start, path: Path):
    start(LocalSettings(shards=4))
    with pytest.raises(InvalidRequest, match="has 4 shards, but 8 were asked for"):
        stoker.connect(f"sqlite:///{path}?shards=8")
    with stoker.connect(f"sqlite:///{path}?shards=4") as queue:
        assert not owns(queue)


def test_nobody_gets_less_durability_than_he_asks_for(start: Start, path: Path):
    start(LocalSettings(durability="commit"))
    with pytest.raises(InvalidRequest, match="durability commit, which is less than fsync"):
        stoker.connect(f"sqlite:///{path}?durability=fsync")
    with stoker.connect(f"sqlite:///{path}?durability=memory") as queue:
        assert queue.push("q", b"").level == "commit", "more than asked for"


def test_an_owner_s_settings_hold_for_its_guests(start: Start, path: Path):
    start(LocalSettings(durability="memory"))
    with stoker.connect(f"sqlite:///{path}") as queue:
        assert queue.push("q", b"").level == "memory"


def test_who_has_a_directory_alone_lets_nobody_in(path: Path):
    """Maintenance, for example: it says nothing of sharing."""
    with the_zygote().fork(serve, str(path), QUIET, 0) as alone:
        assert alone.receive() == "open"
        with pytest.raises(InUse, match=f"pid {alone.pid}"):
            stoker.connect(f"sqlite:///{path}")


def test_another_protocol_is_refused(owner: Child, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "PROTOCOL", native.PROTOCOL + 1)
    with pytest.raises(InvalidRequest, match="protocol 1, and this release of Stoker 2"):
        stoker.connect(f"sqlite:///{path}")


def test_sharing_loads_nothing_but_what_every_installation_has():
    """An application that embeds the queue has none of the server's extras."""
    loaded = modules_loaded_by("import stoker.brokers.shared_directory, stoker.server.sharing")
    roots = {name.partition(".")[0] for name in loaded - modules_loaded_by("import msgspec")}
    roots -= {
        name for name in roots if name.startswith("_sysconfigdata")
    }  # how this Python was built: zones ask for it
    assert roots - sys.stdlib_module_names <= {"stoker", "msgspec", "apsw", "rbloom", "uvloop", "click", "cronsim"}


def test_an_owner_that_does_not_answer_is_named(owner: Child, path: Path, monkeypatch: pytest.MonkeyPatch):
    """It has the lock, so nobody takes its place, however long it sleeps."""
    monkeypatch.setattr(shared_directory, "PATIENCE_S", 0.1)
    monkeypatch.setattr(shared_directory, "HOW", RemoteSettings(retry_s=0, connect_timeout_s=0.1))
    os.kill(owner.pid, signal.SIGSTOP)
    with pytest.raises(InUse, match=f"process {owner.pid}, which does not answer"):
        stoker.connect(f"sqlite:///{path}")


# --- beside a server ---------------------------------------------------------------------------------

SMALL = ["--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off", "--set", "journal.disk_reserve_bytes=4096"]


def serving(path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "stoker", "serve", "--data", str(path), *SMALL]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path.parent)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("tcp")
    return server


def test_a_directory_that_a_server_has_open_can_be_used_beside_it(path: Path):
    with serving(path) as server, stoker.connect(f"sqlite:///{path}") as queue:
        queue.push("q", b"")
        assert not owns(queue)
        server.terminate()
        server.communicate(timeout=60)
        with serving(path) as again:
            (job,) = queue.pull("q")
            queue.ack(job.id, job.token)
            assert not owns(queue), "it has waited for the server, and not taken its place"
            again.terminate()
            again.communicate(timeout=60)


def test_a_server_that_stays_away_is_not_replaced_behind_its_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    url = f"sqlite:///{path}"
    with serving(path) as server, stoker.connect(url) as queue:
        queue.push("q", b"")
        server.kill()
        server.communicate(timeout=60)
        with monkeypatch.context() as patched, caplog.at_level("WARNING", "stoker.client"):
            patched.setattr(retrying, "RETRY_S", 1.2)  # five seconds for users
            with pytest.raises(Unreachable, match=r"tried for 1\.\d s\): start its server again, or connect again"):
                queue.get_counts()
            assert "this call is tried again for up to 0" in caplog.text
    with stoker.connect(url) as queue:
        assert owns(queue)
        assert queue.get_counts().waiting == 1


def test_a_server_does_not_share_with_an_embedded_owner(owner: Child, path: Path):
    command = [sys.executable, "-m", "stoker", "serve", "--data", str(path), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent, timeout=60, check=False)
    assert done.returncode != 0
    assert "in_use" in done.stderr
    assert f"pid {owner.pid}" in done.stderr
