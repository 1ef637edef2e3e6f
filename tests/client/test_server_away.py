"""A server that is away: the caller hears of it soon, in the log and then by an error; a worker has more patience."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker import App
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.retrying import RETRY_S, WORKER_RETRY_S
from stoker.brokers.remote.settings import RemoteSettings
from stoker.model import commands as c
from stoker.model.errors import Unreachable
from tests.client.serving import ServerThread, on_port
from tests.client.test_connections import Patient, ask, opened, patient_broker
from tests.ports import kept_port


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


def waiting_broker(port: int, patience: Patient) -> RemoteBroker:
    """With the settings that a user has who says nothing, and a clock that moves by itself."""
    return patient_broker(port, patience, retry_s=RemoteSettings().retry_s)


@pytest.mark.parametrize("scheme", ["tcp", "http", "grpc"])
def test_a_push_gives_up_after_five_seconds_and_says_what_was_tried(
    port: int, scheme: str, caplog: pytest.LogCaptureFixture
):
    broker = opened(f"{scheme}://127.0.0.1:{port}")
    patience = broker._patience = Patient()
    app = App(broker=broker)

    @app.job
    def brew(what: str) -> None: ...

    with caplog.at_level(logging.INFO, "stoker.client"), pytest.raises(Unreachable) as caught:
        brew.push_sync("tea")
    broker.close()
    assert 0.5 * RETRY_S < sum(patience.napped) < RETRY_S == 5
    told = caught.value.message
    assert f"no server answers at {scheme}://127.0.0.1:{port}" in told
    assert f"tried {len(patience.napped) + 1} times in {sum(patience.napped):.1f} s" in told
    assert "?retry_s=" in told
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert f"no server answers at {scheme}://127.0.0.1:{port}" in line.message
    assert "tried again for up to 3." in line.message


@pytest.mark.parametrize("is_async", [False, True])
def test_the_log_tells_once_of_an_outage_and_once_of_its_end(
    port: int, is_async: bool, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "stoker.client")
    patience = Patient()
    broker = waiting_broker(port, patience)
    for _ in range(2):
        with pytest.raises(Unreachable):
            ask(broker, c.ListQueues(), is_async)
    assert len(caplog.records) == 1
    with ServerThread(on_port(port)):
        ask(broker, c.ListQueues(), is_async)
        ask(broker, c.ListQueues(), is_async)
        broker.close()
    assert [record.message for record in caplog.records[1:]] == [f"tcp://127.0.0.1:{port} answers again"]


def test_a_short_outage_is_not_worth_a_line(port: int, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "stoker.client")
    server = ServerThread(on_port(port))
    broker = waiting_broker(port, Patient(lambda number: number == 3 and server.__enter__()))  # type: ignore[arg-type]
    try:
        broker.execute("default", c.ListQueues())
    finally:
        broker.close()
        server.__exit__()
    assert not caplog.records


def test_a_try_that_took_all_of_the_time_is_the_last(port: int):
    class Slow(Patient):
        def now(self) -> float:
            self._now += 3.0  # as if each look at the clock came after a connection that timed out
            return self._now

    patience = Slow()
    broker = waiting_broker(port, patience)
    with pytest.raises(Unreachable):
        broker.execute("default", c.ListQueues())
    broker.close()
    assert len(patience.napped) <= 1


def asked_in_a_handler(broker: RemoteBroker, kind: str) -> Callable[[App], Any]:
    """A handler of this kind that asks the queue about something."""

    def declare(app: App) -> Any:
        if kind == "async":

            @app.job(max_attempts=1)
            async def look() -> None:
                await broker.execute_async("default", c.ListQueues())
        else:

            @app.job(max_attempts=1)
            def look() -> None:
                broker.execute("default", c.ListQueues())

        return look

    return declare


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_what_a_handler_asks_in_a_worker_is_tried_for_longer(port: int, kind: str):
    patience = Patient()
    away = waiting_broker(port, patience)
    with App("memory://") as app:
        look = asked_in_a_handler(away, kind)(app)
        look.push_sync()
        app.worker().run_until_idle()
    away.close()
    assert WORKER_RETRY_S - 5 < sum(patience.napped) < WORKER_RETRY_S == 30


def test_a_worker_in_a_web_process_leaves_its_requests_impatient(port: int):
    patience = Patient()
    away = waiting_broker(port, patience)

    async def main() -> None:
        with App("memory://") as app:

            @app.job
            async def nothing() -> None: ...

            worker = app.worker()
            running = asyncio.create_task(worker.serve())
            with pytest.raises(Unreachable):
                await away.execute_async("default", c.ListQueues())
            worker.stop()
            await running

    asyncio.run(main())
    away.close()
    assert sum(patience.napped) < RETRY_S


def test_leases_are_renewed_with_the_patience_of_a_worker(port: int):
    """The thread that renews them is no handler, and has its own way to the queue."""
    from stoker.worker.leases import LeaseKeeper

    patience = Patient()
    away = waiting_broker(port, patience)
    asked = threading.Event()

    def chunks() -> list[Any]:
        if not asked.is_set():
            with pytest.raises(Unreachable):
                away.execute("default", c.ListQueues())
            asked.set()
        return []

    keeper = LeaseKeeper(lambda command: None, chunks, lambda chunk, job: None, lambda chunk, job: None)
    keeper.start()
    assert asked.wait(60)
    keeper.stop()
    keeper.join(60)
    away.close()
    assert sum(patience.napped) > RETRY_S


def test_the_time_that_a_pull_may_wait_is_not_counted_as_an_outage(port: int):
    """Else a pull that waits for 20 s would not be tried again at all when its connection breaks after ten."""
    patience = Patient()
    broker = waiting_broker(port, patience)
    with pytest.raises(Unreachable):
        broker.execute("default", c.Pull(("q",), wait_ms=20_000))
    broker.close()
    assert 20 < sum(patience.napped) < 20 + RETRY_S
