"""Streams of work: jobs go out as far as the credit reaches, results come in.

A stream is a pull that goes on. What it has taken and cannot send goes back at once, uncounted; what was sent stays
leased when the stream ends, because its worker may live on and settle it over another one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, StokerError, Unknown
from stoker.proto import stoker_pb2 as pb
from stoker.server.grpc import messages as m
from stoker.server.grpc.caller import Caller
from stoker.server.grpc.credit import Account, Accounts
from stoker.server.service import Service, check_tokens

log = logging.getLogger("stoker.server")

WAIT_MS = 30_000
"""Of one pull of a stream; then it asks again, and the caller's rights are looked at again."""

Pieces = Iterator[tuple[Sequence[int], Any]]
"""The messages that a delivery is sent as, each with the ids of its jobs."""
Send = Callable[[Any], Awaitable[None]]


def read_open(message: Any) -> c.Pull:
    """What a stream pulls."""
    return c.Pull(list(message.queues), 1, WAIT_MS, message.worker, **m.optional(message, "lease_ms"))


class JobStream:
    """One stream's way out."""

    def __init__(
        self, service: Service, accounts: Accounts, caller: Caller, account: Account, pull: c.Pull, batch_max: int = 0
    ) -> None:
        limits = service.config.limits
        self._service, self._accounts = service, accounts
        self._caller, self._account = caller, account
        self._pull = msgspec.structs.replace(pull, wait_ms=min(pull.wait_ms, limits.wait_ms_max))
        self._batch_max = min(batch_max or limits.pull_jobs_max, limits.pull_jobs_max)

    async def run(self, pieces: Callable[[r.Delivery], Pieces], send: Send) -> None:
        """Until it is cancelled, or the server stops, or the caller has lost the right to."""
        dispatcher, tenant = self._service.dispatcher, self._account.tenant
        while True:
            count = min(await self._account.some(), self._batch_max)
            self._caller.check("consume")
            pull = msgspec.structs.replace(self._pull, count=count)
            delivery = await self._service.call(tenant, pull)
            if not delivery.runs:
                continue
            sent = 0
            try:
                self._caller.check("consume")
                self._accounts.sent(self._account, delivery)
                for ids, message in pieces(delivery):
                    await send(message)
                    sent += len(ids)
            except BaseException:
                dispatcher.return_unsent(tenant, pull, delivery, received=sent)
                raise


class Processing:
    """One worker on a bidirectional stream."""

    def __init__(self, service: Service, accounts: Accounts, caller: Caller) -> None:
        self._service, self._accounts, self._caller = service, accounts, caller
        self._answers: asyncio.Queue[Awaitable[Any] | None] = asyncio.Queue(
            service.config.server.requests_in_flight_max
        )
        """What results have led to, in the order of the results. A worker that reads none of it is not read from."""
        self._writing = asyncio.Lock()

    async def run(self, requests: AsyncIterator[Any]) -> None:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "open":
            raise InvalidRequest("invalid stream: the first message must be `open`")
        pull = read_open(first.open)
        tenant = self._caller.admit(pull)
        with self._accounts.open(tenant, first.open.credit) as account:
            await self._say({"opened": pb.Opened(stream=account.name)})
            feed = JobStream(self._service, self._accounts, self._caller, account, pull, first.open.batch_max)
            tasks = [asyncio.create_task(self._feed(feed)), asyncio.create_task(self._answer())]
            try:
                async for request in requests:
                    await self._answers.put(self._take(account, request))
                await self._answers.put(None)
                await tasks[1]
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._abandon()

    def _take(self, account: Account, request: Any) -> Awaitable[Any]:
        """Begin to carry a message out; its answer is awaited in its turn."""
        kind = request.WhichOneof("message")
        return asyncio.ensure_future(self._carry_out(account, kind, request))

    async def _carry_out(self, account: Account, kind: str | None, request: Any) -> dict[str, Any] | None:
        try:
            if kind == "credit":
                account.grant(request.credit.credit)
                return None
            if kind == "result":
                return {"settled": m.settled_by(await self._settle(m.result(request.result)))}
            if kind == "acks":
                return {"settled": m.settled_by(await self._settle(m.ack_batch(request.acks)))}
            if kind == "extend":
                return {"extended": m.extended(await self._settle(m.extend(request.extend)))}
            raise InvalidRequest("invalid message: expected one of result, acks, credit and extend after `open`")
        except StokerError as error:
            return {"refused": pb.Refusal(code=error.code, message=str(error))}
        except Exception:
            log.exception("a %s of a stream failed unexpectedly", kind)
            return {"refused": pb.Refusal(code=Unknown.code, message=f"it is not known whether this {kind} happened")}

    async def _settle(self, command: Any) -> Any:
        check_tokens(command)
        tenant = self._caller.admit(command)
        reply = await self._service.call(tenant, command)
        self._accounts.settled(tenant, command)
        return reply

    async def _answer(self) -> None:
        while (answer := await self._answers.get()) is not None:
            said = await answer
            if said is not None:
                await self._say(said)

    async def _feed(self, feed: JobStream) -> None:
        def pieces(delivery: r.Delivery) -> Pieces:
            yield delivery.ids, {"delivery": m.delivered(delivery)}

        try:
            await feed.run(pieces, self._say)
        except StokerError as error:
            await self._say({"ending": pb.Refusal(code=error.code, message=str(error))})

    async def _say(self, said: dict[str, Any]) -> None:
        async with self._writing:
            await self._caller.write(pb.ProcessJobsReply(**said))

    def _abandon(self) -> None:
        """The client no longer reads answers; what it sent is carried out all the same."""
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            if isinstance(answer, asyncio.Future) and answer.done() and not answer.cancelled():
                answer.exception()
