"""How a supervisor ends: only processes that end while it stops decide its exit code."""

import asyncio
import os
import signal
from collections.abc import Collection
from pathlib import Path

from stoker.server.config import GrpcListener, HttpListener, ServerConfig, TcpListener
from stoker.server.processes.directory_seating import DirectorySeating, opened_root
from stoker.server.processes.ports import Ports
from stoker.server.processes.supervisor import Supervisor

PATIENCE_S = 60.0


class KilledWhenReleased(DirectorySeating):
    """A process is told to end, as when a node hands a seat over, and is killed before it hears that."""

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
            pid = supervisor.lives[0].process.pid
            os.kill(pid, signal.SIGSTOP)
            supervisor.release(0)
            os.kill(pid, signal.SIGKILL)
            await looking[0]
            os.kill(os.getpid(), signal.SIGTERM)
            await looking[1]


def test_a_process_that_is_killed_after_its_release_is_no_failure_of_the_server(tmp_path: Path):
    config = ServerConfig(
        data=str(tmp_path / "data"),
        tcp=TcpListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="off"),
        grpc=GrpcListener(listen="off"),
        processes=2,
    )
    seating: KilledWhenReleased

    async def supervised() -> int:
        nonlocal seating
        ports, root = Ports(config), opened_root(config)
        seating = KilledWhenReleased(root, 2)
        try:
            return await Supervisor(seating, ports).run()
        finally:
            root.close()
            ports.close()

    assert asyncio.run(supervised()) == 0
    assert seating.is_served
