"""Schedules: jobs that the clock pushes, each slot at most once, whatever becomes of the broker in between."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound, WrongState
from stoker.model.limits import DURATION_MS_MAX, Limits
from stoker.model.options import Dependency, Options
from stoker.model.schedules import Schedule, ScheduleView
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld, MakeWorld
from tests.conformance.support import all_events, all_jobs, check_refused, picture, pulled, push, start

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def slots_of(client: Client, queue: str = "q") -> list[int]:
    """Of the jobs that schedules have pushed, in that order."""
    return [job.options.slot for job in all_jobs(client, queue)]


def outcomes(client: Client, name: str = "s", queue: str = "q") -> list[str]:
    return [run.outcome for run in client.get_schedule(queue, name).last_runs]


def finish_all(client: Client) -> None:
    for job in pulled(client):
        client.ack(job)


# --- when ------------------------------------------------------------------------------------------


def test_an_interval_counts_from_the_moment_in_which_it_was_made(world: ContractWorld):
    made = world.now
    world.client.put_schedule("q", "s", every_ms=MINUTE, payload=b"job")
    for _ in range(3):
        world.advance(MINUTE)
    jobs = all_jobs(world.client)
    assert [job.pushed_at for job in jobs] == [made + MINUTE, made + 2 * MINUTE, made + 3 * MINUTE]
    assert [job.options.slot for job in jobs] == [job.pushed_at for job in jobs]
    assert {job.options.schedule for job in jobs} == {"s"}
    assert {job.payload for job in jobs} == {b"job"}


def test_an_interval_never_drifts(world: ContractWorld):
    """However late somebody looks, slots stay where they are."""
    made = world.now
    world.client.put_schedule("q", "s", every_ms=10 * SECOND)
    for late in (13, 9, 21, 1, 16):
        world.advance(late * SECOND)
    assert slots_of(world.client) == [made + n * 10 * SECOND for n in range(1, 7)]


def test_an_interval_counts_from_its_start(world: ContractWorld):
    first = world.now + 7 * MINUTE
    world.client.put_schedule("q", "s", every_ms=HOUR, start_at=first)
    world.advance(7 * MINUTE - 1)
    assert slots_of(world.client) == []
    world.advance(1)
    world.advance(HOUR)
    assert slots_of(world.client) == [first, first + HOUR]


def test_a_start_in_the_past_brings_no_slots_of_the_past(world: ContractWorld):
    world.client.put_schedule("q", "s", every_ms=HOUR, start_at=world.now - 90 * MINUTE)
    assert world.client.get_schedule("q", "s").next_runs[0] == world.now + 30 * MINUTE


def test_cron_in_a_time_zone(world: ContractWorld):
    """The clock of these tests starts at 22:13:20 on the 14th of November 2023, in UTC."""
    midnight = world.now + 2 * HOUR + 46 * MINUTE + 40 * SECOND  # 01:00 UTC, which is 02:00 in Vienna
    view = world.client.put_schedule("q", "s", cron="0 2 * * *", zone="Europe/Vienna")
    assert list(view.next_runs) == [midnight + n * DAY for n in range(5)]
    world.advance(midnight - world.now)
    world.advance(DAY)
    assert slots_of(world.client) == [midnight, midnight + DAY]


def test_cron_with_seconds_and_with_names(world: ContractWorld):
    world.client.put_schedule("q", "s", cron="*/20 * * * * *")
    world.client.put_schedule("days", "s", cron="0 0 * * SUN")
    world.client.put_schedule("daily", "s", cron="@daily")
    world.advance(MINUTE)
    assert slots_of(world.client) == [world.now - 40 * SECOND, world.now - 20 * SECOND, world.now]
    sunday, tonight = (world.client.get_schedule(queue, "s").next_runs[0] for queue in ("days", "daily"))
    assert (sunday - tonight) // DAY == 4


def test_once_at_a_time(world: ContractWorld):
    when = world.now + 5 * MINUTE
    assert list(world.client.put_schedule("q", "s", at=when).next_runs) == [when]
    world.advance(HOUR)
    view = world.client.get_schedule("q", "s")
    assert (view.state, len(view.next_runs), view.runs) == ("over", 0, 1)
    assert slots_of(world.client) == [when]


def test_a_time_that_has_just_passed_is_now(world: ContractWorld):
    """Clocks of clients and servers differ a little."""
    world.client.put_schedule("q", "s", at=world.now - 5 * SECOND)
    world.advance(0)
    assert slots_of(world.client) == [world.now - 5 * SECOND]


def test_no_slot_is_at_or_after_the_end(world: ContractWorld):
    end = world.now + 3 * MINUTE
    view = world.client.put_schedule("q", "s", every_ms=MINUTE, end_at=end)
    assert len(view.next_runs) == 2
    for _ in range(5):
        world.advance(MINUTE)
    assert slots_of(world.client) == [end - 2 * MINUTE, end - MINUTE]
    assert world.client.get_schedule("q", "s").state == "over"


def test_a_schedule_is_over_after_so_many_runs(world: ContractWorld):
    view = world.client.put_schedule("q", "s", every_ms=10 * SECOND, runs_max=2)
    assert len(view.next_runs) == 2
    world.advance(MINUTE)
    view = world.client.get_schedule("q", "s")
    assert (view.state, view.runs, len(slots_of(world.client))) == ("over", 2, 2)
    world.client.put_schedule("q", "s", every_ms=10 * SECOND, runs_max=3)
    world.advance(MINUTE)
    assert len(slots_of(world.client)) == 3


def test_slots_that_push_nothing_use_up_no_run(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=10 * SECOND, runs_max=2, overlap="skip")
    world.advance(35 * SECOND)
    assert outcomes(client) == ["pushed", "skipped", "skipped"]
    finish_all(client)
    world.advance(10 * SECOND)
    assert (client.get_schedule("q", "s").state, client.get_schedule("q", "s").runs) == ("over", 2)


def test_a_waiting_pull_gets_the_job_of_a_slot(world: ContractWorld):
    made = world.now
    world.client.put_schedule("q", "s", every_ms=MINUTE, payload=b"now")
    (job,) = world.client.pull("q", wait_ms=2 * MINUTE)
    assert (job.payload, job.options.slot, job.pushed_at) == (b"now", made + MINUTE, made + MINUTE)


def test_jitter_moves_the_push_and_not_the_slot(make_world: MakeWorld):
    pushed: list[list[int]] = []
    for _ in range(2):
        world = make_world()
        made = world.now
        world.client.put_schedule("q", "s", every_ms=MINUTE, jitter_ms=30 * SECOND, grace_ms=HOUR)
        world.client.put_schedule("other", "t", every_ms=MINUTE, jitter_ms=30 * SECOND, grace_ms=HOUR)
        world.advance(20 * MINUTE + 30 * SECOND)
        slots = slots_of(world.client)
        assert slots == [made + n * MINUTE for n in range(1, 21)]
        late = [job.pushed_at - job.options.slot for job in all_jobs(world.client, "q")]
        assert all(0 <= one <= 30 * SECOND for one in late)
        assert len(set(late)) > 10
        assert late != [job.pushed_at - job.options.slot for job in all_jobs(world.client, "other")]
        pushed.append(late)
    assert pushed[0] == pushed[1], "the same schedule has the same jitter"


# --- what ------------------------------------------------------------------------------------------


def test_its_jobs_have_the_options_of_the_schedule(world: ContractWorld):
    options = Options(priority=7, max_attempts=9, tags=("nightly",), name="report", codec="json")
    world.client.put_schedule("q", "s", every_ms=MINUTE, payload=b"{}", options=options)
    world.advance(MINUTE)
    job = start(world.client)
    assert job.options == msgspec.structs.replace(options, schedule="s", slot=world.now)
    assert (job.schedule, world.client.get_job(job.id).schedule) == ("s", "s")


@pytest.mark.parametrize(
    ("codec", "payload", "expected"),
    [
        ("json", b'{"at":"{slot}","ms":"{slot_ms}","x":"{other}"}', b'{"at":"%b","ms":"%b","x":"{other}"}'),
        ("bytes", b"{slot} {slot_ms} {other}", b"%b %b {other}"),
    ],
)
def test_places_in_a_template_are_filled_in(world: ContractWorld, codec: Any, payload: bytes, expected: bytes):
    options = Options(codec=codec)
    world.client.put_schedule("q", "s", at=world.now + MINUTE, payload=payload, options=options, template=True)
    world.client.put_schedule("plain", "s", at=world.now + MINUTE, payload=payload, options=options)
    world.advance(MINUTE)
    assert start(world.client).payload == expected % (b"2023-11-14T22:14:20+00:00", b"%d" % world.now)
    assert start(world.client, "plain").payload == payload


def test_a_template_in_messagepack_and_in_a_zone(world: ContractWorld):
    value = {"when": "at {slot}", "of": ["{schedule}", 7, None], "number": "{run}"}
    payload, options = msgspec.msgpack.encode(value), Options(codec="msgpack")
    client, when = world.client, world.now + MINUTE
    client.put_schedule(
        "q", 'a "{slot}"', at=when, payload=payload, options=options, template=True, zone="Asia/Kathmandu"
    )
    world.advance(MINUTE)
    found = msgspec.msgpack.decode(start(client).payload)
    assert found == {"when": "at 2023-11-15T03:59:20+05:45", "of": ['a "{slot}"', 7, None], "number": "1"}


def test_a_name_is_safe_inside_json(world: ContractWorld):
    world.client.put_schedule(
        "q", 'a"\\b', every_ms=MINUTE, payload=b'["{schedule}","{run}"]', options=Options(codec="json"), template=True
    )
    world.advance(2 * MINUTE)
    found = [msgspec.json.decode(job.payload) for job in all_jobs(world.client)]
    assert found == [['a"\\b', "1"], ['a"\\b', "2"]]


def test_a_key_that_is_taken_makes_a_slot_a_duplicate(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=10 * SECOND, options=Options(unique_key="k"))
    holder = push(client, unique_key="k")
    world.advance(10 * SECOND)
    (run,) = client.get_schedule("q", "s").last_runs
    assert (run.outcome, run.job, run.reason) == ("duplicate", holder, "unique_key")
    client.put_schedule("q", "s", every_ms=10 * SECOND, options=Options(unique_key="k", on_conflict="replace"))
    world.advance(10 * SECOND)
    assert client.get_job(holder).state is State.CANCELLED
    assert outcomes(client) == ["duplicate", "pushed"]


# --- overlap ---------------------------------------------------------------------------------------


def test_allow_pushes_whatever_is_still_there(world: ContractWorld):
    world.client.put_schedule("q", "s", every_ms=10 * SECOND)
    world.advance(30 * SECOND)
    assert len(pulled(world.client)) == 3


@pytest.mark.parametrize("state", ["waiting", "active", "retrying"])
def test_skip_pushes_nothing_while_a_job_is_live(world: ContractWorld, state: str):
    client = world.client
    client.put_schedule("q", "s", every_ms=10 * SECOND, overlap="skip", options=Options(lease_ms=HOUR))
    world.advance(10 * SECOND)
    if state != "waiting":
        job = start(client)
        if state == "retrying":
            client.fail(job.id, job.token, delay_ms=HOUR)
    world.advance(20 * SECOND)
    (first,) = all_jobs(client)
    runs = client.get_schedule("q", "s").last_runs
    assert [(run.outcome, run.job) for run in runs] == [
        ("pushed", first.id),
        ("skipped", first.id),
        ("skipped", first.id),
    ]
    client.cancel(first.id)
    if state == "active":
        client.ack(first.id)
    world.advance(10 * SECOND)
    assert outcomes(client)[-1] == "pushed"


def test_queue_lets_one_job_wait_for_the_end_of_the_other(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=10 * SECOND, overlap="queue", options=Options(lease_ms=HOUR))
    world.advance(10 * SECOND)
    first = start(client)
    world.advance(30 * SECOND)
    _, second = all_jobs(client)
    assert (second.state, second.blocked_by) == (State.BLOCKED, (first.id,))
    assert outcomes(client) == ["pushed", "pushed", "skipped", "skipped"]
    assert pulled(client) == []
    client.fail(first.id, first.token, retry=False)
    assert pulled(client) == [second.id], "however the first has ended"
    world.advance(10 * SECOND)
    assert all_jobs(client)[-1].blocked_by == (second.id,)


# --- no worker is there ----------------------------------------------------------------------------


def test_a_slot_is_skipped_when_no_worker_is_there(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=10 * MINUTE, skip_if_no_worker=True)
    push(client)
    world.advance(10 * MINUTE)
    view = client.get_schedule("q", "s")
    assert [(run.outcome, run.reason, run.job) for run in view.last_runs] == [("skipped", "no_worker", 0)]
    assert (view.schedule.skip_if_no_worker, view.runs) == (True, 0)
    assert [event.reason for event in all_events(client) if event.kind == "slot_passed"] == ["no_worker"]


def test_a_waiting_pull_is_a_worker(world: ContractWorld):
    world.client.put_schedule("q", "s", every_ms=MINUTE, skip_if_no_worker=True, payload=b"now")
    (job,) = world.client.pull("q", wait_ms=2 * MINUTE)
    assert job.payload == b"now"


def test_a_running_job_is_a_worker(world: ContractWorld):
    client = world.client
    push(client, lease_ms=HOUR)
    start(client)
    client.put_schedule("q", "s", every_ms=10 * MINUTE, skip_if_no_worker=True)
    world.advance(10 * MINUTE)
    assert outcomes(client) == ["pushed"]


def test_run_now_pushes_without_a_worker(world: ContractWorld):
    world.client.put_schedule("q", "s", every_ms=HOUR, skip_if_no_worker=True)
    assert world.client.run_schedule("q", "s").created
    assert outcomes(world.client) == ["pushed"]


# --- nobody was there ------------------------------------------------------------------------------


def missed(world: ContractWorld, **how: Any) -> tuple[int, list[int], list[str]]:
    """A slot every ten minutes, and nobody there from minute 5 to 55: made when, pushed slots, outcomes."""
    made = world.now
    world.client.put_schedule("q", "s", every_ms=10 * MINUTE, **how)
    world.advance(5 * MINUTE)
    world.advance(50 * MINUTE)
    return made, slots_of(world.client), outcomes(world.client)


def test_once_pushes_the_latest_slot_that_was_missed(world: ContractWorld):
    made, slots, found = missed(world)
    assert (slots, found) == ([made + 50 * MINUTE], ["missed", "pushed"])
    (gap, run) = world.client.get_schedule("q", "s").last_runs
    assert (gap.slot, gap.until) == (made + 10 * MINUTE, made + 40 * MINUTE)
    assert run.at == made + 50 * MINUTE


def test_skip_pushes_none_that_was_missed(world: ContractWorld):
    made, slots, found = missed(world, misfire="skip")
    assert (slots, found) == ([], ["missed"])
    world.advance(5 * MINUTE)
    assert slots_of(world.client) == [made + 60 * MINUTE]


def test_skip_pushes_what_is_only_late(world: ContractWorld):
    made, slots, found = missed(world, misfire="skip", grace_ms=5 * MINUTE)
    assert (slots, found) == ([made + 50 * MINUTE], ["missed", "pushed"])


def test_all_pushes_as_many_as_it_may(world: ContractWorld):
    made, slots, found = missed(world, misfire="all", misfires_max=3)
    assert slots == [made + n * 10 * MINUTE for n in (3, 4, 5)]
    assert found == ["missed", "pushed", "pushed", "pushed"]


def test_all_pushes_all_if_there_are_not_too_many(world: ContractWorld):
    made, slots, found = missed(world, misfire="all")
    assert slots == [made + n * 10 * MINUTE for n in (1, 2, 3, 4, 5)]
    assert found == ["pushed"] * 5


def test_what_comes_within_the_grace_was_not_missed(world: ContractWorld):
    made, slots, _ = missed(world, misfire="skip", grace_ms=45 * MINUTE)
    assert slots == [made + n * 10 * MINUTE for n in (1, 2, 3, 4, 5)]


def test_missed_slots_keep_to_the_overlap_policy(world: ContractWorld):
    made, slots, found = missed(world, misfire="all", overlap="skip")
    assert slots == [made + 10 * MINUTE]
    assert found == ["pushed", "skipped", "skipped", "skipped", "skipped"]


def test_a_missed_cron_slot_after_days(world: ContractWorld):
    world.client.put_schedule("q", "s", cron="0 2 * * *", zone="America/New_York")
    first = world.client.get_schedule("q", "s").next_runs[0]
    world.advance(first - world.now + 5 * DAY + HOUR)
    assert slots_of(world.client) == [first + 5 * DAY]
    assert world.client.get_schedule("q", "s").next_runs[0] == first + 6 * DAY


def test_a_single_time_that_was_missed(make_world: MakeWorld):
    for misfire, expected in (("skip", 0), ("once", 1), ("all", 1)):
        world = make_world()
        world.client.put_schedule("q", "s", at=world.now + MINUTE, misfire=misfire)
        world.advance(DAY)
        assert len(slots_of(world.client)) == expected
        assert world.client.get_schedule("q", "s").state == "over"


# --- changing --------------------------------------------------------------------------------------


def test_saying_the_same_again_changes_nothing(world: ContractWorld):
    first = world.client.put_schedule("q", "s", every_ms=MINUTE, payload=b"x")
    world.advance(30 * SECOND)
    events = all_events(world.client)
    assert world.client.put_schedule("q", "s", every_ms=MINUTE, payload=b"x") == first
    assert all_events(world.client) == events


def test_another_payload_keeps_the_slots(world: ContractWorld):
    client, made = world.client, world.now
    client.put_schedule("q", "s", every_ms=MINUTE, payload=b"old")
    world.advance(90 * SECOND)
    view = client.put_schedule("q", "s", every_ms=MINUTE, payload=b"new")
    assert (view.runs, view.next_runs[0], view.created_at, view.changed_at) == (1, made + 2 * MINUTE, made, world.now)
    world.advance(30 * SECOND)
    assert [job.payload for job in all_jobs(client)] == [b"old", b"new"]


def test_another_rule_starts_anew(world: ContractWorld):
    client, made = world.client, world.now
    client.put_schedule("q", "s", every_ms=MINUTE)
    world.advance(90 * SECOND)
    view = client.put_schedule("q", "s", every_ms=10 * MINUTE)
    assert (view.runs, view.next_runs[0], len(view.last_runs)) == (0, world.now + 10 * MINUTE, 1)
    world.advance(HOUR)
    assert slots_of(client)[0] == made + MINUTE
    assert client.get_schedule("q", "s").runs == 1


def test_a_slot_is_never_pushed_twice_however_often_it_is_put(world: ContractWorld):
    client, when = world.client, world.now
    for payload in (b"1", b"2", b"3"):
        client.put_schedule("q", "s", at=when, payload=payload, overlap="skip")
        world.advance(SECOND)
    assert slots_of(client) == [when]


def test_a_paused_schedule_pushes_nothing_and_makes_up_for_nothing(world: ContractWorld):
    client, made = world.client, world.now
    client.put_schedule("q", "s", every_ms=MINUTE, misfire="all")
    world.advance(MINUTE)
    assert client.pause_schedule("q", "s").state == "paused"
    assert client.pause_schedule("q", "s").next_runs == client.get_schedule("q", "s").next_runs
    world.advance(10 * MINUTE + 1)
    assert slots_of(client) == [made + MINUTE]
    view = client.resume_schedule("q", "s")
    assert (view.state, view.next_runs[0]) == ("active", made + 12 * MINUTE)
    client.resume_schedule("q", "s")
    world.advance(MINUTE)
    assert slots_of(client) == [made + MINUTE, made + 12 * MINUTE]


def test_a_short_pause_costs_no_slot(world: ContractWorld):
    client, made = world.client, world.now
    client.put_schedule("q", "s", every_ms=MINUTE)
    client.pause_schedule("q", "s")
    world.advance(MINUTE - 1)
    client.resume_schedule("q", "s")
    world.advance(1)
    assert slots_of(client) == [made + MINUTE]


def test_a_paused_schedule_stays_paused_when_it_is_put_again(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=MINUTE)
    client.pause_schedule("q", "s")
    assert client.put_schedule("q", "s", every_ms=10 * SECOND).state == "paused"
    world.advance(HOUR)
    assert slots_of(client) == []


@pytest.mark.parametrize("state", ["active", "paused", "over"])
def test_run_now_pushes_a_job_and_leaves_the_slots_alone(world: ContractWorld, state: str):
    client = world.client
    client.put_schedule("q", "s", every_ms=MINUTE, runs_max=1 if state == "over" else 0)
    world.advance(90 * SECOND)
    if state == "paused":
        client.pause_schedule("q", "s")
    before = client.get_schedule("q", "s")
    pushed = client.run_schedule("q", "s")
    view = client.get_schedule("q", "s")
    assert (pushed.created, client.get_job(pushed.id).options.slot) == (True, world.now)
    assert (view.state, view.runs, view.next_runs) == (before.state, before.runs, before.next_runs)
    assert (view.last_runs[-1].job, view.last_runs[-1].manual) == (pushed.id, True)


def test_run_now_keeps_to_the_overlap_policy(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=HOUR, overlap="skip")
    first = client.run_schedule("q", "s").id
    refused = check_refused(world, WrongState, c.RunSchedule("q", "s"))
    assert str(first) in refused.message
    client.put_schedule("q", "s", every_ms=HOUR, overlap="queue")
    assert client.get_job(client.run_schedule("q", "s").id).blocked_by == (first,)
    check_refused(world, WrongState, c.RunSchedule("q", "s"))


def test_a_deleted_schedule_leaves_its_jobs(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=MINUTE)
    world.advance(MINUTE)
    assert (client.delete_schedule("q", "s"), client.delete_schedule("q", "s")) == (1, 0)
    world.advance(HOUR)
    assert len(pulled(client)) == 1
    for command in (
        c.GetSchedule("q", "s"),
        c.PauseSchedule("q", "s"),
        c.ResumeSchedule("q", "s"),
        c.RunSchedule("q", "s"),
    ):
        check_refused(world, NotFound, command)


def test_obliterating_a_queue_takes_its_schedules_along(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=MINUTE)
    client.put_schedule("other", "s", every_ms=MINUTE)
    client.obliterate("q")
    world.advance(MINUTE)
    assert [view.queue for view in client.list_schedules().schedules] == ["other"]
    assert client.list_queues() == ["other"]


# --- looking ---------------------------------------------------------------------------------------


def test_the_next_five_slots_and_the_last_twenty_outcomes(world: ContractWorld):
    client, made = world.client, world.now
    client.put_schedule("q", "s", every_ms=SECOND)
    world.advance(30 * SECOND)
    view = client.get_schedule("q", "s")
    assert list(view.next_runs) == [made + n * SECOND for n in range(31, 36)]
    assert [run.slot for run in view.last_runs] == [made + n * SECOND for n in range(11, 31)]


def test_outcomes_tell_what_became_of_the_jobs(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=10 * SECOND)
    world.advance(30 * SECOND)
    done, dead, _ = pulled(client)
    client.ack(done)
    client.fail(dead, retry=False)
    assert [run.state for run in client.get_schedule("q", "s").last_runs] == [
        State.COMPLETED,
        State.FAILED,
        State.ACTIVE,
    ]


def pages(client: Client, limit: int, **filters: Any) -> list[ScheduleView]:
    found: list[ScheduleView] = []
    after = None
    while True:
        page = client.list_schedules(after=after, limit=limit, **filters)
        assert len(page.schedules) <= limit
        found += page.schedules
        if page.next_after is None:
            return found
        after = page.next_after


def names(views: Sequence[ScheduleView]) -> list[tuple[str, str]]:
    return [(view.queue, view.name) for view in views]


@pytest.mark.parametrize("shards", [1, 4])
def test_schedules_are_listed_in_the_order_of_queues_and_names(make_world: MakeWorld, shards: int):
    world = make_world(shards=shards)
    wanted = [(queue, name) for queue in ("a", "a-b", "b") for name in ("x", "y/z", "ä")]
    for queue, name in reversed(wanted):
        world.client.put_schedule(queue, name, every_ms=MINUTE)
    world.client_for("other").put_schedule("a", "theirs", every_ms=MINUTE)
    for limit in (1, 2, 4, 9, 100):
        assert names(pages(world.client, limit)) == wanted
    assert names(pages(world.client, 2, queue="a-b")) == wanted[3:6]
    assert names(pages(world.client, 2, name="y/z")) == wanted[1::3]
    assert names(pages(world.client, 2, queue="b", name="ä")) == [("b", "ä")]
    assert pages(world.client, 2, queue="none") == []
    assert all(len(view.next_runs) == 1 and not view.last_runs for view in pages(world.client, 5))


def test_schedules_of_all_shards_come_at_their_time(make_world: MakeWorld):
    world = make_world(shards=4)
    queues = [f"q{n}" for n in range(8)]
    for queue in queues:
        world.client.put_schedule(queue, "s", every_ms=MINUTE)
    world.advance(2 * MINUTE)
    assert [len(slots_of(world.client, queue)) for queue in queues] == [2] * 8


def test_tenants_have_schedules_of_their_own(world: ContractWorld):
    mine, theirs = world.client, world.client_for("other")
    mine.put_schedule("q", "s", every_ms=MINUTE)
    theirs.put_schedule("q", "s", every_ms=HOUR)
    check_refused(world, NotFound, c.GetSchedule("q", "s"), "third")
    assert theirs.delete_schedule("q", "s") == 1
    world.advance(MINUTE)
    assert (len(all_jobs(mine)), len(all_jobs(theirs))) == (1, 0)


def test_events_tell_of_schedules(world: ContractWorld):
    client, made = world.client, world.now
    client.put_schedule("q", "s", every_ms=MINUTE, overlap="skip")
    world.advance(2 * MINUTE)
    job = start(client)
    client.ack(job.id, job.token)
    client.pause_schedule("q", "s")
    client.resume_schedule("q", "s")
    client.delete_schedule("q", "s")
    found = [(str(event.kind), event.schedule, event.reason, event.due) for event in all_events(client)]
    assert found == [
        ("schedule_changed", "s", "put", 0),
        ("pushed", "s", "", 0),
        ("slot_passed", "s", "overlap", made + 2 * MINUTE),
        ("started", "s", "", 0),
        ("completed", "s", "", 0),
        ("schedule_changed", "s", "paused", 0),
        ("schedule_changed", "s", "resumed", 0),
        ("schedule_changed", "s", "deleted", 0),
    ]


def test_the_story_of_a_scheduled_job_begins_with_its_push(world: ContractWorld):
    world.client.put_schedule("q", "s", every_ms=MINUTE)
    world.advance(MINUTE)
    job = start(world.client)
    world.client.ack(job.id, job.token)
    told = world.client.execute(c.GetStory(job.id))
    assert ([str(event.kind) for event in told.events], told.complete) == (["pushed", "started", "completed"], True)


# --- bounds ----------------------------------------------------------------------------------------

EVERY: dict[str, Any] = {"every_ms": MINUTE}


BAD_SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("cron", {}),
    ("cron", {"cron": "* * * * *", "every_ms": MINUTE}),
    ("cron", {"cron": "61 * * * *"}),
    ("cron", {"cron": "* * * *"}),
    ("cron", {"cron": "0 0 30 2 *"}),
    ("cron", {"cron": ""}),
    ("cron", {"cron": 5}),
    ("zone", {"cron": "@daily", "zone": "Europe/Atlantis"}),
    ("zone", {"cron": "@daily", "zone": ""}),
    ("zone", {**EVERY, "zone": "../UTC"}),
    ("every_ms", {"every_ms": -1}),
    ("every_ms", {"every_ms": DURATION_MS_MAX + 1}),
    ("every_ms", {"every_ms": 1.5}),
    ("at", {"at": 5}),
    ("at", {"at": -1}),
    ("at", {"at": 2**60}),
    ("start_at", {"at": 10**13, "start_at": 5}),
    ("end_at", {**EVERY, "start_at": 10**13, "end_at": 10**13}),
    ("end_at", {**EVERY, "start_at": 10**13, "end_at": 10**12}),
    ("end_at", {**EVERY, "end_at": 5}),
    ("end_at", {"cron": "@yearly", "end_at": 1_700_000_000_001}),
    ("runs_max", {**EVERY, "runs_max": -1}),
    ("overlap", {**EVERY, "overlap": "fight"}),
    ("misfire", {**EVERY, "misfire": "shrug"}),
    ("misfires_max", {**EVERY, "misfires_max": 0}),
    ("grace_ms", {**EVERY, "grace_ms": -1}),
    ("jitter_ms", {**EVERY, "jitter_ms": -1}),
    ("jitter_ms", {**EVERY, "jitter_ms": MINUTE}),
    ("payload", {**EVERY, "payload": "text"}),
    ("payload", {**EVERY, "payload": b"{", "options": Options(codec="json"), "template": True}),
    ("payload", {**EVERY, "payload": b"\xc1", "options": Options(codec="msgpack"), "template": True}),
    ("template", {**EVERY, "template": 1}),
    ("skip_if_no_worker", {**EVERY, "skip_if_no_worker": 1}),
    ("delay_ms", {**EVERY, "options": Options(delay_ms=-1)}),
    ("depends_on", {**EVERY, "options": Options(depends_on=(Dependency(64),))}),
    ("run_at", {**EVERY, "options": Options(run_at=10**13)}),
    ("schedule", {**EVERY, "options": Options(schedule="x")}),
    ("slot", {**EVERY, "options": Options(slot=5)}),
]


def test_a_bad_schedule_is_refused_whole_and_its_field_is_named(world: ContractWorld):
    client = world.client
    client.put_schedule("q", "s", every_ms=HOUR)
    before = picture(client)
    for field, fields in BAD_SCHEDULES:
        for queue in ("q", "new"):
            with pytest.raises(InvalidRequest, match=field):
                client.execute(c.PutSchedule(queue, "s", Schedule(**fields)))
    assert picture(client) == before


MALFORMED: list[c.Command[Any]] = [
    c.PutSchedule("no queue!", "s", Schedule(every_ms=MINUTE)),
    c.PutSchedule("q", "", Schedule(every_ms=MINUTE)),
    c.PutSchedule("q", "a\nb", Schedule(every_ms=MINUTE)),
    c.PutSchedule("q", "s", None),  # type: ignore[arg-type]
    c.GetSchedule("q", ""),
    c.PauseSchedule("", "s"),
    c.ResumeSchedule("q", 5),  # type: ignore[arg-type]
    c.RunSchedule("q", "\ud800"),
    c.DeleteSchedule("q", ""),
    c.DeleteSchedule("no queue!", "s"),
    c.ListSchedules("no queue!"),
    c.ListSchedules(name=""),
    c.ListSchedules(after="nothing"),
    c.ListSchedules(limit=0),
]


def test_what_is_malformed_is_refused(world: ContractWorld):
    before = picture(world.client)
    for command in MALFORMED:
        with pytest.raises(InvalidRequest):
            world.client.execute(command)
    assert picture(world.client) == before


@pytest.mark.parametrize(
    ("limits", "fits", "over"),
    [
        (Limits(schedule_interval_ms_min=5_000), Schedule(every_ms=5_000), Schedule(every_ms=4_999)),
        (Limits(schedule_payload_bytes_max=3), Schedule(**EVERY, payload=b"123"), Schedule(**EVERY, payload=b"1234")),
        (Limits(payload_bytes_max=3), Schedule(**EVERY, payload=b"123"), Schedule(**EVERY, payload=b"1234")),
        (Limits(schedule_cron_chars_max=9), Schedule(cron="* * * * *"), Schedule(cron="*  * * * *")),
        (Limits(schedule_catch_up_max=9), Schedule(**EVERY, misfires_max=9), Schedule(**EVERY, misfires_max=10)),
        (Limits(), Schedule(**EVERY, grace_ms=1_000 * MINUTE), Schedule(**EVERY, grace_ms=1_000 * MINUTE + 1)),
        (Limits(), Schedule(cron="* * * * * *"), Schedule(cron="* * * * * *", grace_ms=1_001_000)),
    ],
    ids=["interval", "payload", "any payload", "cron", "misfires", "grace", "grace of cron"],
)
def test_limits_hold(make_world: MakeWorld, limits: Limits, fits: Schedule, over: Schedule):
    world = make_world(limits=limits)
    if limits.schedule_catch_up_max == 9:
        fits, over = (msgspec.structs.replace(one, grace_ms=0) for one in (fits, over))
    world.client.put_schedule("q", "s", fits)
    check_refused(world, LimitExceeded, c.PutSchedule("q", "t", over))


def test_a_tenant_has_so_many_schedules_and_no_more(make_world: MakeWorld):
    world = make_world(limits=Limits(schedules_per_tenant_max=2))
    world.client.put_schedule("a", "s", every_ms=MINUTE)
    world.client.put_schedule("b", "s", every_ms=MINUTE)
    world.client.put_schedule("b", "s", every_ms=HOUR)
    world.client_for("other").put_schedule("a", "s", every_ms=MINUTE)
    check_refused(world, LimitExceeded, c.PutSchedule("c", "s", Schedule(every_ms=MINUTE)))
    world.client.delete_schedule("a", "s")
    world.client.put_schedule("c", "s", every_ms=MINUTE)
    world.client.obliterate("c")
    world.client.put_schedule("d", "s", every_ms=MINUTE)


def test_a_page_is_bounded_in_bytes(make_world: MakeWorld):
    world = make_world(limits=Limits(reply_bytes_max=1_000))
    for n in range(5):
        world.client.put_schedule("q", f"s{n}", every_ms=MINUTE, payload=b"x" * 600)
    page = world.client.list_schedules()
    assert (len(page.schedules), page.next_after) == (2, "q/s1")
    assert len(pages(world.client, 100)) == 5
