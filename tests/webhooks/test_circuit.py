"""A receiver that fails is left alone for a while: the circuit breaker and the backoff, under a clock of the test."""

import pytest

from stoker.server.config.tree import WebhookSettings
from stoker.server.webhooks import Webhooks
from stoker.server.webhooks.circuit import Circuit, delay_s
from tests.webhooks.support import Receiver, answering, hook, push, run, serving, settings, status_when

SETTINGS = WebhookSettings(circuit_failures=3, circuit_open_s=60)


def test_it_opens_after_failures_in_a_row():
    circuit = Circuit(SETTINGS)
    assert [circuit.failed(now) for now in (0, 1, 2)] == [False, False, True]
    assert (circuit.state(2), circuit.wait_s(2)) == ("open", 60)
    assert (circuit.state(61.9), circuit.wait_s(61.5)) == ("open", 0.5)


def test_a_success_in_between_starts_the_count_anew():
    circuit = Circuit(SETTINGS)
    for _ in range(10):
        circuit.failed(0)
        circuit.failed(0)
        assert not circuit.succeeded()
    assert circuit.state(0) == "closed"


def test_one_attempt_decides_when_the_time_is_over():
    circuit = Circuit(SETTINGS)
    for _ in range(3):
        circuit.failed(0)
    assert (circuit.state(60), circuit.wait_s(60)) == ("half_open", 0)
    assert not circuit.failed(60)  # it was open before
    assert (circuit.state(60), circuit.wait_s(60)) == ("open", 60)
    assert circuit.state(120) == "half_open"
    assert circuit.succeeded()
    assert circuit.state(120) == "closed"
    assert not circuit.failed(121)
    assert circuit.state(121) == "closed"


def test_the_backoff_doubles_up_to_its_bound():
    chosen = WebhookSettings(backoff_s=2, backoff_s_max=100)
    assert [delay_s(n, chosen, lambda: 0.0) for n in (1, 2, 3, 6, 7, 1_000)] == [2, 4, 8, 64, 100, 100]


def test_jitter_only_shortens():
    chosen = WebhookSettings(backoff_s=2, backoff_s_max=100)
    assert delay_s(3, chosen, lambda: 1.0) == 6
    assert 6 < delay_s(3, chosen, lambda: 0.5) < 8


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_failing_receiver_gets_one_attempt_an_hour_until_it_answers(caplog: pytest.LogCaptureFixture):
    async def claim():
        clock = Clock()
        chosen = settings(circuit_failures=3, circuit_open_s=3600, backoff_s=1e-9)
        async with Receiver(answering(*[500] * 5)) as receiver, serving() as server:
            await server.webhooks.close()
            server.webhooks = server.service.webhooks = Webhooks(server.dispatcher, chosen, tick=clock)
            await server.webhooks.start()
            await hook(server, receiver.url(), "pushed")
            jobs = [await push(server) for _ in range(10)]

            status = await status_when(server, lambda status: status.circuit == "open")
            assert (status.failures, len(receiver.got)) == (3, 3)
            assert status.pending >= 7
            assert status.last_error == "the receiver answered 500"

            for expected in (4, 5):
                server.webhooks.look_again()  # not yet
                clock.now += 3600
                server.webhooks.look_again()
                await status_when(server, lambda status, wanted=expected: status.failures == wanted)  # type: ignore[misc]
                status = await status_when(server, lambda status: status.circuit == "open")
                assert len(receiver.got) == expected

            clock.now += 3600
            server.webhooks.look_again()
            status = await status_when(server, lambda status: status.delivered == 10)
            assert (status.circuit, status.waiting, status.consecutive_failures) == ("closed", 0, 0)
            assert {one.json["job_id"] for one in receiver.got[5:]} == {*jobs}
            assert len(receiver.got) == 15

    run(claim())
    assert "paused for 3600 s after 3 failures" in caplog.text


def test_an_open_circuit_of_one_hook_is_closed_for_others():
    async def claim():
        async with (
            Receiver(answering(*[500] * 100)) as down,
            Receiver() as fine,
            serving(circuit_failures=2, circuit_open_s=3600) as server,
        ):
            await hook(server, down.url(), "pushed")
            await hook(server, fine.url(), "pushed")
            for _ in range(20):
                await push(server)
            await fine.count(20)
            await down.count(2)
            states = {one.url: one.status.circuit for one in await server.webhooks.list("default")}
            assert states[fine.url()] == "closed"
            assert len(down.got) == 2

    run(claim())
