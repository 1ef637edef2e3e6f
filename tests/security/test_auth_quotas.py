"""S20: how much a tenant may use. Over it, the request is refused with its code; others are unharmed."""

from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.errors import Busy, QuotaExceeded
from stoker.server.auth import quotas as counting
from stoker.server.auth.quotas import QuotaKeeper, Quotas


class Used:
    """What tenants use, as a server would tell; remembers what it was asked."""

    def __init__(self, queues: Collection[str] = (), jobs: int = 0, bytes: int = 0) -> None:
        self.queues, self.jobs, self.bytes = queues, jobs, bytes
        self.asked: list[str] = []

    def queue_names(self, tenant: str) -> Collection[str]:
        self.asked.append("queues")
        return self.queues

    def waiting_jobs(self, tenant: str) -> int:
        self.asked.append("jobs")
        return self.jobs

    def payload_bytes(self, tenant: str) -> int:
        self.asked.append("bytes")
        return self.bytes

    def admitted(self, tenant: str, queue: str | None, jobs: int, bytes: int) -> None:
        """What it uses does not change."""


# --- pushes --------------------------------------------------------------------------------------------------


def test_a_new_queue_beyond_the_quota_is_refused_and_an_old_one_is_not():
    keeper, quotas = QuotaKeeper(), Quotas(queues=2)
    keeper.check_push("acme", quotas, "b", 1, 1, Used({"a"}))
    keeper.check_push("acme", quotas, "b", 1, 1, Used({"a", "b"}))
    with pytest.raises(QuotaExceeded, match="quota queues of tenant 'acme': 2 in use and 1 more asked for, limit 2"):
        keeper.check_push("acme", quotas, "c", 1, 1, Used({"a", "b"}))


def test_a_batch_fits_whole_or_not_at_all():
    keeper, quotas = QuotaKeeper(), Quotas(waiting_jobs=100)
    keeper.check_push("acme", quotas, "q", 10, 1, Used(jobs=90))
    with pytest.raises(QuotaExceeded, match=r"quota waiting_jobs of tenant 'acme': 90 in use and 11 more .* limit 100"):
        keeper.check_push("acme", quotas, "q", 11, 1, Used(jobs=90))
    with pytest.raises(QuotaExceeded) as caught:
        keeper.check_push("acme", quotas, "q", 101, 1, Used())
    assert (caught.value.code, caught.value.retryable) == ("quota_exceeded", False)


def test_bytes_are_counted_to_the_last():
    keeper, quotas = QuotaKeeper(), Quotas(bytes=1000)
    keeper.check_push("acme", quotas, "q", 1, 100, Used(bytes=900))
    with pytest.raises(QuotaExceeded, match=r"quota bytes of tenant 'acme': 900 in use and 101 more .* limit 1000"):
        keeper.check_push("acme", quotas, "q", 1, 101, Used(bytes=900))


@pytest.mark.parametrize("quotas", [None, Quotas(), Quotas(queues=0, waiting_jobs=0, bytes=0, requests_per_second=0)])
def test_no_quota_is_no_limit_and_costs_no_counting(quotas: Quotas | None):
    keeper, used = QuotaKeeper(), Used({"a"}, 10**9, 10**15)
    keeper.check_push("acme", quotas, "new", 10**6, 10**12, used)
    for _ in range(10_000):
        keeper.check_rate("acme", quotas, 0.0)
    assert used.asked == []


def test_only_what_a_quota_needs_is_counted():
    used = Used()
    QuotaKeeper().check_push("acme", Quotas(bytes=5), "q", 1, 1, used)
    assert used.asked == ["bytes"]


# --- rate ----------------------------------------------------------------------------------------------------


def allowed(keeper: QuotaKeeper, tenant: str, rate: int, now: float, tries: int) -> int:
    passed = 0
    for _ in range(tries):
        try:
            keeper.check_rate(tenant, Quotas(requests_per_second=rate), now)
            passed += 1
        except Busy:
            pass
    return passed


@pytest.mark.parametrize("rate", [1, 2, 3, 7, 10, 100, 1000, 12_345])
@pytest.mark.parametrize("start", [0.0, 1_800_000_000.0])
def test_a_second_is_allowed_at_once_and_then_as_much_as_time_brings(rate: int, start: float):
    keeper = QuotaKeeper()
    assert allowed(keeper, "a", rate, start, rate + 5) == rate
    assert allowed(keeper, "a", rate, start + 0.5, rate) == rate // 2
    assert allowed(keeper, "a", rate, start + 100, rate + 5) == rate


def test_a_request_over_the_rate_is_busy_and_says_when_to_come_back():
    keeper, quotas = QuotaKeeper(), Quotas(requests_per_second=4)
    for _ in range(4):
        keeper.check_rate("acme", quotas, 10.0)
    with pytest.raises(
        Busy, match=r"tenant 'acme': the rate limit of 4 requests a second .* again in 250 ms"
    ) as caught:
        keeper.check_rate("acme", quotas, 10.0)
    assert (caught.value.code, caught.value.retryable) == ("busy", True)
    keeper.check_rate("acme", quotas, 10.25)


def test_refused_requests_do_not_push_the_next_chance_away():
    keeper = QuotaKeeper()
    allowed(keeper, "a", 10, 0.0, 10_000)
    assert allowed(keeper, "a", 10, 0.1, 5) == 1


def test_tenants_have_a_rate_each():
    keeper = QuotaKeeper()
    assert allowed(keeper, "loud", 5, 0.0, 1000) == 5
    assert allowed(keeper, "quiet", 5, 0.0, 5) == 5


def test_a_clock_that_is_set_back_locks_nobody_out():
    keeper = QuotaKeeper()
    allowed(keeper, "a", 10, 1_000_000.0, 10)
    assert allowed(keeper, "a", 10, 0.0, 10) == 0
    assert allowed(keeper, "a", 10, 0.1, 10) == 1
    assert allowed(keeper, "a", 10, 1.1, 20) == 10


@given(
    rate=st.integers(1, 50),
    steps=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 20)), max_size=30),
)
def test_no_window_ever_sees_more_than_burst_and_rate(rate: int, steps: list[tuple[int, int]]):
    keeper, now_ms, passed = QuotaKeeper(), 0, list[int]()
    for wait_ms, tries in steps:
        now_ms += wait_ms
        passed += [now_ms] * allowed(keeper, "a", rate, now_ms / 1000, tries)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= rate + rate * (passed[last] - passed[first]) / 1000


def test_memory_stays_bounded_whoever_comes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(counting, "TENANTS_MAX", 100)
    keeper, quotas = QuotaKeeper(), Quotas(requests_per_second=2)
    for number in range(1000):  # one after the other: those before mean nothing any more
        keeper.check_rate(f"slow-{number}", quotas, number * 1.0)
    assert len(keeper._spent) <= 100
    for number in range(1000):  # all at once
        keeper.check_rate(f"storm-{number}", quotas, 5000.0)
    assert len(keeper._spent) <= 100


def test_room_is_made_at_the_cost_of_those_who_asked_least(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(counting, "TENANTS_MAX", 100)
    keeper = QuotaKeeper()
    assert allowed(keeper, "loud", 10, 0.0, 1000) == 10
    for number in range(500):
        keeper.check_rate(f"t{number}", Quotas(requests_per_second=10), 0.0)
    assert allowed(keeper, "loud", 10, 0.0, 10) == 0


# --- configuration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"queues": -1}, {"queues": True}, {"bytes": "1"}, {"jobs": 1}, {"bytes": 2**53}, {"waiting_jobs": 0.5}]
)
def test_quotas_that_make_no_sense_are_refused(wrong: dict[str, object]):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Quotas)
    assert msgspec.convert({"queues": 1}, Quotas) == Quotas(queues=1)
