"""What the conformance suite does not ask of `grpc://`: broken connections, cancelled calls, gRPC's own ways."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoker.brokers.connect import open_broker
from stoker.brokers.remote.grpc import enclosed, opened
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import (
    Closed,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    StokerError,
    Unauthenticated,
    Unreachable,
)
from stoker.proto import stoker_pb2 as pb
from stoker.server.auth.settings import AuthSettings
from stoker.server.config.tree import ServerLimits
from tests.grpc.conftest import Serve
from tests.grpc.support import PATIENCE_S, Served, with_changes


def run(script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """In an interpreter of its own."""
    command = [sys.executable, *options, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_frames_made_by_hand_are_what_protobuf_makes(size: int):
    body = os.urandom(size)
    assert pb.Frame.FromString(enclosed(body)).body == body
    if size:  # an empty field is not sent at all, and no reply is empty
        assert enclosed(body) == pb.Frame(body=body).SerializeToString()
        assert opened(pb.Frame(body=body).SerializeToString()) == body


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_a_job_goes_its_way(served: Served, codec: str):
    with Client(open_broker(f"{served.url}?codec={codec}")) as client:
        job_id = client.push("q", b"x").id
        (job,) = client.pull("q")
        assert (job.id, job.payload) == (job_id, b"x")
        client.ack(job.id, job.token)
        assert client.get_job(job_id).state == "completed"


def test_any_number_of_event_loops_may_use_one_broker(served: Served):
    broker = open_broker(served.url)

    async def push() -> int:
        return (await broker.execute_async("default", c.Push("q", b"x"))).id

    ids = [asyncio.run(push()) for _ in range(3)]
    threads = [threading.Thread(target=lambda: ids.append(asyncio.run(push()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(set(ids)) == 6
    broker.close()


def test_a_cancelled_pull_takes_no_job(served: Served):
    async def cancelled() -> None:
        async with AsyncClient(open_broker(served.url)) as client:
            waiting = asyncio.create_task(client.pull("q", wait_ms=60_000))
            await asyncio.to_thread(served.until, lambda server: server.dispatcher.is_waiting)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.to_thread(served.until, lambda server: not server.dispatcher.is_waiting)
            await client.push("q", b"x")
            (job,) = await client.pull("q")
            assert job.attempt == 1

    asyncio.run(cancelled())


def test_a_pull_that_is_cancelled_when_its_jobs_come_hands_them_back(served: Served):
    """Whether the reply or the cancellation is first: the job is there, and no attempt was counted."""

    async def raced(client: AsyncClient, turns: int) -> None:
        waiting = asyncio.create_task(client.pull("q", wait_ms=60_000))
        await asyncio.to_thread(served.until, lambda server: server.dispatcher.is_waiting)
        pushing = asyncio.create_task(client.push("q", b"x"))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await pushing
        (job,) = waiting.result() if not waiting.cancelled() else await client.pull("q", wait_ms=10_000)
        assert job.attempt == 1
        await client.ack(job.id, job.token)

    async def all_of_them() -> None:
        async with AsyncClient(open_broker(served.url)) as client:
            for turns in range(0, 60, 3):
                await raced(client, turns)

    asyncio.run(all_of_them())


def test_closing_the_broker_wakes_whoever_waits(served: Served):
    broker = open_broker(served.url)
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            broker.execute("default", c.Pull(["q"], 1, 60_000))
        except StokerError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    served.until(lambda server: server.dispatcher.is_waiting)
    broker.close()
    thread.join(PATIENCE_S)
    assert [type(error) for error in seen] == [Closed]
    served.until(lambda server: not server.dispatcher.is_waiting)


def test_no_server_is_unreachable():
    broker = open_broker("grpc://127.0.0.1:1?retry_s=0&connect_timeout_s=2")
    with pytest.raises(Unreachable, match="no server answers at grpc://127"):
        broker.execute("default", c.ListQueues())
    with pytest.raises(Unreachable, match="no server answers at grpc://127"):
        asyncio.run(broker.execute_async("default", c.ListQueues()))
    broker.close()


def test_a_request_that_never_left_is_not_called_unknown(served: Served):
    """The connection was fine, and then the server went away: a push that found nobody has not happened."""
    broker = open_broker(f"{served.url}?retry_s=0")
    broker.execute("default", c.Push("q", b"x"))
    served.on_loop(lambda server: server.close())
    with pytest.raises(Unreachable):
        broker.execute("default", c.Push("q", b"x"))
    broker.close()


def test_a_pull_whose_server_ends_is_sent_again_until_nobody_answers(served: Served):
    """What the first brought and nobody got comes back when its lease ends: asking again does no harm."""
    broker = open_broker(f"{served.url}?retry_s=0")
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            broker.execute("default", c.Pull(["q"], 1, 60_000))
        except StokerError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    served.until(lambda server: server.dispatcher.is_waiting)
    served.on_loop(lambda server: server.close())
    thread.join(PATIENCE_S)
    assert [type(error) for error in seen] == [Unreachable]
    broker.close()


def test_errors_come_as_they_were_raised(served: Served):
    broker = open_broker(served.url)
    with pytest.raises(NotFound, match="not found"):
        broker.execute("default", c.GetJob(77))
    broker.close()


def test_a_bad_token_is_told_at_once(serve: Serve, tmp_path: Path):
    served = serve(with_changes(auth=AuthSettings(tokens=("a-token-of-sufficient-length",))))
    host = served.address
    with Client(open_broker(f"grpc://:a-token-of-sufficient-length@{host}")) as client:
        client.push("q", b"x")
    broker = open_broker(f"grpc://:another-token@{host}")
    with pytest.raises(Unauthenticated):
        broker.execute("default", c.ListQueues())
    with pytest.raises(Unauthenticated):
        asyncio.run(broker.execute_async("default", c.ListQueues()))
    broker.close()


def test_a_request_over_the_limit_is_refused_and_the_next_one_is_not(serve: Serve):
    served = serve(with_changes(server=ServerLimits(frame_bytes_max=10_000)))
    with Client(open_broker(served.url)) as client:
        with pytest.raises(LimitExceeded, match="too large"):
            client.push("q", bytes(10_001))
        client.push("q", bytes(100))


def test_a_reply_may_be_larger_than_a_request(serve: Serve):
    """What was pulled must arrive: gRPC's own limit of 4 MiB would lose it until its lease ends."""
    served = serve()
    with Client(open_broker(served.url)) as client:
        for _ in range(2):
            client.push("q", bytes(4_000_000))
        assert [len(job.payload) for job in client.pull("q", 2)] == [4_000_000] * 2


def test_certificates_are_always_verified():
    broker = open_broker("grpcs://127.0.0.1:1?verify=false")
    with pytest.raises(InvalidRequest, match="always verifies"):
        broker.execute("default", c.ListQueues())


def test_a_forked_process_has_a_connection_of_its_own(served: Served):
    script = f"""
import os, sys
from stoker.brokers.connect import open_broker
from stoker.model import commands as c
broker = open_broker({served.url!r})
broker.execute("default", c.Push("q", b"parent"))
child = os.fork()
if not child:
    broker.execute("default", c.Push("q", b"child"))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(broker.execute("default", c.GetStats("q")).counts.waiting)
broker.close()
"""
    done = run(script, "-W", "error", "-X", "dev")
    assert (done.stdout.strip(), done.stderr) == ("2", "")


def test_a_program_that_never_closes_its_broker_ends_quietly(served: Served):
    script = f"""
import asyncio
from stoker.brokers.connect import open_broker
from stoker.model import commands as c
broker = open_broker({served.url!r})
broker.execute("default", c.Push("q", b"x"))

async def push():
    asyncio.get_running_loop().slow_callback_duration = 3600  # a busy machine is nothing to complain of
    await broker.execute_async("default", c.Push("q", b"x"))

asyncio.run(push())
"""
    done = run(script, "-W", "error", "-X", "dev")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_grpcio_the_client_says_what_to_install():
    script = """
import sys
sys.modules["grpc"] = None
from stoker.brokers.connect import open_broker
try:
    open_broker("grpc://127.0.0.1")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = run(script, "-W", "error", "-X", "dev")
    assert done.stdout.startswith("InvalidRequest")
    assert "pip install 'stoker[grpc]'" in done.stdout


def test_the_client_needs_no_protobuf():
    script = (
        "import sys, stoker.brokers.remote.grpc; print([name for name in sys.modules if name.startswith('google')])"
    )
    done = run(script, "-W", "error", "-X", "dev")
    assert done.stdout.strip() == "[]"
