"""Streams send as much as the client can hold, and nothing is lost when one ends."""

import asyncio
import queue as queues
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from stoker.model import commands as c
from stoker.proto import stoker_pb2 as pb
from stoker.server.config.tree import ServerLimits
from stoker.server.grpc import messages as m
from stoker.server.grpc.caller import Caller
from stoker.server.grpc.credit import CREDIT_MAX, Accounts
from stoker.server.grpc.streams import JobStream
from stoker.server.server import Server
from tests.grpc.conftest import Serve
from tests.grpc.support import PATIENCE_S, Served, code_of, failure, with_changes


def push(caller: Any, count: int) -> None:
    caller.PushBatch(pb.PushBatchRequest(queue="q", payloads=[b"%d" % number for number in range(count)]))


def active(server: Server) -> int:
    return sum(stats.counts.active for stats in server.dispatcher.counters.shard_stats())


def pull(caller: Any, count: int = 100, wait_ms: int = 0) -> Any:
    return caller.PullBatch(pb.PullBatchRequest(queues=["q"], count=count, wait_ms=wait_ms))


class Stream:
    """A client of StreamJobs."""

    def __init__(self, served: Served, caller: Any, **request: Any) -> None:
        self.served = served
        self.call = caller.StreamJobs(pb.StreamJobsRequest(queues=["q"], **request), timeout=PATIENCE_S)
        self.name = next(self.call).opened.stream

    def jobs(self, count: int) -> list[tuple[int, int, bytes]]:
        """So many: id, token, payload."""
        found: list[tuple[int, int, bytes]] = []
        while len(found) < count:
            delivery = next(self.call).delivery
            for run in delivery.runs:
                ids = m.read_ids(run.ids)
                found += ((job_id, delivery.token, payload) for job_id, payload in zip(ids, run.payloads, strict=True))
        assert len(found) == count
        return found


# --- StreamJobs ------------------------------------------------------------------------------------------------------


def test_a_stream_sends_what_its_client_can_hold(served: Served):
    caller = served.queue()
    push(caller, 10)
    stream = Stream(served, caller, credit=3)
    assert [payload for _, _, payload in stream.jobs(3)] == [b"0", b"1", b"2"]
    stats = caller.Stats(pb.StatsRequest(queue="q")).counts
    assert (stats.active, stats.waiting) == (3, 7)


def test_an_ack_gives_its_credit_back(served: Served):
    caller = served.queue()
    push(caller, 5)
    stream = Stream(served, caller, credit=2)
    (first, token, _), _ = stream.jobs(2)
    caller.Ack(pb.AckRequest(id=first, token=token))
    assert [payload for _, _, payload in stream.jobs(1)] == [b"2"]
    assert caller.Stats(pb.StatsRequest(queue="q")).counts.active == 2


@pytest.mark.parametrize("verb", ["Fail", "Release", "AckBatch"])
def test_whatever_settles_a_job_gives_its_credit_back(served: Served, verb: str):
    caller = served.queue()
    push(caller, 2)
    stream = Stream(served, caller, credit=1)
    ((job_id, token, _),) = stream.jobs(1)
    more = {"retry": False} if verb == "Fail" else {"delay_ms": 60_000} if verb == "Release" else {}
    getattr(caller, verb)(getattr(pb, f"{verb}Request")(ids=pb.Ids(list=[job_id]), tokens=[token], **more))
    assert [payload for _, _, payload in stream.jobs(1)] == [b"1"]


def test_a_job_that_was_lost_gives_its_credit_back_when_its_worker_learns_it(served: Served):
    caller = served.queue()
    push(caller, 1)
    stream = Stream(served, caller, credit=1)
    ((job_id, token, _),) = stream.jobs(1)
    served.on_loop(lambda server: server.dispatcher.call("default", c.Release([job_id], token)))
    late = caller.AckBatch(pb.AckBatchRequest(ids=pb.Ids(list=[job_id]), tokens=[token]))
    assert dict(late.refused) == {job_id: "lost_lease"}
    ((again, other_token, _),) = stream.jobs(1)
    assert again == job_id
    assert other_token != token


def test_another_token_gives_no_credit_back(served: Served):
    caller = served.queue()
    push(caller, 2)
    stream = Stream(served, caller, credit=1)
    ((job_id, token, _),) = stream.jobs(1)
    caller.AckBatch(pb.AckBatchRequest(ids=pb.Ids(list=[job_id]), tokens=[token + 1]))
    granted = caller.GrantCredit(pb.GrantCreditRequest(stream=stream.name, credit=0))
    assert granted.credit == 0
    assert caller.Stats(pb.StatsRequest(queue="q")).counts.waiting == 1


def test_credit_can_be_granted(served: Served):
    caller = served.queue()
    push(caller, 3)
    stream = Stream(served, caller, credit=0)
    caller.GrantCredit(pb.GrantCreditRequest(stream=stream.name, credit=2))
    assert len(stream.jobs(2)) == 2
    assert caller.Stats(pb.StatsRequest(queue="q")).counts.waiting == 1


def test_credit_is_a_number_of_jobs_within_reason(served: Served):
    caller = served.queue()
    stream = Stream(served, caller, credit=1)
    for credit, code in ((-1, "invalid"), (CREDIT_MAX, "limit_exceeded")):
        request = pb.GrantCreditRequest(stream=stream.name, credit=credit)
        assert code_of(failure(partial(caller.GrantCredit, request))) == code
    unknown = pb.GrantCreditRequest(stream="nobody", credit=1)
    assert code_of(failure(lambda: caller.GrantCredit(unknown))) == "not_found"


def test_another_tenant_cannot_reach_a_stream(served: Served):
    caller = served.queue()
    stream = Stream(served, caller, credit=1)
    request = pb.GrantCreditRequest(stream=stream.name, credit=1)
    error = failure(lambda: caller.GrantCredit(request, metadata=(("stoker-tenant", "other"),)))
    assert code_of(error) == "not_found"


def test_a_message_has_at_most_so_many_jobs(served: Served):
    caller = served.queue()
    push(caller, 5)
    stream = Stream(served, caller, credit=5, batch_max=2)
    sizes = [sum(len(run.payloads) for run in next(stream.call).delivery.runs) for _ in range(3)]
    assert sizes == [2, 2, 1]


def test_a_job_that_comes_later_is_sent_at_once(served: Served):
    caller = served.queue()
    stream = Stream(served, caller, credit=5)
    served.until(lambda server: server.dispatcher.is_waiting)
    push(caller, 1)
    assert len(stream.jobs(1)) == 1


def test_jobs_that_were_sent_keep_their_leases_when_the_stream_ends(served: Served):
    caller = served.queue()
    push(caller, 2)
    stream = Stream(served, caller, credit=1)
    ((job_id, token, _),) = stream.jobs(1)
    stream.call.cancel()
    (run,) = pull(caller).runs
    assert list(run.payloads) == [b"1"]
    assert caller.Ack(pb.AckRequest(id=job_id, token=token)).count == 1


def test_a_stream_that_ended_takes_no_more_jobs(served: Served):
    channel = served.channel()
    stream = Stream(served, served.queue(channel), credit=10)
    served.until(lambda server: server.dispatcher.is_waiting)
    channel.close()
    assert stream.call.done()
    caller = served.queue()
    push(caller, 3)
    found: list[int] = []
    while len(found) < 3:
        found += (run.attempt for run in pull(caller, wait_ms=10_000).runs for _ in run.payloads)
    assert found == [1, 1, 1]


class Nobody:
    """What a call tells about a caller on this machine."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


def test_jobs_that_were_not_sent_go_back_uncounted(served: Served):
    """The stream ends after the second of five messages, while the third is on its way."""
    push(served.queue(), 5)
    sent: list[Any] = []

    async def feed(server: Server) -> None:
        accounts = Accounts(streams_max=1)
        caller = Caller(server.service, Nobody())

        async def send(message: Any) -> None:
            if len(sent) == 2:
                raise asyncio.CancelledError
            sent.append(message)

        def pieces(delivery: Any) -> Iterator[tuple[list[int], int]]:
            return (([job_id], job_id) for job_id in delivery.ids)

        with accounts.open("default", 5) as account:
            try:
                await JobStream(server.service, accounts, caller, account, c.Pull(["q"])).run(pieces, send)
            except asyncio.CancelledError:
                pass

    served.on_loop(feed)
    served.until(lambda server: active(server) == 2)
    delivery = pull(served.queue())
    assert [run.attempt for run in delivery.runs for _ in run.payloads] == [1, 1, 1]
    assert not set(sent) & {job_id for run in delivery.runs for job_id in m.read_ids(run.ids)}


def test_too_many_streams_are_refused(serve: Serve):
    served = serve(with_changes(server=ServerLimits(streams_max=1)))
    caller = served.queue()
    stream = Stream(served, caller, credit=1)
    refused = caller.StreamJobs(pb.StreamJobsRequest(queues=["q"], credit=1))
    assert code_of(failure(lambda: next(refused))) == "busy"
    served.until(lambda server: server.dispatcher.is_waiting)
    stream.call.cancel()
    served.until(lambda server: not server.dispatcher.is_waiting)
    assert Stream(served, caller, credit=1).name != stream.name


def test_a_stopping_server_ends_streams_and_still_takes_results(served: Served):
    caller = served.queue()
    push(caller, 1)
    stream = Stream(served, caller, credit=2)
    ((job_id, token, _),) = stream.jobs(1)
    served.until(lambda server: server.dispatcher.is_waiting)
    served.on_loop(lambda server: server.dispatcher.stop_dispatching())
    assert code_of(failure(lambda: next(stream.call))) == "shutting_down"
    assert caller.Ack(pb.AckRequest(id=job_id, token=token)).count == 1


# --- ProcessJobs -----------------------------------------------------------------------------------------------------


class Worker:
    """A client of ProcessJobs: messages go in one by one, replies come out."""

    def __init__(self, caller: Any, **request: Any) -> None:
        self._out: queues.Queue[Any] = queues.Queue()
        self.say(open=pb.StreamJobsRequest(queues=["q"], **request))
        self.call = caller.ProcessJobs(iter(self._out.get, None), timeout=PATIENCE_S)

    def say(self, **message: Any) -> None:
        self._out.put(pb.ProcessJobsRequest(**message))

    def close(self) -> None:
        """Nothing more will be said."""
        self._out.put(None)

    def next(self, kind: str) -> Any:
        reply = next(self.call)
        assert reply.WhichOneof("message") == kind, reply
        return getattr(reply, kind)

    def job(self) -> tuple[int, int]:
        delivery = self.next("delivery")
        ((job_id,),) = (m.read_ids(run.ids) for run in delivery.runs)
        return job_id, delivery.token


@pytest.fixture
def worker(served: Served) -> Iterator[Worker]:
    push(served.queue(), 3)
    worker = Worker(served.queue(), credit=1)
    worker.next("opened")
    yield worker
    worker.close()


def test_each_result_brings_the_next_job(served: Served, worker: Worker):
    caller = served.queue()
    done, failed, back = pb.Done(result=b"1"), pb.Failure(error="no", retry=False), pb.Handback(delay_ms=60_000)
    results: tuple[dict[str, Any], ...] = ({"done": done}, {"failure": failed}, {"handback": back})
    ids = []
    for result in results:
        job_id, token = worker.job()
        ids.append(job_id)
        worker.say(result=pb.Result(id=job_id, token=token, **result))
        assert worker.next("settled").count == 1
    states = [caller.GetState(pb.GetStateRequest(id=job_id)).state for job_id in ids]
    assert states == ["completed", "failed", "delayed"]


def test_the_stream_ends_well_when_the_worker_has_said_all(worker: Worker):
    job_id, token = worker.job()
    worker.say(result=pb.Result(id=job_id, token=token, done=pb.Done()))
    worker.close()
    rest = [reply.WhichOneof("message") for reply in worker.call]
    assert "settled" in rest
    assert worker.call.code().name == "OK"


def test_a_worker_acknowledges_many_at_once(served: Served):
    caller = served.queue()
    push(caller, 100)
    worker = Worker(caller, credit=100)
    worker.next("opened")
    delivery = worker.next("delivery")
    worker.say(acks=pb.AckBatchRequest(ids=delivery.runs[0].ids, tokens=[delivery.token]))
    assert worker.next("settled").count == 100
    worker.close()


def test_a_worker_renews_its_lease_and_asks_for_more(worker: Worker):
    job_id, token = worker.job()
    worker.say(extend=pb.ExtendRequest(ids=pb.Ids(list=[job_id]), tokens=[token]))
    assert worker.next("extended").count == 1
    worker.say(credit=pb.Credit(credit=1))
    second, _ = worker.job()
    assert second != job_id


def test_a_bad_message_is_refused_and_the_stream_goes_on(worker: Worker):
    job_id, token = worker.job()
    worker.say(result=pb.Result(id=job_id, token=token))
    assert worker.next("refused").code == "invalid"
    worker.say(credit=pb.Credit(credit=-1))
    assert worker.next("refused").code == "invalid"
    worker.say(result=pb.Result(id=job_id, token=token + 1, done=pb.Done()))
    assert dict(worker.next("settled").refused) == {job_id: "lost_lease"}
    worker.say(result=pb.Result(id=job_id, token=token, done=pb.Done()))
    assert worker.next("settled").count == 1


def test_a_stream_begins_by_saying_what_it_wants(served: Served):
    call = served.queue().ProcessJobs(iter([pb.ProcessJobsRequest(credit=pb.Credit(credit=1))]))
    assert code_of(failure(lambda: next(call))) == "invalid"


def test_a_stopping_server_says_so_and_still_takes_results(served: Served, worker: Worker):
    job_id, token = worker.job()
    worker.say(credit=pb.Credit(credit=5))
    worker.next("delivery")
    served.until(lambda server: server.dispatcher.is_waiting)
    served.on_loop(lambda server: server.dispatcher.stop_dispatching())
    assert worker.next("ending").code == "shutting_down"
    worker.say(result=pb.Result(id=job_id, token=token, done=pb.Done()))
    assert worker.next("settled").count == 1


def test_a_worker_that_disappears_keeps_its_leases_and_takes_no_more(served: Served):
    caller = served.queue()
    push(caller, 2)
    worker = Worker(served.queue(), credit=1)
    worker.next("opened")
    job_id, token = worker.job()
    worker.call.cancel()
    worker.close()
    assert len(pull(caller).runs) == 1
    assert caller.Ack(pb.AckRequest(id=job_id, token=token)).count == 1
