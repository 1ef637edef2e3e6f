"""The service `flashq.QueueService`: flashQ's calls, as far as they are known, on top of the same commands.

Its clients know no tokens, so everything acts on the current delivery, as on the other transports of that dialect.
Unlike flashQ's own server this one asks who calls: the same gate stands before it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, InvalidRequest, NotFound, StokerError
from stoker.model.options import DEFAULT_OPTIONS, Backoff, Dependency, Options
from stoker.model.states import State
from stoker.proto import flashq_pb2 as pb
from stoker.server.grpc.caller import Caller
from stoker.server.grpc.credit import Accounts
from stoker.server.grpc.streams import WAIT_MS, Feed, Pieces
from stoker.server.service import Service
from stoker.wire.flashq.payloads import shown

COUNT_MAX = 1_000
BATCH_MAX, PREFETCH_MAX = 100, 1_000
PROCESSED_QUEUE = "default"

STATES = {
    State.WAITING: pb.WAITING,
    State.DELAYED: pb.DELAYED,
    State.BLOCKED: pb.WAITING_CHILDREN,
    State.ACTIVE: pb.ACTIVE,
    State.COMPLETED: pb.COMPLETED,
    State.FAILED: pb.FAILED,
}


class QueueService:
    def __init__(self, service: Service, accounts: Accounts) -> None:
        self._service = service
        self._accounts = accounts

    async def Push(self, caller: Caller, request: Any) -> Any:
        command = c.Push(request.queue, data_of(request), options_of(request))
        return pb.PushResponse(ok=True, id=(await self._do(caller, command)).id)

    async def PushBatch(self, caller: Caller, request: Any) -> Any:
        jobs = request.jobs
        command = c.PushBatch(request.queue, [data_of(job) for job in jobs], each=[options_of(job) for job in jobs])
        return pb.PushBatchResponse(ok=True, ids=(await self._do(caller, command)).ids)

    async def Pull(self, caller: Caller, request: Any) -> Any:
        (job,) = await self._pull(caller, request.queue, 1)
        return job_of(job)

    async def PullBatch(self, caller: Caller, request: Any) -> Any:
        count = min(max(request.count, 1), COUNT_MAX)
        return pb.PullBatchResponse(jobs=[job_of(job) for job in await self._pull(caller, request.queue, count)])

    async def Ack(self, caller: Caller, request: Any) -> Any:
        await self._settle(caller, c.Ack([request.id], None, results_of(request), codec="json"))
        return pb.AckResponse(ok=True)

    async def AckBatch(self, caller: Caller, request: Any) -> Any:
        settled = await self._do(caller, c.Ack(list(request.ids)))
        return pb.AckBatchResponse(ok=True, acked=settled.count)

    async def Fail(self, caller: Caller, request: Any) -> Any:
        await self._settle(caller, c.Fail([request.id], None, request.error))
        return pb.FailResponse(ok=True)

    async def GetState(self, caller: Caller, request: Any) -> Any:
        try:
            state = STATES.get((await self._do(caller, c.GetJob(request.id))).state, pb.UNKNOWN)
        except NotFound:
            state = pb.UNKNOWN
        return pb.GetStateResponse(id=request.id, state=state)

    async def Stats(self, caller: Caller, request: Any) -> Any:
        counts = (await self._do(caller, c.GetStats())).counts
        return pb.StatsResponse(
            queued=counts.waiting, processing=counts.active, delayed=counts.delayed, dlq=counts.failed
        )

    # --- streams ---------------------------------------------------------------------------------

    async def StreamJobs(self, caller: Caller, request: Any) -> None:
        prefetch = min(max(request.prefetch, 1), PREFETCH_MAX)
        batch = min(max(request.batch_size, 1), BATCH_MAX)
        await self._stream(caller, request.queue, prefetch, batch)

    async def ProcessJobs(self, caller: Caller, requests: AsyncIterator[Any]) -> None:
        feeding = asyncio.create_task(self._stream(caller, PROCESSED_QUEUE, 1, 1))
        reading = asyncio.create_task(self._results(caller, requests))
        try:
            done, _ = await asyncio.wait((feeding, reading), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            feeding.cancel()
            reading.cancel()
            await asyncio.gather(feeding, reading, return_exceptions=True)

    async def _stream(self, caller: Caller, queue: str, prefetch: int, batch: int) -> None:
        pull = c.Pull([queue], 1, WAIT_MS)
        tenant = caller.admit(pull)

        def pieces(delivery: r.Delivery) -> Pieces:
            return (((job.id,), job_of(job)) for job in delivery)

        with self._accounts.open(tenant, prefetch) as account:
            await Feed(self._service, self._accounts, caller, account, pull, batch).run(pieces, caller.write)

    async def _results(self, caller: Caller, results: AsyncIterator[Any]) -> None:
        async for result in results:
            if result.success:
                await self._do(caller, c.Ack([result.id], None, results_of(result), codec="json"))
            else:
                await self._do(caller, c.Fail([result.id], None, result.error))

    # --- commands --------------------------------------------------------------------------------

    async def _do(self, caller: Caller, command: c.Command[Any]) -> Any:
        tenant = caller.admit(command)
        reply = await caller.carry_out(tenant, command)
        self._accounts.settled(tenant, command)
        return reply

    async def _settle(self, caller: Caller, command: c.Ack | c.Fail) -> None:
        """One job, or the reason why not."""
        reply = await self._do(caller, command)
        for job_id, code in reply.refused.items():
            raise BY_CODE.get(code, StokerError)(f"job {job_id} cannot be settled: {WORDS.get(code, code)}")

    async def _pull(self, caller: Caller, queue: str, count: int) -> r.Delivery:
        """Wait for jobs for as long as the caller does."""
        wait_ms = min(WAIT_MS, self._service.config.limits.wait_ms_max)
        while True:
            command = c.Pull([queue], count, wait_ms)
            delivery: r.Delivery = await self._do(caller, command)
            if delivery.runs:
                return delivery


WORDS = {"not_found": "job not found", "wrong_state": "job not found among those that run"}


_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def data_of(request: Any) -> bytes:
    return json_of(request.data, "data") if request.data else b"null"


def results_of(message: Any) -> list[bytes] | None:
    return [json_of(message.result, "result")] if message.HasField("result") else None


def json_of(value: bytes, name: str) -> bytes:
    """The bytes as they came, if they are what they must be."""
    try:
        _check_json(value)
        str(value, "utf-8")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"invalid {name}: expected JSON; {error}") from None
    return value


def options_of(request: Any) -> Options:
    default = DEFAULT_OPTIONS
    return Options(
        priority=request.priority,
        delay_ms=request.delay_ms,
        ttl_ms=request.ttl_ms,
        timeout_ms=request.timeout_ms,
        max_attempts=request.max_attempts or default.max_attempts,
        backoff=Backoff(base_ms=request.backoff_ms) if request.backoff_ms else default.backoff,
        unique_key=request.unique_key or None,
        depends_on=tuple(Dependency(id=job_id) for job_id in request.depends_on),
        lifo=request.lifo,
        codec="json",
    )


def job_of(job: r.DeliveredJob) -> Any:
    options = job.options
    return pb.Job(
        id=job.id,
        queue=job.queue,
        data=bytes(shown(job.payload, options.codec, "json")),
        priority=max(-(2**31), min(options.priority, 2**31 - 1)),
        created_at=job.pushed_at,
        run_at=max(job.pushed_at + options.delay_ms, options.run_at or 0),
        attempts=job.attempt,
        max_attempts=options.max_attempts,
        backoff_ms=options.backoff.base_ms,
        ttl_ms=options.ttl_ms,
        timeout_ms=options.timeout_ms,
        unique_key=options.unique_key,
        depends_on=[edge.id for edge in options.depends_on if edge.item is None],
        lifo=options.lifo,
    )
