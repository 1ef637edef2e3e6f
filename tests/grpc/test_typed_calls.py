"""The typed calls of `stoker.v1.Queue` do what the commands of the contract do."""

from typing import Any

import msgspec
import pytest

from stoker.model import replies as r
from stoker.model.commands import Cancel
from stoker.model.options import Backoff, Dependency, Options
from stoker.proto import stoker_pb2 as pb
from stoker.server.grpc import messages as m
from tests.conformance.test_options_and_validation import SAMPLES
from tests.grpc.support import Served, code_of, failure


def pushed(queue: Any, payload: bytes = b"x", **options: Any) -> int:
    return int(queue.Push(pb.PushRequest(queue="q", payload=payload, options=pb.Options(**options))).id)


def pulled(queue: Any, wait_ms: int = 0) -> Any:
    return queue.Pull(pb.PullRequest(queues=["q"], wait_ms=wait_ms, worker="w")).job


def test_a_job_goes_its_way(served: Served):
    queue = served.queue()
    reply = queue.Push(pb.PushRequest(queue="q", payload=b"work", options=pb.Options(priority=7), durability="memory"))
    assert (reply.created, reply.level, reply.HasField("duplicate_by")) == (True, "memory", False)
    job = pulled(queue)
    assert (job.id, job.queue, job.payload, job.options.priority, job.attempt) == (reply.id, "q", b"work", 7, 1)
    assert job.lease_until > job.pushed_at > 0
    assert queue.GetState(pb.GetStateRequest(id=job.id)).state == "active"
    assert queue.Ack(pb.AckRequest(id=job.id, token=job.token, result=b"done")).count == 1
    view = queue.GetJob(pb.GetJobRequest(id=job.id))
    assert (view.state, view.result, view.worker, view.attempts) == ("completed", b"done", "w", 1)


def test_an_empty_queue_gives_no_job(served: Served):
    queue = served.queue()
    pushed(queue, delay_ms=60_000)
    reply = queue.Pull(pb.PullRequest(queues=["q"]))
    assert not reply.HasField("job")
    assert reply.next_at > 0


def test_a_duplicate_is_told(served: Served):
    queue = served.queue()
    first = pushed(queue, custom_id="a")
    again = queue.Push(pb.PushRequest(queue="q", payload=b"", options=pb.Options(custom_id="a")))
    assert (again.id, again.created, again.duplicate_by) == (first, False, "custom_id")


def test_a_batch_has_its_ids_as_a_range(served: Served):
    queue = served.queue()
    payloads = [b"%d" % number for number in range(1_000)]
    reply = queue.PushBatch(pb.PushBatchRequest(queue="q", payloads=payloads))
    assert len(reply.ids.ranges) == 1
    assert not reply.ids.list
    delivery = queue.PullBatch(pb.PullBatchRequest(queues=["q"], count=1_000))
    assert [payload for run in delivery.runs for payload in run.payloads] == payloads
    assert m.read_ids(delivery.runs[0].ids) == m.read_ids(reply.ids)
    settled = queue.AckBatch(pb.AckBatchRequest(ids=reply.ids, tokens=[delivery.token]))
    assert (settled.count, dict(settled.refused)) == (1_000, {})


def test_each_item_of_a_batch_has_an_outcome(served: Served):
    queue = served.queue()
    each = [pb.Options(), pb.Options(priority=2**60), pb.Options(custom_id="a"), pb.Options(custom_id="a")]
    reply = queue.PushBatch(pb.PushBatchRequest(queue="q", payloads=[b"1", b"2", b"3", b"4"], each=each))
    ids = list(m.read_ids(reply.ids))
    assert ids[1] == 0
    assert ids[2] == ids[3] > ids[0] > 0
    assert {item: refusal.code for item, refusal in reply.refused.items()} == {1: "invalid"}
    assert dict(reply.duplicates) == {3: "custom_id"}


def test_an_atomic_batch_is_refused_as_a_whole(served: Served):
    queue = served.queue()
    each = [pb.Options(), pb.Options(priority=2**60)]
    request = pb.PushBatchRequest(queue="q", payloads=[b"1", b"2"], each=each, atomic=True)
    assert code_of(failure(lambda: queue.PushBatch(request))) == "invalid"
    assert queue.Stats(pb.StatsRequest()).counts.waiting == 0


def test_the_same_request_key_makes_no_second_job(served: Served):
    queue = served.queue()
    request = pb.PushBatchRequest(queue="q", payloads=[b"1", b"2"], request_key="k")
    assert queue.PushBatch(request).ids == queue.PushBatch(request).ids
    assert queue.Stats(pb.StatsRequest(queue="q")).counts.waiting == 2


def test_results_of_a_batch_are_kept_one_by_one(served: Served):
    queue = served.queue()
    ids = queue.PushBatch(pb.PushBatchRequest(queue="q", payloads=[b"1", b"2"])).ids
    token = queue.PullBatch(pb.PullBatchRequest(queues=["q"], count=2)).token
    queue.AckBatch(pb.AckBatchRequest(ids=ids, tokens=[token, token], results=[b"null", b"2"], codec="json"))
    views = [queue.GetJob(pb.GetJobRequest(id=job_id)) for job_id in m.read_ids(ids)]
    assert [(view.result, view.result_codec) for view in views] == [(b"null", "json"), (b"2", "json")]


def test_a_failed_job_is_tried_again(served: Served):
    queue = served.queue()
    job_id = pushed(queue, backoff=pb.Backoff(kind="fixed", base_ms=60_000, jitter="none"))
    job = pulled(queue)
    failed = queue.Fail(pb.FailRequest(ids=pb.Ids(list=[job_id]), tokens=[job.token], error="no", delay_ms=0))
    assert [(one.id, one.state) for one in failed.jobs] == [(job_id, "waiting")]
    job = pulled(queue)
    assert job.attempt == 2
    failed = queue.Fail(pb.FailRequest(ids=pb.Ids(list=[job_id]), tokens=[job.token], error="never", retry=False))
    assert failed.jobs[0].state == "failed"
    view = queue.GetJob(pb.GetJobRequest(id=job_id))
    assert (view.error, view.dead.reason, view.history[0].error) == ("never", "explicit_fail", "no")


def test_a_released_job_loses_no_attempt(served: Served):
    queue = served.queue()
    pushed(queue)
    job = pulled(queue)
    assert queue.Release(pb.ReleaseRequest(ids=pb.Ids(list=[job.id]), tokens=[job.token])).count == 1
    assert pulled(queue).attempt == 1


def test_a_lease_is_renewed_and_a_cancelled_job_is_told(served: Served):
    queue = served.queue()
    pushed(queue)
    job = pulled(queue)
    served.on_loop(lambda server: server.dispatcher.call("default", cancel(job.id)))
    renewed = queue.Extend(pb.ExtendRequest(ids=pb.Ids(list=[job.id]), tokens=[job.token], lease_ms=600_000))
    assert renewed.count == 1
    assert renewed.lease_until > job.lease_until
    assert list(renewed.cancelled) == [job.id]


def cancel(job_id: int) -> Any:
    return Cancel(job_id)


@pytest.mark.parametrize("name", ["AckBatch", "Fail", "Release", "Extend"])
def test_settling_needs_the_token_of_the_delivery(served: Served, name: str):
    queue = served.queue()
    pushed(queue)
    job = pulled(queue)
    request = {"AckBatch": pb.AckBatchRequest, "Fail": pb.FailRequest}.get(name) or getattr(pb, f"{name}Request")
    without = failure(lambda: getattr(queue, name)(request(ids=pb.Ids(list=[job.id]))))
    assert code_of(without) == "invalid"
    wrong = getattr(queue, name)(request(ids=pb.Ids(list=[job.id]), tokens=[job.token + 1]))
    assert dict(wrong.refused) == {job.id: "lost_lease"}
    assert queue.GetState(pb.GetStateRequest(id=job.id)).state == "active"


def test_asking_again_with_a_claim_brings_the_same_jobs(served: Served):
    queue = served.queue()
    pushed(queue)
    request = pb.PullBatchRequest(queues=["q"], count=10, claim="c")
    assert queue.PullBatch(request) == queue.PullBatch(request)


def test_a_waiting_pull_gets_the_next_job(served: Served):
    queue = served.queue()
    waiting = queue.Pull.future(pb.PullRequest(queues=["q"], wait_ms=20_000))
    served.until(lambda server: server.dispatcher.is_waiting)
    job_id = pushed(served.queue())
    assert waiting.result(60).job.id == job_id


def test_a_cancelled_call_gives_its_pull_up(served: Served):
    queue = served.queue()
    waiting = queue.Pull.future(pb.PullRequest(queues=["q"], wait_ms=60_000))
    served.until(lambda server: server.dispatcher.is_waiting)
    waiting.cancel()
    served.until(lambda server: not server.dispatcher.is_waiting)
    pushed(queue)
    assert pulled(queue).attempt == 1


def test_a_client_that_disconnects_gives_its_pull_up(served: Served):
    channel = served.channel()
    waiting = served.queue(channel).Pull.future(pb.PullRequest(queues=["q"], wait_ms=60_000))
    served.until(lambda server: server.dispatcher.is_waiting)
    channel.close()
    assert waiting.done()
    served.until(lambda server: not server.dispatcher.is_waiting)


def test_a_range_that_is_too_long_is_refused_before_it_is_unfolded(served: Served):
    endless = pb.Ids(ranges=[pb.IdRange(start=1, count=2**62), pb.IdRange(start=1, count=1)])
    request = pb.AckBatchRequest(ids=endless, tokens=[1])
    assert code_of(failure(lambda: served.queue().AckBatch(request))) == "invalid"


# --- messages and the contract ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", list(SAMPLES))
def test_every_option_comes_through_and_back(option: str):
    options = Options(**{option: SAMPLES[option]})
    there = m.shown_options(options)
    assert [field.name for field, _ in there.ListFields()] == [option]
    assert m.read_options(pb.Options.FromString(there.SerializeToString())) == options


def test_options_with_parts_come_through_and_back():
    options = Options(
        backoff=Backoff(kind="linear", base_ms=5, cap_ms=7, jitter="none"),
        depends_on=(Dependency(id=3, on_failure="cancel"), Dependency(item=0)),
        tags=("a", "b"),
        max_attempts=0,
        codec="json",
    )
    assert m.read_options(m.shown_options(options)) == options


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (pb.Options, Options),
        (pb.Backoff, Backoff),
        (pb.Dependency, Dependency),
        (pb.JobView, r.JobView),
        (pb.Attempt, r.Attempt),
        (pb.DeadLetter, r.DeadLetter),
        (pb.Progress, r.Progress),
        (pb.Counts, r.Counts),
        (pb.Totals, r.Totals),
        (pb.StatsReply, r.Stats),
        (pb.Job, r.DeliveredJob),
        (pb.Run, r.Run),
        (pb.Delivery, r.Delivery),
        (pb.Settled, r.Settled),
        (pb.Failed, r.Failed),
        (pb.FailedJob, r.FailedJob),
        (pb.Extended, r.Extended),
        (pb.PushReply, r.Pushed),
        (pb.PushBatchReply, r.PushedBatch),
    ],
)
def test_a_message_has_the_fields_of_its_value(message: Any, kind: Any):
    assert [field.name for field in message.DESCRIPTOR.fields] == [field.name for field in msgspec.structs.fields(kind)]
