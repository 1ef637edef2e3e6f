"""FastQ: where its architecture page contradicts itself or its code."""

import pytest

from stoker.client.sync import Client
from stoker.model.commands import Push, Sending
from stoker.model.errors import Forbidden, InvalidRequest, QuotaExceeded
from stoker.model.limits import DEFAULT_LIMITS
from stoker.model.options import Backoff, Dependency, Options, Retention, Settings
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.gate import Gate
from stoker.server.auth.quotas import QuotaKeeper, Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.testing import World
from tests.contradictions.support import STEADY, pulled, push, start
from tests.model.driver import Driver
from tests.redis import key_table
from tests.redis.backing import InRedis
from tests.redis.twins import Twins, is_offered, without_waiting

ONLY_WHILE_CALLS_WAIT = {"waits", "done:ID", "tick"}


def test_q1_a_dependent_is_unlocked_once_and_only_once(world: World):
    """Decrement, read, push and delete were four steps: lost by a crash, doubled by a retry."""
    client = world.client
    first, second = push(client, "first"), push(client, "first")
    behind = push(client, depends_on=(Dependency(first), Dependency(second)))
    token = client.pull("first", 2).token
    for _ in range(3):  # the same ack, sent again
        client.ack_batch([first], token)
    assert client.get_state(behind) is State.BLOCKED
    client.ack_batch([second, second], token)
    assert [str(event.kind) for event in client.read_events().events if event.job == behind] == ["pushed", "unblocked"]
    assert pulled(client) == [behind]


def test_q2_a_job_whose_worker_dies_right_after_the_pull_comes_back(world: World):
    """Popped and only then marked: a crash in between lost it, for recovery looked at marked ones only."""
    job = push(world.client, backoff=STEADY)
    world.client.pull("q")
    world.advance(31_000)
    assert pulled(world.client) == [job]


def test_q3_everything_that_was_pushed_can_be_read(world: World):
    """Eleven fields by the page; a blob and a status by the code."""
    options = Options(priority=4, tags=("a",), group_id="g", max_attempts=9, lease_ms=5_000, trace="00-t")
    job = world.client.push("q", b"payload", options).id
    view = world.client.get_job(job)
    assert (view.queue, view.payload, view.options, view.pushed_at) == ("q", b"payload", options, world.now)
    delivered = start(world.client, worker="w")
    view = world.client.get_job(job)
    assert (view.worker, view.started_at, view.lease_until) == ("w", world.now, delivered.lease_until)


def test_q4_keys_in_redis_have_the_names_that_the_page_gives_them():
    """The page named one key of the scheduler, the code used two others."""
    twins, driver = Twins(), Driver(4)
    found, named = set[str](), key_table.patterns()
    for number in range(600):
        passed, tenant, command = driver.draw()
        twins.advance(passed)
        if is_offered(command):
            driver.learn(tenant, command, twins.execute(tenant, without_waiting(command)))
        if number % 20 == 0:
            found |= keys_in(twins.redis)
    twins.close()
    found |= keys_of_the_rare_ones()
    assert sorted(key for key in found if not any(pattern.match(key) for pattern in named.values())) == []
    seen = {name for name, pattern in named.items() if any(pattern.match(key) for key in found)}
    assert sorted(named.keys() - seen - ONLY_WHILE_CALLS_WAIT) == []


def keys_in(world: InRedis) -> set[str]:
    redis = world.server.client()
    keys = [key.decode() for key in redis.scan_iter(f"{world.prefix}:*", 1_000)]
    redis.close()
    return {key.partition("/0}:")[2] for key in keys}


def keys_of_the_rare_ones() -> set[str]:
    """Workflows, numbered pushes, jobs that keep others of their kind, and a loss."""
    world = InRedis("redis", Settings(), DEFAULT_LIMITS)
    client = Client(world.broker)
    client.execute(Push("q", b"", Options(keep_completed_count=10), sending=Sending("s", 1, 1)))
    options = Options(keep_completed_count=0)
    client.push_workflow([Step("q", [b"1"], options), Step("later", [b"2"], after=[Edge(0)])])
    client.push_workflow([Step("q", [b"3"])])
    delivery = client.pull("q", 10)
    client.ack_batch(list(delivery.ids), delivery.token, [b"result"] * 3)
    found = keys_in(world)
    redis = world.server.client()
    redis.flushall()
    redis.close()
    client.push("q", b"")
    found |= keys_in(world)
    world.close()
    return found


def test_q5_a_job_that_waits_for_its_time_or_its_retry_is_delayed(world: World):
    """There was no such state: it was called failed, or queued."""
    later, retried = push(world.client, delay_ms=1_000), push(world.client, priority=1)
    world.client.fail(start(world.client).id)
    for job in (later, retried):
        view = world.client.get_job(job)
        assert view.state is State.DELAYED
        assert view.due > world.now


def test_q6_a_due_job_keeps_its_priority_and_is_there_once(world: World):
    """It always went to the list of normal priority, pushed there before it was removed here."""
    high, normal = push(world.client, priority=3, delay_ms=100), push(world.client)
    low = push(world.client, priority=-3, delay_ms=100)
    world.advance(100)
    assert pulled(world.client) == [high, normal, low]
    assert pulled(world.client) == []


def test_q6_a_promoted_job_keeps_its_priority(world: World):
    """Promoting by hand took the same way."""
    high = push(world.client, priority=3, delay_ms=100)
    normal = push(world.client)
    world.client.promote(high)
    assert pulled(world.client) == [high, normal]


def test_q7_five_attempts_are_five_executions(world: World):
    """`Max retries 5` could be read as six."""
    push(world.client, max_attempts=5, backoff=Backoff(base_ms=0))
    executions = 0
    while jobs := pulled(world.client):
        executions += 1
        world.client.fail(jobs[0])
    assert executions == 5


def test_q8_statistics_are_filled_and_what_is_done_does_not_pile_up():
    """`processing` was never filled, and the list of done jobs grew without bound."""
    with World(Settings(retention=Retention(completed_count=50))) as world:
        ids = list(world.client.push_batch("q", [b""] * 500).ids)
        pulled(world.client, count=500)
        assert world.client.get_counts("q").active == 500
        world.client.ack_batch(ids)
        stats = world.client.get_stats("q")
        assert (stats.counts.active, stats.counts.completed, stats.totals.completed) == (0, 50, 500)


def test_q9_a_job_may_have_any_number_of_jobs_behind_it(world: World):
    """One child a job, under a key that chains and workflows overwrote each other."""
    first = push(world.client, "first")
    behind = [push(world.client, depends_on=(Dependency(first),)) for _ in range(10)]
    chained = push(world.client, depends_on=(Dependency(behind[0]),))
    world.client.ack(start(world.client, "first").id)
    assert pulled(world.client) == behind
    world.client.ack(behind[0])
    assert pulled(world.client) == [chained]


def test_q9_chains_and_workflows_leave_each_other_alone(world: World):
    """The second of them under one key overwrote the first, and its jobs never started."""
    client = world.client
    steps = [Step("q", [b"1"]), Step("q", [b"2"], after=[Edge(0)]), Step("q", [b"3"], after=[Edge(1)])]
    workflows = [client.push_workflow(steps, name="same") for _ in range(3)]
    behind = push(client, depends_on=(Dependency(workflows[0].ids(2)[0]),))
    for step in range(3):
        ids = [workflow.ids(step)[0] for workflow in workflows]
        assert pulled(client) == ids
        client.ack_batch(ids)
    assert pulled(client) == [behind]
    assert {client.get_workflow(workflow.id).state for workflow in workflows} == {"completed"}


def test_q10_only_what_was_lost_comes_back_and_with_its_attempts(world: World):
    """Recovery queued everything that was being processed, of all queues, as it had been pushed."""
    client = world.client
    lost = push(client, lease_ms=1_000, backoff=STEADY)
    client.fail(start(client).id, delay_ms=0)
    client.update_payload(lost, b"mended")
    assert start(client).attempt == 2
    held, elsewhere = push(client), push(client, "other")
    assert pulled(client, ["q", "other"]) == [held, elsewhere]
    world.advance(3_000)
    (again,) = client.pull(["q", "other"], 10)
    assert (again.id, again.attempt, again.payload) == (lost, 3, b"mended")
    assert client.get_state(held) is client.get_state(elsewhere) is State.ACTIVE


def test_q11_cron_steps_seconds_zones_and_missed_runs_mean_what_they_say(world: World):
    """`N/step` was N alone, a sixth field was ignored, each instance fired, missed runs were lost, zones unknown."""
    client, start = world.client, world.now  # 22:13:20 in UTC
    steps = client.put_schedule("q", "steps", cron="20/15 * * * *").next_runs
    assert [slot // 60_000 % 60 for slot in steps] == [20, 35, 50, 20, 35]
    seconds = client.put_schedule("q", "seconds", cron="30 14 22 * * *").next_runs
    assert seconds[0] == start + 70_000
    with pytest.raises(InvalidRequest, match="cron"):
        client.put_schedule("q", "seven", cron="* * * * * * *")
    noon, earlier = (client.put_schedule("q", zone, cron="0 12 * * *", zone=zone) for zone in ("UTC", "Asia/Tokyo"))
    assert noon.next_runs[0] - earlier.next_runs[0] == 9 * 3_600_000
    for name in ("steps", "seconds", "UTC", "Asia/Tokyo"):
        client.delete_schedule("q", name)
    client.put_schedule("q", "missed", every_ms=600_000)
    world.advance("1h")
    assert [run.outcome for run in client.get_schedule("q", "missed").last_runs] == ["missed", "pushed"]
    world.advance("10m")
    assert len(pulled(client)) == 2, "one of each slot, whoever looks at the clock"


def test_q12_every_job_of_a_batch_costs_a_token_and_tokens_come_by_the_millisecond(world: World):
    """One token a batch, and a refill once a second."""
    client = world.client
    client.set_rate_limit("q", 10, 1_000)
    for _ in range(30):
        push(client)
    assert len(pulled(client, count=30)) == 10
    world.advance(100)
    assert len(pulled(client, count=30)) == 1


def test_q12_every_job_of_a_batch_has_its_own_outcome(world: World):
    """A batch handler was all or nothing."""
    client = world.client
    ids = list(client.push_batch("q", [b""] * 3).ids)
    token = client.pull("q", 3).token
    client.ack(ids[0], token)
    client.fail(ids[1], token, retry=False)
    client.release(ids[2], token)
    assert [client.get_state(job) for job in ids] == [State.COMPLETED, State.FAILED, State.WAITING]


class _HalfFull:
    """Two queues, ten waiting jobs."""

    def queue_names(self, tenant: str) -> set[str]:
        return {"a", "b"}

    def waiting_jobs(self, tenant: str) -> int:
        return 10

    def payload_bytes(self, tenant: str) -> int:
        return 1_000

    def admitted(self, tenant: str, queue: str | None, jobs: int, bytes: int) -> None:
        """What it uses does not change."""


def test_q13_an_entitlement_is_the_operators_alone_ends_and_decides_something():
    """A licence could be signed by whoever could check it, lasted for ever, and opened or closed nothing."""
    secret, now = "only the server and its operator have it", 1_000_000
    gate = Gate(AuthSettings(tokens=("t",), entitlement_secrets=(secret,)), clock=lambda: now)
    identity = gate.identify("t", loopback=False)
    granted = Entitlement(tenant="default", quotas=Quotas(queues=2, waiting_jobs=20), expires_at=now + 60)
    with pytest.raises(Forbidden, match="not signed by this server's operator"):
        gate.entitle(identity, sign(granted, "a secret that the client made up itself"))
    with pytest.raises(Forbidden, match="expired"):
        gate.entitle(identity, sign(Entitlement(tenant="default", quotas=Quotas(), expires_at=now), secret))
    entitled, keeper = gate.entitle(identity, sign(granted, secret)), QuotaKeeper()
    keeper.check_push("default", gate.quotas(entitled, "default", now), "a", 10, 0, _HalfFull())
    for queue, jobs in (("c", 1), ("a", 11)):
        with pytest.raises(QuotaExceeded):
            keeper.check_push("default", gate.quotas(entitled, "default", now), queue, jobs, 0, _HalfFull())
    assert gate.quotas(entitled, "default", now + 60) is None


def test_q14_a_higher_number_is_a_higher_priority(world: World):
    """1 was the highest, against all the others."""
    one, three = push(world.client, priority=1), push(world.client, priority=3)
    assert pulled(world.client) == [three, one]


def test_q15_ids_are_counted_not_read_off_a_clock():
    """Milliseconds since the start of the machine: the same on two machines, and again after a restart."""
    for step in (0, 1, 86_400_000):
        with World() as world:
            ids = []
            for _ in range(100):
                ids.append(push(world.client))
                world.advance(step)
            assert ids == [number << 6 for number in range(1, 101)]
