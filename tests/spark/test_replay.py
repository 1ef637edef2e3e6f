"""Dead letters go back to work: chosen, mended, and each of them once."""

import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from stoker.cli.main import stoker
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark import replay
from stoker.spark.replay import Picked, ReplayPlan, fields_of, plan, push_back


def dead(queue: Client, payloads: list[bytes], where: str = "mail", **options: Any) -> list[int]:
    """Jobs that died, oldest first."""
    ids = list(queue.push_batch(where, payloads, max_attempts=1, **options).ids)
    for job in queue.pull(where, len(ids)):
        queue.fail(job.id, job.token, "no route to host")
    return ids


def picked(queue: Client, job: int, *values: Any) -> Picked:
    found = queue.get_job(job)
    assert found.dead is not None
    return Picked(job, found.queue, found.dead.entered_at, values, {})


def waiting(queue: Client, name: str) -> list[tuple[int | None, bytes]]:
    """Parents and payloads of what can be pulled."""
    page = queue.browse(name, limit=1_000, ascending=True)
    return [(job.options.parent_id, job.payload) for job in page.jobs if job.state == "waiting"]


def packed(**values: Any) -> bytes:
    return msgspec.msgpack.encode(values)


def test_a_dead_letter_is_pushed_as_it_was_and_linked(queue: Client):
    (old,) = dead(queue, [b"\x00raw"], name="send", priority=3, tags=("a",))
    wanted = plan("true")
    done = push_back(queue, wanted, [picked(queue, old)])
    new = queue.get_job(done.pushed[old])
    assert (new.payload, new.options.parent_id, new.options.name) == (b"\x00raw", old, "send")
    assert (new.options.priority, new.options.tags, new.options.max_attempts) == (3, ("a",), 1)
    assert new.options.custom_id == f"replay:{wanted.ticket}:{old}"
    assert queue.get_job(old).state == "failed"


def test_the_same_replay_again_does_nothing_even_after_the_job_has_ended(queue: Client):
    ids = dead(queue, [b"a", b"b"])
    wanted = plan("true")
    chosen = [picked(queue, job) for job in ids]
    first = push_back(queue, wanted, chosen[:1])
    for job in queue.pull("mail", 10):
        queue.ack(job.id, job.token)
    second = push_back(queue, wanted, chosen)
    assert second.known == first.pushed
    assert list(second.pushed) == ids[1:]
    assert push_back(queue, plan("true", ticket="once-more"), chosen).known == {}


def test_an_interrupted_purge_is_made_up_for(queue: Client):
    ids = dead(queue, [b"a", b"b"])
    wanted, chosen = plan("true"), [picked(queue, job) for job in ids]
    push_back(queue, wanted, chosen)
    done = push_back(queue, wanted, chosen, purge=True)
    assert (done.purged, done.pushed, len(done.known)) == (2, {}, 2)
    assert queue.get_dead_stats("mail").total == 0


def test_payloads_are_mended_and_the_rest_of_them_stays(queue: Client):
    (old,) = dead(queue, [packed(user={"id": 1, "tags": [1, 2]}, big=2**64 - 1)])
    wanted = plan("true", ["payload.user.id = 2", "payload.note = 'x'", "priority = 5"], to="other")
    push_back(queue, wanted, [picked(queue, old, 2, "x", 5)])
    ((parent, payload),) = waiting(queue, "other")
    assert parent == old
    assert msgspec.msgpack.decode(payload) == {"user": {"id": 2, "tags": [1, 2]}, "big": 2**64 - 1, "note": "x"}
    assert queue.pull("other").runs[0].options.priority == 5


def test_json_stays_json(queue: Client):
    (old,) = dead(queue, [b'{"a": 1}'], codec="json")
    push_back(queue, plan("true", ["payload.a = 2"]), [picked(queue, old, 2)])
    assert waiting(queue, "mail") == [(old, b'{"a":2}')]


def test_what_cannot_be_mended_stays_and_says_why(queue: Client):
    good, bad = dead(queue, [packed(a=1), b"\xc1"])
    gone = dead(queue, [b"x"])[0]
    chosen = [picked(queue, good, 2), picked(queue, bad, 2), picked(queue, gone, 2)]
    queue.purge_dead("mail", [gone])
    done = push_back(queue, plan("true", ["payload.a = 2"]), chosen, purge=True)
    assert list(done.pushed) == [good]
    assert "neither JSON nor MessagePack" in done.refused[bad]
    assert "not a dead letter any more" in done.refused[gone]
    assert queue.get_dead_stats("mail").total == 1


def test_a_unique_key_that_is_taken_leaves_the_dead_letter(queue: Client):
    (old,) = dead(queue, [b"a"], unique_key="k")
    queue.push("mail", b"now", unique_key="k")
    done = push_back(queue, plan("true"), [picked(queue, old)], purge=True)
    assert "unique_key" in done.refused[old]
    assert queue.get_dead_stats("mail").total == 1


def test_a_value_that_no_job_may_have_changes_nothing(queue: Client):
    ids = dead(queue, [b"a", b"b"])
    chosen = [picked(queue, ids[0], 1), picked(queue, ids[1], "high")]
    with pytest.raises(InvalidRequest, match="priority"):
        push_back(queue, plan("true", ["priority = x"]), chosen)
    assert waiting(queue, "mail") == []


@pytest.mark.parametrize("text", ["priority", "= 5", "custom_id = 'x'", "queue = 'x'", "priority.x = 1", "a == 5"])
def test_what_cannot_be_set_is_refused(text: str):
    with pytest.raises(InvalidRequest, match="--set"):
        plan("true", [text])


def test_the_ticket_is_the_plans():
    assert plan("a = 1 ").ticket == plan("a = 1").ticket
    assert len({plan("a").ticket, plan("b").ticket, plan("a", to="x").ticket, plan("a", ["priority = 1"]).ticket}) == 4
    with pytest.raises(InvalidRequest, match="ticket"):
        plan("true", ticket="it's")


def test_fields_are_told_from_payloads():
    payloads = [{"a": 1, "b": "x", "A": 2, "m": 1}, {"a": 2.5, "l": [{"x": True}], "m": "one", "odd name": None}]
    assert fields_of(iter(payloads)) == "`a` double, `b` string, `l` array<struct<`x` boolean>>, `odd name` string"


def test_sql_chooses_and_computes(spark: SparkSession, url: str, queue: Client):
    ids = dead(queue, [packed(user_id=number, kind="mail") for number in range(6)])
    dead(queue, [packed(user_id=5)], where="sms")
    wanted = plan(
        "queue = 'mail' and payload.user_id >= 4",
        ["payload.user_id = payload.user_id + 100", "priority = attempts * 2"],
    )
    found = replay.pick(spark, queue, wanted, {"url": url})
    assert [each.job for each in found] == ids[4:]
    assert [each.values for each in found] == [(104, 2), (105, 2)]
    assert len(push_back(queue, wanted, found).pushed) == 2
    for job in queue.pull("mail", 10):
        queue.fail(job.id, job.token, "again")  # children of this replay are not taken for its dead letters
    again = replay.pick(spark, queue, wanted, {"url": url})
    assert [each.job for each in again] == ids[4:]
    assert push_back(queue, wanted, again).pushed == {}
    with pytest.raises(InvalidRequest, match=r"^Spark cannot do this: A column.*`nonsense` cannot be resolved[^\[]*"):
        replay.pick(spark, queue, ReplayPlan("nonsense = 1", ticket="t"), {"url": url})

    where = f"{wanted.where} and payload.user_id < 100"  # not those that died again
    words = ["pipeline", "replay", "--where", where, "--to", "again", "--ticket", "typed", "--url", url, "--json"]
    shown = json.loads(CliRunner().invoke(stoker, [*words, "--dry-run"]).stdout)
    assert (shown["ticket"], shown["count"], shown["rows"][0]["job"]) == ("typed", 2, ids[4])
    assert shown["rows"][0]["entered_at"].endswith("Z")
    assert waiting(queue, "again") == []
    done = json.loads(CliRunner().invoke(stoker, [*words, "--yes"]).stdout)
    assert sorted(map(int, done["pushed"])) == ids[4:]
    done = json.loads(CliRunner().invoke(stoker, [*words, "--yes", "--purge"]).stdout)
    assert (done["pushed"], sorted(map(int, done["known"])), done["purged"]) == ({}, ids[4:], 2)
    assert [parent for parent, _ in waiting(queue, "again")] == ids[4:]
