"""Processes of a server that are killed under load: what was promised is there, once, and the server goes on."""

import os
import signal
import threading
from pathlib import Path

from stoker.brokers.connect import open_broker
from stoker.brokers.contract import Broker
from stoker.model import commands as c
from stoker.model.errors import StokerError, Unavailable
from tests.histories.scene import Server, opened
from tests.ports import kept_port
from tests.processes.serving import QUEUES, Served, serving, until
from tests.soaking import SOAKS

KILLS = 12 if SOAKS else 2
PATIENT = "?retry_s=60&timeout_s=20"


def test_a_process_killed_under_load_loses_and_doubles_nothing(tmp_path: Path):
    with opened("two processes", 3, tmp_path) as scene:
        scene.play(*["kill the broker"] * KILLS)
        assert dict(scene.check().found) == {}
        assert isinstance(scene.broker, Server)
        assert scene.broker.stop() == 0
        assert scene.broker.said().count("was killed by SIGKILL: it is being restarted") == KILLS


def test_a_waiting_pull_gets_what_comes_to_a_process_that_was_killed_meanwhile(tmp_path: Path):
    """The pull waits over queues of both, at either of them; the one that is killed comes back long before its end."""
    waiting = c.Pull((QUEUES[0], QUEUES[1]), 1, 120_000, lease_ms=600_000)
    with serving(tmp_path, "--set", "stop.drain_s=0") as server:
        broker = open_broker(server.url + PATIENT)
        found: list[bytes] = []

        def wait() -> None:
            try:
                found.extend(job.payload for job in broker.execute("default", waiting))
            except StokerError as error:
                found.append(error.code.encode())

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for queue in QUEUES.values():  # they wait in both: each of them has a pull to answer
            broker.execute("default", c.Push(queue, b"before"))
        until(lambda: len(found) == 2, "the end of the first two pulls")
        kill(server, 0)
        until(lambda: is_pushed(broker, QUEUES[0], b"after"), "a push to the new process")
        until(lambda: len(found) == 3, "the end of the third pull")
        kill(server, 1)
        until(lambda: is_pushed(broker, QUEUES[1], b"at last"), "a push to the new process")
        until(lambda: len(found) == 4, "the end of the last pull")
        broker.close()
    assert found == [b"before", b"before", b"after", b"at last"]


def kill(server: Served, number: int) -> None:
    """And wait until it is there again."""
    pid = server.child(number)
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.child(number) != pid, "a new process")


def is_pushed(broker: Broker, queue: str, payload: bytes) -> bool:
    """Another process may not have heard yet that there is a new one."""
    try:
        return broker.execute("default", c.Push(queue, payload)).created
    except Unavailable:
        return False


def test_processes_end_when_their_supervisor_is_killed(tmp_path: Path):
    with opened("two processes", 4, tmp_path) as scene:
        scene.play("kill the supervisor")
        assert dict(scene.check().found) == {}
        assert isinstance(scene.broker, Server)
        assert scene.broker.stop() == 0


def test_a_supervisor_started_at_once_waits_for_the_processes_of_the_killed_one(tmp_path: Path):
    with kept_port() as port, serving(tmp_path, "--tcp", f"127.0.0.1:{port}") as server:
        broker = open_broker(server.url)
        job = broker.execute("default", c.Push(QUEUES[0], b"a")).id
        broker.close()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
        with serving(tmp_path, "--tcp", server.where["tcp"]) as again:
            broker = open_broker(again.url)
            assert broker.execute("default", c.GetJob(job)).payload == b"a"
            broker.close()
