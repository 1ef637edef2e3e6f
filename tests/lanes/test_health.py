"""What a worker says of itself: over HTTP, and in the list of workers."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from stoker.client.sync import Client
from stoker.model.errors import Forbidden
from stoker.model.workers import WORKER_KEYS, WorkerView
from stoker.worker.health import HealthReport, HealthServer, Pulse, report_of
from stoker.worker.registry import Registration, new_worker_id
from stoker.worker.worker import Worker
from tests.worker.running import Beside, handler


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def status(clock: Clock, *pulses: Pulse, stopping: bool = False) -> str:
    return report_of(list(pulses), running=0, slots=1, stopping=stopping, unhealthy_after_ms=30_000).status


def test_a_worker_whose_polls_are_answered_is_healthy():
    clock = Clock()
    pulse = Pulse(clock)
    assert status(clock, pulse) == "starting"
    pulse.began()
    pulse.answered()
    clock.now += 3_600
    assert status(clock, pulse) == "ok", "nobody polls while all slots are taken"


def test_a_worker_whose_polls_fail_for_too_long_is_not():
    clock = Clock()
    pulse = Pulse(clock)
    for _ in range(4):
        pulse.began()
        clock.now += 8
        pulse.failed(ConnectionError("gone"))
    assert status(clock, pulse) == "unhealthy"
    pulse.began()
    pulse.answered()
    assert status(clock, pulse) == "ok"


def test_a_poll_that_never_comes_back_is_noticed():
    clock = Clock()
    pulse = Pulse(clock)
    pulse.began()
    clock.now += 31
    assert status(clock, pulse) == "unhealthy"
    assert status(clock, pulse, stopping=True) == "stopping", "it is about to end anyway"


def test_the_worst_of_several_pulses_counts():
    clock = Clock()
    good, bad = Pulse(clock), Pulse(clock)
    bad.began()
    clock.now += 31
    good.began()
    good.answered()
    assert status(clock, good, bad) == "unhealthy"


def asked(server: HealthServer, line: bytes) -> tuple[int, bytes]:
    head, _, body = server.answer(line + b"\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("state", "health", "ready"),
    [("ok", 200, 200), ("starting", 200, 503), ("stopping", 200, 503), ("unhealthy", 503, 503)],
)
def test_health_and_readiness_are_two_questions(state, health: int, ready: int):
    server = HealthServer(lambda: HealthReport(status=state, last_poll_ms_ago=5, running=1, slots=2))
    assert asked(server, b"GET /health HTTP/1.1")[0] == health
    code, body = asked(server, b"GET /ready?x=1 HTTP/1.1")
    assert code == ready
    assert json.loads(body)["status"] == state
    assert asked(server, b"HEAD /health HTTP/1.0") == (health, b"")


@pytest.mark.parametrize(
    ("line", "code"), [(b"GET / HTTP/1.1", 404), (b"POST /health HTTP/1.1", 405), (b"\x00\xff", 400), (b"", 400)]
)
def test_strange_requests_get_an_answer_that_says_so(line: bytes, code: int):
    server = HealthServer(lambda: HealthReport(status="ok", last_poll_ms_ago=0, running=0, slots=0))
    assert asked(server, line)[0] == code


def test_a_caller_that_says_nothing_or_too_much_harms_nobody():
    async def main() -> bytes:
        server = HealthServer(lambda: HealthReport(status="ok", last_poll_ms_ago=0, running=0, slots=0))
        port = await server.start()
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        reader, noisy = await asyncio.open_connection("127.0.0.1", port)
        noisy.write(b"x" * 100_000)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        reader, fine = await asyncio.open_connection("127.0.0.1", port)
        fine.write(b"GET /health HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        for writer in (silent, noisy, fine):
            writer.close()
        await server.stop()
        return answer

    assert asyncio.run(main()).startswith(b"HTTP/1.1 200 OK")


def noop() -> None: ...


def test_a_worker_answers_probes_and_is_in_the_list_while_it_works(queue: Client):
    worker = Worker(queue, [handler(noop)], health=("127.0.0.1", 0))
    with Beside(worker):
        while not (queue.list_workers() and worker.health_port):
            pass
        (view,) = queue.list_workers()
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.health_port}/health") as answer:
            assert json.load(answer)["worker"] == worker.id
    assert (view.id, view.queues) == (worker.id, ("default",))
    assert view.slots > 0
    assert queue.list_workers() == [], "it has left"


def test_a_worker_that_dies_leaves_the_list_by_itself(queue: Client):
    """Its entry has an end, which only the living put off."""

    async def write() -> None:
        import stoker.aio

        client = stoker.aio.AsyncClient(queue.broker, owner=False)
        await Registration(client, lambda: WorkerView(id="w", host="h", pid=1)).write()

    asyncio.run(write())
    assert [view.id for view in queue.list_workers()] == ["w"]
    assert queue.kv_ttl(f"{WORKER_KEYS}w").expires_at > 0


def test_entries_that_are_no_workers_are_left_out(queue: Client):
    queue.kv_set(f"{WORKER_KEYS}odd", b"not json")
    assert queue.list_workers() == []


def test_a_worker_that_may_not_register_works_all_the_same(caplog: pytest.LogCaptureFixture):
    class Refusing:
        async def kv_set(self, *args, **options) -> None:
            raise Forbidden("not with this token")

    caplog.set_level("INFO", "stoker.worker")

    async def main() -> None:
        registration = Registration(Refusing(), lambda: WorkerView(id="w"))  # type: ignore[arg-type]
        await registration.write()
        await registration.write()

    asyncio.run(main())
    assert [record.message for record in caplog.records] == [
        "this worker is missing from the list of workers: not with this token"
    ]


def test_ids_of_workers_differ_from_start_to_start():
    assert new_worker_id() != new_worker_id()
