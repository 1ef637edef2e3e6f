"""How a supervisor ends: only processes that end while it stops decide its exit code."""

import asyncio
import os
import signal
from collections.abc import Collection
from pathlib import Path

import pytest

from stoker.server.config import GrpcListener, HttpListener, ServerConfig, TcpListener
from stoker.server.processes.control_channel import ProcessFailed
from stoker.server.processes.directory_seating import DirectorySeating, opened_root
from stoker.server.processes.ports import Ports
from stoker.server.processes.supervisor import Supervisor

PATIENCE_S = 60.0


class Played(DirectorySeating):
    """Two processes. When both serve, the first one ends in the way that a test is about."""

    is_served = False

    def is_complete(self, ready: Collection[int]) -> bool:
        if super().is_complete(ready):
            self._served.set()
            self.is_served = True
        return self.is_served

    async def run(self, supervisor: Supervisor) -> None:
        self._served = asyncio.Event()
        looking = [asyncio.create_task(supervisor.look_after(number)) for number in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            await self._served.wait()
            await self.end_first(supervisor, looking[0])
            await asyncio.gather(*looking)

    async def end_first(self, supervisor: Supervisor, first: "asyncio.Task[None]") -> None:
        """It is killed while the server stops."""
        os.kill(supervisor.lives[0].process.pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGTERM)
        await supervisor.stopped()
        os.kill(supervisor.lives[0].process.pid, signal.SIGKILL)


class KilledWhenReleased(Played):
    """It is told to end, as when a node hands a seat over, and is killed before it hears that."""

    async def end_first(self, supervisor: Supervisor, first: "asyncio.Task[None]") -> None:
        pid = supervisor.lives[0].process.pid
        os.kill(pid, signal.SIGSTOP)
        supervisor.release(0)
        os.kill(pid, signal.SIGKILL)
        await first
        os.kill(os.getpid(), signal.SIGTERM)


class LosesItsSeat(Played):
    """It says that another node has taken its seat, and fails while the server stops."""

    async def end_first(self, supervisor: Supervisor, first: "asyncio.Task[None]") -> None:
        supervisor.lives[0].failure = ProcessFailed("log_failed", "another process has taken seat 0", lost_seat=True)
        await super().end_first(supervisor, first)


@pytest.mark.parametrize(("kind", "code"), [(Played, 1), (KilledWhenReleased, 0), (LosesItsSeat, 0)])
def test_a_process_that_is_not_missed_does_not_decide_how_the_server_ends(
    kind: type[Played], code: int, tmp_path: Path
):
    config = ServerConfig(
        data=str(tmp_path / "data"),
        tcp=TcpListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="off"),
        grpc=GrpcListener(listen="off"),
        processes=2,
    )
    seating: Played

    async def supervised() -> int:
        nonlocal seating
        ports, root = Ports(config), opened_root(config)
        seating = kind(root, 2)
        try:
            return await Supervisor(seating, ports).run()
        finally:
            root.close()
            ports.close()

    assert asyncio.run(supervised()) == code
    assert seating.is_served
