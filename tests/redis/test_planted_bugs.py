"""What scripts promise, each in a small story; and bugs planted into the Lua, each of which makes its story fail."""

from collections.abc import Callable, Iterator

import pytest

from stoker.brokers.redis import scripts
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import Damaged, LimitExceeded
from stoker.model.limits import Limits
from stoker.model.options import Dependency, Options, Settings
from stoker.model.schedules import Schedule
from stoker.model.workflows import Edge, Step
from tests.redis.audit import audit
from tests.redis.backing import InRedis

Story = Callable[[InRedis, Client], None]
LIMITS = Limits(queues_per_tenant_max=2)


@pytest.fixture
def world() -> Iterator[InRedis]:
    made = InRedis("redis", Settings(), LIMITS)
    yield made
    made.close()


def an_old_token_settles_nothing(world: InRedis, client: Client) -> None:
    job = client.push("q", b"").id
    old = client.pull("q").token
    client.release(job, old)
    client.pull("q")
    assert client.execute(c.Ack([job], old)).refused == {job: "lost_lease"}


def numbers_beyond_a_hundred_trillion_are_exact(world: InRedis, client: Client) -> None:
    most = 2**53 - 1
    jobs = [client.push("q", b"", priority=most - step).id for step in range(3)]
    late = client.push("q", b"", priority=-most).id
    later = client.push("q", b"", run_at=10**14 + 1).id
    delivery = client.pull("q", 4)
    assert list(delivery.ids) == [*jobs, late]
    assert delivery.token > 10**14
    assert client.execute(c.Ack(list(delivery.ids), delivery.token)).count == 4
    assert client.get_job(later).due == 10**14 + 1


def a_delayed_job_that_is_cancelled_leaves_no_deadline(world: InRedis, client: Client) -> None:
    client.cancel(client.push("q", b"", delay_ms=1_000).id)
    audit(world, "default")


def counters_follow_the_jobs(world: InRedis, client: Client) -> None:
    client.push("q", b"abc")
    client.ack(client.pull("q").ids[0])
    audit(world, "default")


def the_oldest_job_of_a_group_comes_first(world: InRedis, client: Client) -> None:
    first = client.push("q", b"", group_id="g").id
    client.push("q", b"", group_id="g")
    assert list(client.pull("q", 2).ids) == [first]


def a_job_that_is_left_puts_the_marker_back(world: InRedis, client: Client) -> None:
    client.push_batch("q", [b"a", b"b"])
    found = world.server.client()
    key = f"{world.prefix}:{{default/0}}:wake:1:q"
    assert found.lpop(key) == b"1"
    client.pull("q")
    assert found.llen(key) == 1
    found.close()


def options_are_counted_by_job(world: InRedis, client: Client) -> None:
    client.push_batch("q", [b"a", b"b", b"c"])
    audit(world, "default")


def a_push_that_is_sent_again_has_its_answer(world: InRedis, client: Client) -> None:
    push = c.Push("q", b"", Options(), sending=c.Sending("s", 1, 1))
    assert client.execute(push).id == client.execute(push).id


def what_redis_has_lost_is_noticed(world: InRedis, client: Client) -> None:
    last = client.push("q", b"").id
    world.server.client().flushall()
    assert client.push("q", b"").id > last
    assert world.broker.losses


def a_refused_push_makes_no_queue(world: InRedis, client: Client) -> None:
    client.push("one", b"")
    client.push("two", b"")
    with pytest.raises(LimitExceeded):
        client.push("three", b"")
    assert sorted(client.list_queues()) == ["one", "two"]


def jobs_out_of_turn_keep_their_place(world: InRedis, client: Client) -> None:
    """The list begins with three entries whose jobs are gone, so its next head is not seen at once."""
    jobs = [client.push("q", b"").id for _ in range(6)]
    for gone in jobs[:3]:
        client.cancel(gone)
    client.move_to_delayed(jobs[4], 1_000)
    client.promote(jobs[4])
    assert list(client.pull("q", 2).ids) == [jobs[3], jobs[4]]


def a_duplicate_is_not_the_last_run_of_a_schedule(world: InRedis, client: Client) -> None:
    held = client.push("q", b"", unique_key="k").id
    once = Schedule(every_ms=1_000, runs_max=1, overlap="allow", options=Options(unique_key="k"))
    client.execute(c.PutSchedule("q", "s", once))
    world.advance(1_000)
    client.cancel(held)
    world.advance(5_000)
    assert len(client.pull("q", 10).ids) == 1


def tenants_share_nothing(world: InRedis, client: Client) -> None:
    ours, theirs = client.as_tenant("ours"), client.as_tenant("theirs")
    ours.push("q", b"secret")
    assert theirs.pull("q", 10).ids == []
    assert theirs.list_queues() == []


def a_job_that_waits_for_another_is_known_to_it(world: InRedis, client: Client) -> None:
    first = client.push("q", b"").id
    client.push("later", b"", depends_on=(Dependency(first),))
    audit(world, "default")


def a_key_that_is_freed_leaves_no_deadline(world: InRedis, client: Client) -> None:
    client.cancel(client.push("q", b"", unique_key="k", unique_ttl_ms=60_000).id)
    audit(world, "default")


def a_job_that_has_started_cannot_expire(world: InRedis, client: Client) -> None:
    client.push("q", b"", ttl_ms=1_000, lease_ms=60_000)
    client.pull("q")
    audit(world, "default")


def the_counters_of_a_workflow_follow_its_jobs(world: InRedis, client: Client) -> None:
    client.push_workflow([Step("q", [b"1", b"2"]), Step("q", [b"3"], after=[Edge(0)])])
    delivery = client.pull("q", 2)
    client.ack_batch(list(delivery.ids), delivery.token)
    audit(world, "default")


STORIES: tuple[Story, ...] = (
    an_old_token_settles_nothing,
    numbers_beyond_a_hundred_trillion_are_exact,
    a_delayed_job_that_is_cancelled_leaves_no_deadline,
    counters_follow_the_jobs,
    the_oldest_job_of_a_group_comes_first,
    a_job_that_is_left_puts_the_marker_back,
    options_are_counted_by_job,
    a_push_that_is_sent_again_has_its_answer,
    what_redis_has_lost_is_noticed,
    a_refused_push_makes_no_queue,
    jobs_out_of_turn_keep_their_place,
    a_duplicate_is_not_the_last_run_of_a_schedule,
    tenants_share_nothing,
    a_job_that_waits_for_another_is_known_to_it,
    a_key_that_is_freed_leaves_no_deadline,
    a_job_that_has_started_cannot_expire,
    the_counters_of_a_workflow_follow_its_jobs,
)

BUGS: tuple[tuple[str, str, str, str, Story], ...] = (
    ("token not compared", "settle", "wanted ~= job.token", "false", STORIES[0]),
    ("number through ..", "core", "format('%.0f', number)", "'' .. number", STORIES[1]),
    ("deadline not removed", "moves", "    disarm_job(DUE, job)\n", "", STORIES[2]),
    ("counter missed", "settle", "  count_state(q, ACTIVE, -#places)\n", "", STORIES[3]),
    ("head of a group wrong", "ready", "call('ZRANGE', key, 0, 0)", "call('ZRANGE', key, -1, -1)", STORIES[4]),
    ("marker not put back", "core", "          w('RPUSH', key, '1')\n", "", STORIES[5]),
    ("option reference not counted", "core", "text(number), count)", "text(number), 1)", STORIES[6]),
    (
        "answer forgotten",
        "push",
        "  w('HSET', sent_key, text(p.sending[2]), answer, 'low', text(p.sending[3]))\n",
        "",
        STORIES[7],
    ),
    ("loss not noticed", "core", "if H.sequence > sequence or H.record > record then", "if false then", STORIES[8]),
    (
        "write before a check",
        "push",
        "local q = queue(p.queue)\n",
        "local q = queue(p.queue)\nmake_known(q)\n",
        STORIES[9],
    ),
    (
        "two tenants in one key",
        "core",
        "local P = string.sub(KEYS[1], 1, -2)\n",
        "local P = string.gsub(string.sub(KEYS[1], 1, -2), '{.-}', '{one/0}')\n",
        tenants_share_nothing,
    ),
    (
        "edge not known to the other end",
        "edges",
        "    w('SADD', P .. 'edged', text(edge[1]))\n",
        "",
        a_job_that_waits_for_another_is_known_to_it,
    ),
    (
        "deadline of a key not removed",
        "keys",
        ".. key)\n  disarm(KEY, place(q, table, key))\nend",
        ".. key)\nend",
        a_key_that_is_freed_leaves_no_deadline,
    ),
    (
        "time to live goes on",
        "pull",
        "    w('ZREM', P .. 'deadlines', format('%s%016.0f', TTL, entry[1] * 64))\n",
        "",
        a_job_that_has_started_cannot_expire,
    ),
    (
        "counter of a workflow missed",
        "flows",
        "  flow.open = flow.open + (standing == STEP_OPEN and 1 or 0) - (before == STEP_OPEN and 1 or 0)\n",
        "",
        the_counters_of_a_workflow_follow_its_jobs,
    ),
    ("other head not looked at", "pull", "(a <= #in_turn or #in_turn < wanted)", "true", STORIES[10]),
)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Change the text of a part of the scripts, for one test."""
    read = scripts._part

    def planting(part: str, old: str, new: str) -> None:
        assert read(part).count(old) == 1, "the bug has no one place any more"
        monkeypatch.setattr(scripts, "_part", lambda name: read(name).replace(old, new) if name == part else read(name))
        scripts.script.cache_clear()

    yield planting
    monkeypatch.undo()
    scripts.script.cache_clear()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_scripts_keep_their_promise(world: InRedis, story: Story):
    story(world, Client(world.broker))


@pytest.mark.parametrize(("part", "old", "new", "story"), [bug[1:] for bug in BUGS], ids=[bug[0] for bug in BUGS])
def test_a_planted_bug_is_caught(
    world: InRedis, plant: Callable[[str, str, str], None], part: str, old: str, new: str, story: Story
):
    plant(part, old, new)
    with pytest.raises((Exception, pytest.fail.Exception)):  # a wrong answer, or a script that fails
        story(world, Client(world.broker))


def test_a_script_that_is_broken_off_is_noticed_by_the_next(world: InRedis, plant: Callable[[str, str, str], None]):
    client = Client(world.broker)
    job = client.push("q", b"").id
    client.pull("q")
    plant("settle", "  count_state(q, ACTIVE, -#places)\n", "  error('planted')\n")
    with pytest.raises(Exception, match="planted"):
        client.ack(job)
    with pytest.raises(Damaged):
        client.list_queues()
