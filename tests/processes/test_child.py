"""A process that waits for its orders."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from stoker.server.config import ServerConfig
from stoker.server.config.tree import ClusterSettings
from stoker.server.processes.control_channel import Channel, Prepare, ProcessPrepared

BOUND_S = 60.0


def libraries_of(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_a_process_loads_what_it_needs_before_its_orders_come():
    """A seat that moves does not wait for modules."""

    async def claim() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-m", "stoker.server.processes.child", str(theirs.fileno())]
            process = await asyncio.create_subprocess_exec(*words, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        channel = await Channel.over(ours)
        try:
            async with asyncio.timeout(BOUND_S):
                channel.say(Prepare(ServerConfig(cluster=ClusterSettings(url="postgresql://db/stoker"))))
                assert isinstance(await channel.hear(), ProcessPrepared)
                assert "psycopg" in libraries_of(process.pid)
                await channel.close()
                assert await process.wait() == 1, "it ends with the supervisor"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    asyncio.run(claim())
