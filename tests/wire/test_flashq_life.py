"""The life of jobs as clients of flashQ's dialect see it: over a real broker, in both codecs."""

from typing import Any

import pytest

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.model.schedules import Schedule
from stoker.testing import FakeClock
from stoker.wire.flashq.decoding import Codec
from tests.wire.flashq_peer import Peer

JOB_FIELDS = """
    id queue data priority attempts max_attempts created_at run_at started_at completed_at state result error progress
    progress_message progress_msg tags custom_id parent_id backoff ttl timeout unique_key depends_on lifo
    remove_on_complete remove_on_fail last_heartbeat stall_timeout stall_count children_ids children_completed
    keep_completed_age keep_completed_count group_id
    """.split()
"""What the published clients read of a job."""


@pytest.fixture(params=["json", "msgpack"])
def peer(request: pytest.FixtureRequest) -> Peer:
    codec: Codec = request.param
    return Peer(codec)


def started(peer: Peer, queue: str = "q", **options: Any) -> dict[str, Any]:
    peer("PUSH", queue=queue, data={"n": 1}, **options)
    job: dict[str, Any] = peer("PULL", queue=queue, timeout=0)["job"]
    return job


# --- pushing ---------------------------------------------------------------------------------------------------------


def test_push_pull_ack_and_read_the_result(peer: Peer):
    pushed = peer("PUSH", queue="q", data={"to": "é"}, priority=4)
    job = peer("PULL", queue="q", timeout=0)["job"]
    assert (job["id"], job["data"], job["queue"], job["priority"]) == (pushed["id"], {"to": "é"}, "q", 4)
    assert (job["state"], job["attempts"], job["max_attempts"]) == ("active", 1, 3)
    assert peer("ACK", id=job["id"], result={"sent": True})["ok"]
    assert peer("GETRESULT", id=job["id"])["result"] == {"sent": True}
    assert peer("GETSTATE", id=job["id"])["state"] == "completed"


def test_a_job_has_every_field_that_clients_read(peer: Peer):
    pulled = started(peer)
    looked = peer("GETJOB", id=pulled["id"])
    assert looked["state"] == looked["job"]["state"] == "active"
    for job in (pulled, looked["job"]):
        assert set(JOB_FIELDS) <= set(job)
    assert pulled["token"] > 0
    assert pulled["started_at"] == looked["job"]["started_at"]
    same = set(pulled) & set(looked["job"]) - {"worker"}
    assert {name: pulled[name] for name in same} == {name: looked["job"][name] for name in same}


def test_a_client_that_knows_us_is_spared_the_defaults(peer: Peer):
    started(peer, priority=3, tags=["a"])
    other = peer.beside(peer.codec, hello=True)
    peer("PUSH", queue="q", data=[1], priority=3)
    pulled = other("PULL", queue="q", timeout=0)["job"]
    looked = other("GETJOB", id=pulled["id"])["job"]
    for job in (pulled, looked):
        assert (job["data"], job["priority"], job["state"]) == ([1], 3, "active")
        assert "unique_key" not in job
        assert "result" not in job


def test_a_batch_has_an_outcome_for_each_item(peer: Peer):
    """Bad entries used to vanish, and then nobody knew which id was whose."""
    jobs: list[Any] = [{"data": 1}, {"data": 2, "priority": "high"}, {}, {"data": 3, "jobId": "x"}, 5, {"data": 4}]
    answer = peer("PUSHB", queue="q", jobs=jobs)
    assert [bool(job_id) for job_id in answer["ids"]] == [True, False, False, True, False, True]
    assert [item["index"] for item in answer["failed"]] == [1, 2, 4]
    assert answer["errors"] == answer["failed"]
    assert answer["ok"]
    assert not answer["success"]
    assert "priority" in answer["failed"][0]["error"]
    assert [job["data"] for job in peer("PULLB", queue="q", count=9, timeout=0)["jobs"]] == [1, 3, 4]


def test_an_item_that_was_not_understood_keeps_its_number(peer: Peer):
    jobs: list[Any] = [{"nothing": 1}, {"data": "child"}, {"data": "parent", "dependsOn": [{"item": 1}]}]
    _, child, parent = peer("PUSHB", queue="q", jobs=jobs)["ids"]
    assert peer("GETJOB", id=parent)["job"]["depends_on"] == [child]


def test_an_atomic_batch_with_a_bad_item_leaves_no_trace(peer: Peer):
    answer = peer("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2, "ttl": "x"}], atomic=True)
    assert (answer["ok"], answer["code"]) == (False, "invalid")
    assert "item 1" in answer["error"]
    assert peer("COUNT", queue="q")["count"] == 0


def test_an_oversize_batch_names_the_limit(peer: Peer):
    """F2: it was answered with `ok` and no ids, and the jobs were gone."""
    answer = peer("PUSHB", queue="q", jobs=[{"data": 1}] * 10_001)
    assert (answer["ok"], answer["code"]) == (False, "limit_exceeded")
    assert "10000" in answer["error"]


def test_an_empty_batch_is_no_error(peer: Peer):
    assert peer("PUSHB", queue="q", jobs=[])["ids"] == []
    assert peer("ACKB", ids=[])["count"] == 0


def test_ids_come_as_ranges_to_those_who_asked(peer: Peer):
    other = peer.beside(peer.codec, hello=True, ranges=True)
    answer = other("PUSHB", queue="q", jobs=[{"data": n} for n in range(100)])
    (first, count, step) = answer["ids"][0]
    pulled = peer("PULLB", queue="q", count=100, timeout=0)["jobs"]
    assert [job["id"] for job in pulled] == list(range(first, first + count * step, step))


def test_a_duplicate_key_is_an_error_to_clients_of_flashq_and_an_answer_to_ours(peer: Peer):
    first = peer("PUSH", queue="q", data=1, unique_key="k")["id"]
    refused = peer("PUSH", queue="q", data=2, unique_key="k")
    assert (refused["ok"], refused["code"]) == (False, "duplicate")
    assert "Duplicate job with key: k" in refused["error"]
    for answer in (
        peer("PUSH", queue="q", data=2, unique_key="k", on_conflict="keep"),
        peer.beside(peer.codec, hello=True)("PUSH", queue="q", data=2, unique_key="k"),
    ):
        assert (answer["id"], answer["created"], answer["duplicate_by"]) == (first, False, "unique_key")


def test_a_debounced_push_says_so(peer: Peer):
    peer("PUSH", queue="q", data=1, debounceId="d")
    answer = peer("PUSH", queue="q", data=2, debounceId="d")
    assert not answer["ok"]
    assert "Debounced" in answer["error"]


def test_a_custom_id_answers_with_the_first_job(peer: Peer):
    first = peer("PUSH", queue="q", data=1, jobId="mine")
    assert peer("PUSH", queue="q", data=2, jobId="mine")["id"] == first["id"]
    found = peer("GETJOBBYCUSTOMID", customId="mine")
    assert (found["job"]["id"], found["job"]["custom_id"], found["state"]) == (first["id"], "mine", "waiting")
    assert peer("GETJOBBYCUSTOMID", job_id="nobody's")["job"] is None


def test_a_request_key_makes_a_second_push_harmless(peer: Peer):
    first, second = (peer("PUSH", queue="q", data=1, request_key="once") for _ in range(2))
    assert first["id"] == second["id"]
    assert peer("COUNT", queue="q")["count"] == 1


def test_a_flow_waits_for_its_children(peer: Peer):
    children = [{"queue": "q", "data": n, "priority": n} for n in (1, 2)]
    flow = peer("FLOW", queue="q", data="parent", children=children)
    assert peer("GETSTATE", id=flow["parent_id"])["state"] == "waiting-children"
    peer("ACKB", ids=[job["id"] for job in peer("PULLB", queue="q", count=1, timeout=0)["jobs"]])
    found = peer("GETCHILDREN", parent_id=flow["parent_id"])
    assert (found["completed"], found["total"], found["children_ids"]) == (1, 2, flow["children_ids"])
    peer("ACKB", ids=[job["id"] for job in peer("PULLB", queue="q", count=9, timeout=0)["jobs"]])
    assert peer("PULL", queue="q", timeout=0)["job"]["data"] == "parent"


@pytest.mark.parametrize("keys", [{}, {"job_id": "custom"}], ids=["workflow", "batch with keys"])
def test_a_job_tells_of_its_children(peer: Peer, keys: dict[str, str]):
    """Dashboards read them off the job itself."""
    children = [{"queue": "q", "data": n} for n in range(3)]
    flow = peer("FLOW", queue="q", data="parent", children=children, **keys)
    found = peer("GETJOB", id=flow["parent_id"])["job"]
    assert (found["children_ids"], found["children_completed"]) == (flow["children_ids"], 0)
    for ended in (1, 2, 3):
        job = peer("PULL", queue="q", timeout=0)["job"]
        peer("ACK", id=job["id"])
        assert peer("GETJOB", id=flow["parent_id"])["job"]["children_completed"] == ended
    child = peer("GETJOB", id=flow["children_ids"][0])["job"]
    assert (child["children_ids"], child["children_completed"]) == ([], 0)


@pytest.mark.parametrize("jobs", [1, 3], ids=["job", "batch"])
def test_a_job_tells_when_its_worker_was_last_heard_of(jobs: int):
    clock = FakeClock()
    peer = Peer(broker=LocalBroker(LocalSettings(shards=2), clock))
    ids = peer("PUSHB", queue="q", jobs=[{"data": n} for n in range(jobs)])["ids"]
    for pulled in peer("PULLB", queue="q", count=jobs, timeout=0)["jobs"]:
        assert pulled["last_heartbeat"] == pulled["started_at"] == clock.now_ms()
    for lease in (None, 60_000, None):  # one that is as long as it was, a longer one, and again
        clock.advance(10_000)
        assert peer("HEARTBEAT", ids=ids, lease_ms=lease)["ok"]
        clock.advance(5_000)
        assert {peer("GETJOB", id=one)["job"]["last_heartbeat"] for one in ids} == {clock.now_ms() - 5_000}
    peer("ACKB", ids=ids)
    assert {peer("GETJOB", id=one)["job"]["last_heartbeat"] for one in ids} == {0}


def test_a_flow_goes_over_several_queues_and_levels(peer: Peer):
    below = [{"queue": "r", "data": n} for n in range(3)]
    children = [{"queue": "p", "data": 1, "children": below}, {"queue": "p", "data": 2}, {"queue": "p", "data": 3}]
    flow = peer("FLOW", queue="q", data=0, children=children)
    assert len(flow["children_ids"]) == 3
    first = peer("GETJOB", id=flow["children_ids"][0])["job"]
    assert (first["parent_id"], first["workflow"]) == (flow["parent_id"], flow["workflow"])
    assert first["state"] == "waiting-children"
    assert peer("GETCHILDREN", parent_id=first["id"])["total"] == 3
    for queue in ("p", "r", "p", "q"):
        jobs = peer("PULLB", queue=queue, count=10, timeout=0)["jobs"]
        assert jobs, queue
        for job in jobs:
            peer("ACK", id=job["id"], result=job["data"])
    found = peer("GETCHILDREN", parent_id=flow["parent_id"])
    assert (found["completed"], found["total"]) == (3, 3)
    assert [child["result"] for child in found["children"]] == [1, 2, 3]


@pytest.mark.parametrize(("policy", "state"), [("fail", "failed"), ("ignore", "waiting"), ("continue", "waiting")])
def test_a_child_says_what_its_failure_means_for_its_parent(peer: Peer, policy: str, state: str):
    child = {"queue": "p", "data": 1, "on_failure": policy, "max_attempts": 1}
    flow = peer("FLOW", queue="q", data=0, children=[child])
    peer("FAIL", id=peer("PULL", queue="p", timeout=0)["job"]["id"])
    assert peer("GETSTATE", id=flow["parent_id"])["state"] == state


def test_a_flow_with_keys_over_several_queues_changes_nothing(peer: Peer):
    answer = peer("FLOW", queue="q", data=1, children=[{"queue": "p", "data": 2, "job_id": "mine"}])
    assert answer["code"] == "invalid"
    assert peer("LISTQUEUES")["names"] == []


# --- finishing -------------------------------------------------------------------------------------------------------


def test_without_a_token_the_current_delivery_is_meant(peer: Peer):
    job = started(peer)
    assert peer("HEARTBEAT", job_id=job["id"])["ok"]
    assert peer("ACK", id=job["id"])["ok"]


def test_a_token_that_is_no_longer_current_is_refused(peer: Peer):
    job = started(peer)
    peer("RELEASE", id=job["id"], token=job["token"])
    again = peer("PULL", queue="q", timeout=0)["job"]
    for cmd, more in {"ACK": {}, "FAIL": {}, "HEARTBEAT": {}, "PROGRESS": {"progress": 5}, "RELEASE": {}}.items():
        answer = peer(cmd, id=job["id"], token=job["token"], **more)
        assert (answer["ok"], answer["code"]) == (False, "lost_lease"), cmd
    assert again["attempts"] == 1
    assert peer("ACK", id=job["id"], token=again["token"])["ok"]


def test_a_batch_of_acks_counts_and_names_the_others(peer: Peer):
    ids = peer("PUSHB", queue="q", jobs=[{"data": n} for n in range(3)])["ids"]
    token = peer("PULLB", queue="q", count=3, timeout=0)["token"]
    answer = peer("ACKB", ids=[*ids, 6400], tokens=token, results=[{"n": 0}, None, [2], None])
    assert (answer["count"], answer["ids"]) == (3, [3])
    assert answer["failed"][0]["id"] == 6400
    assert "Job not found" in answer["failed"][0]["error"]
    assert [peer("GETRESULT", id=job_id)["result"] for job_id in ids] == [{"n": 0}, None, [2]]


def test_failures_are_tried_again_and_end_as_dead_letters(peer: Peer):
    job = started(peer, max_attempts=2, backoff=0)
    assert peer("FAIL", id=job["id"], error="no luck")["state"] == "waiting"
    peer("PULL", queue="q", timeout=0)
    assert peer("FAIL", id=job["id"], error=None)["state"] == "failed"
    (dead,) = peer("DLQ", queue="q")["jobs"]
    assert (dead["id"], dead["attempts"], dead["state"]) == (job["id"], 2, "failed")
    answer = peer("RETRYDLQ", queue="q", id=job["id"])
    assert (answer["count"], answer["ids"]) == (1, [1])
    assert peer("GETSTATE", id=job["id"])["state"] == "waiting"
    assert peer("RETRYDLQ", queue="q", id=job["id"])["code"] == "not_found"


def test_a_failure_can_be_final(peer: Peer):
    job = started(peer)
    assert peer("FAIL", id=job["id"], retry=False, error="hopeless")["state"] == "failed"
    assert peer("PURGEDLQ", queue="q")["count"] == 1
    assert peer("GETSTATE", id=job["id"])["state"] == "unknown"


def test_progress_logs_and_partial_results(peer: Peer):
    job_id = started(peer)["id"]
    peer("PROGRESS", id=job_id, progress=50.0, message="half")
    answer = peer("GETPROGRESS", id=job_id)
    assert answer["progress"] == {"id": job_id, "progress": 50, "message": "half"}
    assert answer["message"] == "half"
    peer("LOG", job_id=job_id, message="m", level="warn")
    (line,) = peer("GETLOGS", job_id=job_id)["logs"]
    assert (line["message"], line["level"], line["timestamp"] > 0) == ("m", "warn", True)
    peer("PARTIAL", id=job_id, data={"chunk": 1})
    assert peer("GETPARTIALS", id=job_id)["partials"][0]["data"] == {"chunk": 1}
    assert peer("GETJOB", id=job_id)["job"]["progress_msg"] == "half"


def test_waiting_for_a_job(peer: Peer):
    job = started(peer)
    timed_out = peer("WAITJOB", id=job["id"], timeout=0)
    assert (timed_out["ok"], timed_out["code"]) == (False, "timeout")
    assert "timeout" in timed_out["error"]
    peer("ACK", id=job["id"], result=[1])
    assert peer("WAITJOB", id=job["id"])["result"] == [1]
    other = started(peer)
    peer("FAIL", id=other["id"], error="boom", retry=False)
    failed = peer("WAITJOB", id=other["id"])
    assert not failed["ok"]
    assert "boom" in failed["error"]


def test_heartbeats_tell_of_a_cancellation(peer: Peer):
    job = started(peer)
    assert peer("CANCEL", id=job["id"])["cancel_requested"]
    assert peer("HEARTBEAT", ids=[job["id"]], leaseMs=5_000)["cancelled"] == [job["id"]]


def test_moving_a_job_about(peer: Peer):
    job_id = peer("PUSH", queue="q", data=1, delay=60_000)["id"]
    assert peer("GETSTATE", id=job_id)["state"] == "delayed"
    assert peer("PROMOTE", id=job_id)["ok"]
    assert peer("CHANGEPRIORITY", id=job_id, priority=9)["ok"]
    assert peer("UPDATE", id=job_id, data={"new": True})["ok"]
    job = peer("GETJOB", id=job_id)["job"]
    assert (job["state"], job["priority"], job["data"]) == ("waiting", 9, {"new": True})
    peer("PULL", queue="q", timeout=0)
    assert peer("MOVETODELAYED", id=job_id, delay=5_000)["ok"]
    assert peer("GETSTATE", id=job_id)["state"] == "delayed"
    assert peer("WHY", id=job_id)["delayed_until"] > 0
    assert peer("DISCARD", id=job_id)["ok"]
    assert peer("GETSTATE", id=job_id)["state"] == "failed"
    assert peer("STORY", id=job_id)["events"][0]["kind"] == "pushed"


def test_a_cancelled_job_is_unknown_to_clients_of_flashq_and_cancelled_to_ours(peer: Peer):
    """flashQ forgets such a job, and the tests of its clients look for that."""
    job_id = peer("PUSH", queue="q", data=1)["id"]
    assert peer("CANCEL", id=job_id)["ok"]
    assert peer("GETSTATE", id=job_id)["state"] == "unknown"
    job = peer("GETJOB", id=job_id)["job"]
    assert (job["state"], job["reason"]) == ("unknown", "cancelled")
    ours = peer.beside(peer.codec, hello=True)
    assert ours("GETSTATE", id=job_id)["state"] == ours("GETJOB", id=job_id)["job"]["state"] == "cancelled"


def test_a_job_tells_all_its_options(peer: Peer):
    options = {"max_crashes": 7, "debounce_id": "d", "unique_ttl_ms": 9}
    job_id = peer("PUSH", queue="q", data=1, **options)["id"]
    told = peer("GETJOB", id=job_id)["job"]["options"]
    assert {**options, "codec": peer.codec}.items() <= told.items()
    assert "lifo" not in told


# --- looking ---------------------------------------------------------------------------------------------------------


def test_a_job_that_never_was(peer: Peer):
    assert peer("GETJOB", id=6400)["job"] is None
    assert peer("GETSTATE", id=6400)["state"] == "unknown"
    for cmd in ("ACK", "FAIL", "CANCEL", "PROMOTE", "GETLOGS", "GETRESULT", "WAITJOB", "HEARTBEAT"):
        answer = peer(cmd, id=6400)
        assert (answer["ok"], answer["code"]) == (False, "not_found"), cmd
        assert "job not found" in answer["error"].lower(), cmd


def test_pages_of_jobs(peer: Peer):
    ids = peer("PUSHB", queue="q", jobs=[{"data": n} for n in range(15)])["ids"]
    first, second = (peer("GETJOBS", queue="q", limit=10, offset=offset) for offset in (0, 10))
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[::-1]
    assert first["total"] == second["total"] == 15
    entry = first["jobs"][0]
    assert (entry["job"]["id"], entry["job"]["data"], entry["state"]) == (entry["id"], entry["data"], "waiting")
    assert peer("GETJOBS", queue="q", state="delayed")["jobs"] == []
    assert peer("GETJOBS", state="waiting-children")["total"] == 0
    assert peer("GETJOBS", state="nonsense")["code"] == "invalid"
    assert len(peer("GETJOBSBATCH", ids=[*ids[:5], 6400])["jobs"]) == 5


def test_counts_of_a_queue(peer: Peer):
    peer("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2}, {"data": 3, "delay": 60_000}])
    peer("PULL", queue="q", timeout=0)
    counts = peer("GETJOBCOUNTS", queue="q")
    for found in (counts, counts["counts"]):
        assert (found["waiting"], found["active"], found["delayed"]) == (1, 1, 1)
    assert peer("COUNT", queue="q")["count"] == 2
    assert sum(peer("GETJOBCOUNTS", queue="nobody")["counts"].values()) == 0


def test_stats_and_metrics_in_every_shape(peer: Peer):
    peer("ACK", id=started(peer)["id"])
    peer("PUSH", queue="p", data=1)
    stats = peer("STATS")
    assert (stats["queued"], stats["processing"], stats["delayed"], stats["dlq"], stats["completed"]) == (1, 0, 0, 0, 1)
    wanted = {"waiting": 1, "active": 0, "completed": 0, "failed": 0, "delayed": 0, "paused": False}
    assert {name: stats["queues"]["p"][name] for name in wanted} == wanted
    metrics = peer("METRICS")
    assert metrics["total_pushed"] == metrics["metrics"]["total_pushed"] == 2
    assert {"jobs_per_second", "avg_latency_ms", "total_completed", "total_failed"} <= set(metrics)
    assert [queue["name"] for queue in metrics["queues"]] == ["p", "q"]
    assert [queue["name"] for queue in peer("LISTQUEUES")["queues"]] == ["p", "q"]


# --- control ---------------------------------------------------------------------------------------------------------


def test_a_queue_is_paused_limited_and_resumed(peer: Peer):
    assert peer("ISPAUSED", queue="q")["paused"] is False
    for cmd, more in {"PAUSE": {}, "RATELIMIT": {"limit": 5}, "SETCONCURRENCY": {"limit": 2}}.items():
        assert peer(cmd, queue="q", **more)["ok"]
    assert peer("ISPAUSED", queue="q")["paused"] is True
    queue = peer("QUEUE", queue="q")
    assert (queue["queue"]["rate_limit"], queue["queue"]["concurrency_limit"]) == (5, 2)
    for cmd in ("RESUME", "RATELIMITCLEAR", "CLEARCONCURRENCY"):
        assert peer(cmd, queue="q")["ok"]
    peer("SETPOLICY", queue="q", groupOnRetry="skip", deadLetters={"entriesMax": 3}, rateLimit={"count": 7, "perMs": 9})
    policy = peer("QUEUE", queue="q")["policy"]
    assert (policy["group_on_retry"], policy["dead_letters"]["entries_max"]) == ("skip", 3)
    assert (policy["rate_limit"]["per_ms"], policy["concurrency"], policy["paused"]) == (9, 0, False)


def test_emptying_a_queue(peer: Peer):
    peer("PUSHB", queue="q", jobs=[{"data": n} for n in range(4)])
    job = peer("PULL", queue="q", timeout=0)["job"]
    assert peer("CLEAN", queue="q", grace=0, state="waiting", limit=1)["count"] == 1
    assert peer("DRAIN", queue="q")["count"] == 2
    assert peer("OBLITERATE", queue="q", force=False)["code"] == "queue_active"
    assert peer("OBLITERATE", queue="q")["count"] >= 1
    assert peer("GETJOB", id=job["id"])["job"] is None
    assert peer("OBLITERATE", queue="nobody")["ok"]


def test_schedules_are_made_listed_and_deleted(peer: Peer):
    made = peer("CRON", name="n", queue="q", schedule="0 8 * * *", data={"a": 1}, priority=3, limit=5, tz="Asia/Tokyo")
    assert made["ok"]
    made = made["cron"]
    assert (made["name"], made["executions"], made["zone"]) == ("n", 0, "Asia/Tokyo")
    (cron,) = peer("CRONLIST")["crons"]
    assert (cron["name"], cron["queue"], cron["schedule"], cron["limit"]) == ("n", "q", "0 8 * * *", 5)
    assert (cron["data"], cron["priority"], cron["next_run"]) == ({"a": 1}, 3, made["next_run"])
    assert len(peer("CRONGET", name="n")["cron"]["next_runs"]) == 5
    assert peer("CRONDELETE", name="n")["ok"]
    assert peer("CRONLIST")["crons"] == []
    assert peer("CRONDELETE", name="n")["error"] == "Cron job not found: n"


def test_intervals_of_schedules_have_two_spellings(peer: Peer):
    """A single field with a step is an interval in seconds, as flashQ has it."""
    assert peer("CRON", name="a", queue="q", schedule="*/30")["cron"]["repeat_every"] == 30_000
    assert peer("CRON", name="b", queue="q", repeatEvery=90_000, options={"maxAttempts": 9, "name": "kind"})["ok"]
    crons = peer("CRONLIST")["crons"]
    assert [(cron["repeat_every"], cron["schedule"], cron["job_name"]) for cron in crons] == [
        (30_000, None, None),
        (90_000, None, "kind"),
    ]
    assert peer("CRON", name="c", queue="q", schedule="*/0")["code"] == "invalid"
    assert "every_ms" in peer("CRON", name="c", queue="q", repeat_every=5)["error"]
    assert peer("CRON", name="c", queue="q")["code"] == "invalid"


def test_a_schedule_is_paused_resumed_and_run_by_its_name(peer: Peer):
    peer("CRON", name="n", queue="q", repeat_every=60_000, data={"x": 1}, jobName="kind")
    assert peer("CRONPAUSE", name="n")["cron"]["state"] == "paused"
    assert peer("CRONRESUME", name="n")["cron"]["state"] == "active"
    pushed = peer("CRONRUN", name="n")
    job = peer("GETJOB", id=pushed["id"])["job"]
    assert (job["data"], job["schedule"], job["name"]) == ({"x": 1}, "n", "kind")
    assert peer("CRONGET", name="n")["cron"]["last_runs"][0]["job"] == pushed["id"]
    assert "not found" in peer("CRONRUN", name="other")["error"]


def test_a_schedule_that_is_sent_for_another_queue_moves_there(peer: Peer):
    """For flashQ its name is its own, wherever it pushes to."""
    peer("CRON", name="n", queue="old", repeat_every=60_000)
    peer("CRON", name="n", queue="new", repeat_every=60_000)
    assert [cron["queue"] for cron in peer("CRONLIST")["crons"]] == ["new"]


def test_a_name_in_several_queues_needs_a_queue(peer: Peer):
    for queue in ("a", "b"):
        peer.broker.execute("tenant", c.PutSchedule(queue, "n", Schedule(every_ms=60_000)))
    assert "`queue`" in peer("CRONDELETE", name="n")["error"]
    assert peer("CRONDELETE", name="n", queue="a")["ok"]
    assert peer("CRONDELETE", name="n")["ok"]


def test_what_belongs_to_a_connection_is_left_to_the_server(peer: Peer):
    assert peer("PING")["pong"]
    for cmd, fields in {"AUTH": {"token": "t"}, "HELLO": {}, "SUBSCRIBE": {}, "UNSUBSCRIBE": {}}.items():
        assert peer(cmd, **fields)["code"] == "invalid"


# --- between codecs --------------------------------------------------------------------------------------------------


def test_data_and_results_cross_from_one_codec_to_the_other(peer: Peer):
    other = peer.beside("msgpack" if peer.codec == "json" else "json")
    value = {"a": [1, -2, 2.5, None, True, "é"]}
    job_id = peer("PUSH", queue="q", data=value)["id"]
    assert other("GETJOB", id=job_id)["job"]["data"] == value
    (job,) = other("PULLB", queue="q", count=5, timeout=0)["jobs"]
    assert job["data"] == value
    other("ACK", id=job_id, result=value)
    assert peer("GETRESULT", id=job_id)["result"] == value


def push_raw(peer: Peer, payload: bytes, codec: Any) -> dict[str, Any]:
    peer.broker.execute("tenant", c.Push("q", payload, Options(codec=codec)))
    job: dict[str, Any] = peer("PULL", queue="q", timeout=0)["job"]
    return job


def test_bytes_are_shown_as_base64(peer: Peer):
    assert push_raw(peer, b"hi", "bytes")["data"] == {"$bytes": "aGk="}


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize(
    "payload",
    [b"", b'1,"x":2', b"{", b'"\xff"', b"[" * 5_000, b"\x91" * 5_000, b"\xc1", b'"\\ud800"', b"9" * 400, b"1 2"],
)
def test_a_payload_that_is_not_what_it_claims_breaks_no_answer(peer: Peer, payload: bytes, codec: Any):
    """A tag is a claim of whoever pushed; believing it would let one job spoil the answer for a thousand others."""
    data = push_raw(peer, payload, codec)["data"]
    assert isinstance(data, dict | int | str | list)


def test_a_payload_of_many_lines_is_shown_in_one(peer: Peer):
    assert push_raw(peer, b'{"a":\n1}', "json")["data"] == {"a": 1}


def test_numbers_that_the_other_codec_cannot_say_are_shown_as_bytes():
    json = Peer("json")
    job_id = json.send("PUSH", b'{"queue":"q","data":123456789012345678901234567890}')["id"]
    shown = json.beside("msgpack")("GETJOB", id=job_id)["job"]["data"]
    assert shown["$bytes"]
    assert json("GETJOB", id=job_id)["job"]["data"] == 123456789012345678901234567890


# --- keys and values -------------------------------------------------------------------------------------------------


def test_the_key_value_store(peer: Peer):
    assert peer("KVSET", key="a", value={"n": 1})["ok"]
    assert peer("KVGET", key="a")["value"] == {"n": 1}
    assert peer("KVGET", key="none")["value"] is None
    assert peer("KVMSET", entries=[{"key": "b", "value": 2, "ttl": 60_000}, {"key": "c", "value": "x"}])["count"] == 2
    assert peer("KVMGET", keys=["a", "none", "b"])["values"] == [{"n": 1}, None, 2]
    assert peer("KVEXISTS", key="b")["exists"] is True
    assert peer("KVEXISTS", key="none")["exists"] is False
    assert 0 < peer("KVTTL", key="b")["ttl"] <= 60_000
    assert peer("KVTTL", key="a")["ttl"] == -1
    assert peer("KVTTL", key="none")["ttl"] == -2
    assert peer("KVEXPIRE", key="a", ttl=60_000)["exists"] is True
    assert peer("KVKEYS", pattern=None)["keys"] == ["a", "b", "c"]
    assert peer("KVKEYS", pattern="[ab]")["keys"] == []
    assert peer("KVINCR", key="n")["value"] == 1
    assert peer("KVINCR", key="n", by=-3)["value"] == -2
    assert peer("KVDEL", key="a")["exists"] is True
    assert peer("KVDEL", key="a")["exists"] is False
