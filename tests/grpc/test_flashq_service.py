"""flashQ's service over gRPC: its calls work on the same jobs as everything else."""

import queue as queues
from pathlib import Path
from typing import Any

import grpc
import pytest

from stoker.model import commands as c
from stoker.proto import flashq_pb2 as pb
from stoker.server.auth.settings import AuthSettings
from tests.grpc.conftest import Serve
from tests.grpc.support import PATIENCE_S, Served, code_of, failure, with_changes


def push(service: Any, queue: str = "q", data: bytes = b'{"a":1}', **more: Any) -> int:
    reply = service.Push(pb.PushRequest(queue=queue, data=data, **more))
    assert reply.ok
    return int(reply.id)


def state(service: Any, job_id: int) -> str:
    return str(pb.JobState.Name(service.GetState(pb.GetStateRequest(id=job_id)).state))


def test_a_job_goes_its_way(served: Served):
    service = served.flashq()
    job_id = push(service, priority=3, max_attempts=5, backoff_ms=20, unique_key="u", ttl_ms=9_000, timeout_ms=8_000)
    assert state(service, job_id) == "WAITING"
    job = service.Pull(pb.PullRequest(queue="q"))
    assert (job.id, job.queue, job.data, job.priority, job.attempts) == (job_id, "q", b'{"a":1}', 3, 1)
    assert (job.max_attempts, job.backoff_ms, job.unique_key) == (5, 20, "u")
    assert (job.ttl_ms, job.timeout_ms) == (9_000, 8_000)
    assert state(service, job_id) == "ACTIVE"
    assert service.Ack(pb.AckRequest(id=job_id, result=b"[2]")).ok
    assert state(service, job_id) == "COMPLETED"
    view = served.on_loop(lambda server: server.desk.call("default", c.GetJob(job_id)))
    assert (view.result, view.result_codec, view.options.codec) == (b"[2]", "json", "json")


def test_states_have_flashqs_names(served: Served):
    service = served.flashq()
    first = push(service)
    assert state(service, push(service, depends_on=[first])) == "WAITING_CHILDREN"
    assert state(service, push(service, delay_ms=60_000)) == "DELAYED"
    assert state(service, 123_456) == "UNKNOWN"


def test_batches(served: Served):
    service = served.flashq()
    jobs = [pb.PushRequest(data=b"%d" % number, lifo=False) for number in range(5)]
    ids = list(service.PushBatch(pb.PushBatchRequest(queue="q", jobs=jobs)).ids)
    assert len(set(ids)) == 5
    pulled = service.PullBatch(pb.PullBatchRequest(queue="q", count=3)).jobs
    assert [(job.id, job.data) for job in pulled] == [(ids[0], b"0"), (ids[1], b"1"), (ids[2], b"2")]
    assert service.AckBatch(pb.AckBatchRequest(ids=[*ids[:3], 777])).acked == 3
    stats = service.Stats(pb.StatsRequest())
    assert (stats.queued, stats.processing, stats.delayed, stats.dlq) == (2, 0, 0, 0)


def test_a_failed_job_is_tried_again_or_dead(served: Served):
    service = served.flashq()
    job_id = push(service, max_attempts=1)
    service.Pull(pb.PullRequest(queue="q"))
    assert service.Fail(pb.FailRequest(id=job_id, error="no")).ok
    assert state(service, job_id) == "FAILED"
    assert service.Stats(pb.StatsRequest()).dlq == 1


def test_settling_what_does_not_run_is_an_error(served: Served):
    service = served.flashq()
    job_id = push(service)
    for call in (lambda: service.Ack(pb.AckRequest(id=job_id)), lambda: service.Fail(pb.FailRequest(id=4_242))):
        error = failure(call)
        assert error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
        assert "job not found" in error.details()


def test_a_pull_waits_until_there_is_a_job(served: Served):
    waiting = served.flashq().Pull.future(pb.PullRequest(queue="q"), timeout=PATIENCE_S)
    served.until(lambda server: server.desk.is_waiting)
    job_id = push(served.flashq())
    assert waiting.result(PATIENCE_S).id == job_id


def test_payloads_of_other_clients_are_shown_as_json(served: Served):
    served.on_loop(lambda server: server.desk.call("default", c.Push("q", b"\xff")))
    assert served.flashq().Pull(pb.PullRequest(queue="q")).data == b'{"$bytes":"/w=="}'


def test_a_stream_holds_as_many_as_it_may_prefetch(served: Served):
    service = served.flashq()
    ids = [push(service) for _ in range(5)]
    stream = service.StreamJobs(pb.StreamJobsRequest(queue="q", batch_size=100, prefetch=2), timeout=PATIENCE_S)
    assert [next(stream).id for _ in range(2)] == ids[:2]
    assert service.Stats(pb.StatsRequest()).processing == 2
    service.Ack(pb.AckRequest(id=ids[0]))
    assert next(stream).id == ids[2]
    service.AckBatch(pb.AckBatchRequest(ids=ids[1:3]))
    assert [next(stream).id for _ in range(2)] == ids[3:]
    stream.cancel()


def test_a_worker_of_the_default_queue_gets_one_job_after_another(served: Served):
    service = served.flashq()
    good, bad = push(service, "default"), push(service, "default", max_attempts=1)
    results: queues.Queue[Any] = queues.Queue()
    jobs = service.ProcessJobs(iter(results.get, None), timeout=PATIENCE_S)
    assert next(jobs).id == good
    results.put(pb.JobResult(id=good, success=True, result=b"1"))
    assert next(jobs).id == bad
    results.put(pb.JobResult(id=bad, success=False, error="no"))
    results.put(None)
    assert list(jobs) == []
    assert [state(service, job_id) for job_id in (good, bad)] == ["COMPLETED", "FAILED"]


@pytest.mark.parametrize("data", [b"{", b"\xff", b"1 2"])
def test_what_is_not_json_is_refused(served: Served, data: bytes):
    service = served.flashq()
    assert code_of(failure(lambda: service.Push(pb.PushRequest(queue="q", data=data)))) == "invalid"
    batch = pb.PushBatchRequest(queue="q", jobs=[pb.PushRequest(data=data)])
    assert code_of(failure(lambda: service.PushBatch(batch))) == "invalid"
    job_id = push(service)
    service.Pull(pb.PullRequest(queue="q"))
    assert code_of(failure(lambda: service.Ack(pb.AckRequest(id=job_id, result=data)))) == "invalid"
    assert state(service, job_id) == "ACTIVE"


def test_the_same_gate_stands_before_it(serve: Serve, tmp_path: Path):
    served = serve(with_changes(auth=AuthSettings(tokens=("a-token-of-sufficient-length",))))
    service = served.flashq()
    assert code_of(failure(lambda: service.Stats(pb.StatsRequest()))) == "unauthenticated"
    metadata = (("authorization", "Bearer a-token-of-sufficient-length"),)
    assert service.Stats(pb.StatsRequest(), metadata=metadata).queued == 0
