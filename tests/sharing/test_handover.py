"""When the owner ends, in order or not, another process takes over, and waiting calls go on waiting."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stoker
from stoker.brokers.shared_directory import SharedBroker
from stoker.client.aio import AsyncClient
from stoker.model import commands as c
from tests.crash.zygote import Child
from tests.sharing.conftest import Start

WAIT_MS = 60_000
"""Longer than any of this takes."""


def told(child: Child, *request: object) -> object:
    child.send(request if len(request) > 1 else request[0])
    return child.receive()


def owns(queue: stoker.Client) -> bool:
    assert isinstance(queue.broker, SharedBroker)
    return queue.broker.owned is not None


@pytest.fixture
def guest(owner: Child, path: Path) -> Iterator[stoker.Client]:
    """This process, served by another one."""
    with stoker.connect(f"sqlite:///{path}") as queue:
        assert not owns(queue)
        yield queue


def end(owner: Child, way: str) -> None:
    if way == "closed":
        assert told(owner, "close") == "closed"
    else:
        owner.kill()


@pytest.mark.parametrize("way", ["closed", "killed"])
def test_a_waiting_pull_goes_on_waiting(owner: Child, guest: stoker.Client, way: str):
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(guest.pull, "q", wait_ms=WAIT_MS)
        told(owner, "somebody waits")
        end(owner, way)
        job = guest.push("q", b"late")
        assert list(waiting.result().ids) == [job.id]
    assert owns(guest), "there is nobody else"


@pytest.mark.parametrize("way", ["closed", "killed"])
def test_a_waiting_pull_of_an_event_loop_goes_on_waiting(owner: Child, guest: stoker.Client, way: str):
    async def wait() -> None:
        queue = AsyncClient(guest.broker, owner=False)
        waiting = asyncio.create_task(queue.pull("q", wait_ms=WAIT_MS))
        await asyncio.to_thread(told, owner, "somebody waits")
        await asyncio.to_thread(end, owner, way)
        job = await queue.push("q", b"late")
        assert list((await waiting).ids) == [job.id]

    asyncio.run(wait())


def test_a_wait_for_a_job_goes_on(owner: Child, guest: stoker.Client):
    job = guest.push("q", b"").id
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(guest.wait_job, job, wait_ms=WAIT_MS)
        told(owner, "somebody waits")
        end(owner, "killed")
        (delivered,) = guest.pull("q")
        guest.ack(job, delivered.token, b"result")
        assert waiting.result().result == b"result"


def test_a_wait_is_not_prolonged_by_an_owner_s_death(owner: Child, guest: stoker.Client):
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(guest.pull, "q", wait_ms=3_000)
        told(owner, "somebody waits")
        end(owner, "killed")
        assert not waiting.result()


def test_a_delivery_outlives_the_owner_that_made_it(owner: Child, guest: stoker.Client):
    guest.push("q", b"")
    (job,) = guest.pull("q")
    end(owner, "killed")
    guest.ack(job.id, job.token)
    assert guest.get_counts().completed == 1


def test_another_guest_takes_over_and_serves(owner: Child, guest: stoker.Client, start: Start):
    other = start()
    end(owner, "closed")
    assert told(other, "execute", c.Push("q", b"other"))
    assert told(other, "owns")
    guest.push("q", b"guest")
    assert not owns(guest)
    assert guest.pull("q", 2).payloads == [b"other", b"guest"]


def test_an_owner_that_closes_leaves_a_directory_in_good_order(owner: Child, guest: stoker.Client, path: Path):
    guest.push("q", b"")
    end(owner, "closed")
    assert json.loads((path / "manifest.json").read_text())["clean"] is True
    assert not (path / "socket").exists()


FORGETFUL = """
import sys, stoker
queue = stoker.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
"""


def test_an_owner_that_forgets_to_close_hands_over_at_exit(path: Path):
    url = f"sqlite:///{path}"
    with subprocess.Popen(
        [sys.executable, "-c", FORGETFUL, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        with stoker.connect(url) as guest:
            job = guest.push("q", b"")
            assert not owns(guest)
            owner.communicate("", timeout=60)
            assert owner.returncode == 0
            assert json.loads((path / "manifest.json").read_text())["clean"] is True
            assert list(guest.pull("q").ids) == [job.id]
            assert owns(guest)


def test_a_closed_guest_is_closed(owner: Child, guest: stoker.Client):
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(guest.pull, "q", wait_ms=WAIT_MS)
        told(owner, "somebody waits")
        guest.close()
        assert isinstance(waiting.exception(), stoker.StokerError)
        assert waiting.exception().code == "closed"  # type: ignore[union-attr]
    assert told(owner, "owns")


# --- forks ------------------------------------------------------------------------------------------


def in_child(act: object) -> None:
    """Run it in a forked process."""
    child = os.fork()
    if not child:
        code = 1
        try:
            act()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_is_served_by_its_parent(path: Path):
    with stoker.connect(f"sqlite:///{path}") as queue:
        queue.push("q", b"before")
        in_child(lambda: queue.push("q", b"in the child"))
        queue.push("q", b"after")
        assert owns(queue)
        assert queue.pull("q", 5).payloads == [b"before", b"in the child", b"after"]


def test_a_forked_child_of_a_guest_has_connections_of_its_own(guest: stoker.Client):
    guest.push("q", b"before")
    in_child(lambda: guest.push("q", b"in the child"))
    guest.push("q", b"after")
    assert guest.pull("q", 5).payloads == [b"before", b"in the child", b"after"]


def test_a_child_that_lives_on_does_not_pass_for_its_parent(owner: Child, guest: stoker.Client, ended: list[int]):
    """It has inherited the owner's sockets: guests would wait for an answer from it."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(guest.pull, "q", wait_ms=WAIT_MS)
        told(owner, "somebody waits")
        child = told(owner, "fork")
        assert isinstance(child, int)
        ended.append(child)
        owner.kill()
        job = guest.push("q", b"late")
        assert list(waiting.result().ids) == [job.id]
