"""S13: what a server keeps on disk, and the socket that it opens there, are for its owner alone."""

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.brokers.local import LocalBroker, open_sqlite
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.server.binding import bind_unix
from stoker.server.config import ServerConfig
from stoker.server.config.tree import TcpListener, UnixListener
from stoker.server.server import Server
from tests.served.on_loop import OFF, Peer, run, serving


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a name that fits a socket, as open as a careless umask makes it."""
    before = os.umask(0)
    try:
        with tempfile.TemporaryDirectory(prefix="stk") as name:
            os.chmod(name, 0o777)
            yield Path(name)
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_data_directory_lets_nobody_else_in_whatever_the_umask_says(short: Path):
    """Its files are reached through it alone."""
    broker = open_sqlite(str(short / "data"), {})
    try:
        broker.execute("default", c.Push("../../etc/passwd".replace("/", ":"), b"x"))
        broker.execute("default", c.Push("..", b"x"))
        modes = {path: mode(path) for path in (short / "data").rglob("*")}
        assert mode(short / "data") == 0o700
        assert {path: value for path, value in modes.items() if value & 0o022} == {}
        assert len(modes) > 1
        assert sorted(path.name for path in short.iterdir()) == ["data"]
    finally:
        broker.close()


@pytest.mark.parametrize(("wanted", "expected"), [("600", 0o600), ("660", 0o660)])
def test_a_socket_has_the_mode_that_was_asked_for(short: Path, wanted: str, expected: int):
    async def main() -> None:
        listener = UnixListener(listen=str(short / "socket"), mode=wanted)
        async with serving_unix(listener) as peer:
            assert mode(short / "socket") == expected
            assert (await peer.ask(cmd="PING"))["ok"]
        assert not (short / "socket").exists()

    run(main)


class serving_unix:
    """A server with nothing but a socket in the file system, and a peer on it."""

    def __init__(self, listener: UnixListener) -> None:
        self.listener = listener

    async def __aenter__(self) -> Peer:
        self.broker = LocalBroker()
        config = ServerConfig(**OFF, tcp=TcpListener(listen="off"), unix=self.listener)  # type: ignore[arg-type]
        self.server = Server(config, self.broker)
        await self.server.start()
        assert self.listener.path is not None
        self.peer = Peer(*await asyncio.open_unix_connection(self.listener.path))
        return self.peer

    async def __aexit__(self, *_: object) -> None:
        self.peer.close()
        await self.server.close()
        self.broker.close()


def test_a_socket_is_private_from_its_first_moment_on(short: Path):
    bound = bind_unix(short / "socket", 0o600)
    assert mode(short / "socket") == 0o600
    bound.close()
    before = os.umask(0o022)
    os.umask(before)
    assert before == 0, "the process's own umask is as it was"


def test_a_file_or_a_link_in_the_place_of_a_socket_stays_what_it_is(short: Path):
    """Nobody makes a server remove a file by putting its name where the socket should be."""
    precious = short / "precious"
    precious.write_text("kept")
    (short / "link").symlink_to(precious)
    for name in ("precious", "link"):
        with pytest.raises(InvalidRequest, match="not a socket"):
            bind_unix(short / name, 0o600)
    assert precious.read_text() == "kept"
    (short / "dangling").symlink_to(short / "elsewhere")
    with pytest.raises(InvalidRequest):
        bind_unix(short / "dangling", 0o600)
    assert not (short / "elsewhere").exists()


def test_a_socket_that_somebody_serves_is_not_taken_over(short: Path):
    first = bind_unix(short / "socket", 0o600)
    first.listen()
    with pytest.raises(InvalidRequest, match="another server"):
        bind_unix(short / "socket", 0o600)
    first.close()
    second = bind_unix(short / "socket", 0o600)  # its owner is gone
    second.close()


def test_names_of_queues_reach_no_file(tmp_path: Path):
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            for name in ("../x", "/etc/x", "x/../../y", "x\0y", "~root"):
                assert (await peer.ask(cmd="PUSH", queue=name, data=1))["code"] == "invalid"
                assert (await peer.ask(cmd="push", body={"queue": name, "payload": ""}))["code"] == "invalid"

    run(main)


def test_a_path_too_long_for_a_socket_is_refused_with_words(tmp_path: Path):
    with pytest.raises(InvalidRequest, match="cannot listen"):
        bind_unix(tmp_path / ("x" * 200), 0o600)
