"""The service `stoker.v1.Queue`: each call is one command of the contract, carried out at the dispatcher.

`messages` translates what a call carries, and `caller` says which client calls; this module joins them.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError, Unavailable
from stoker.proto import stoker_pb2 as pb
from stoker.server.grpc import messages as m
from stoker.server.grpc.caller import Caller
from stoker.server.grpc.credit import Accounts
from stoker.server.grpc.streams import JobStream, Pieces, Processing, read_open
from stoker.server.service import Service, check_tokens
from stoker.server.session import Session
from stoker.wire import native
from stoker.wire.frames import Codec, codec_of
from stoker.wire.native_commands import ROWS

Number = tuple[str, str, str | int]
"""A client's connection, its session on it, and its own number of a request."""

GIVEN_UP = "given up by the client"


class QueueService:
    def __init__(self, service: Service, accounts: Accounts) -> None:
        self._service = service
        self._accounts = accounts
        self._waiting: dict[Number, asyncio.Future[Any]] = {}
        """Replies that requests in frames wait for, so that their clients can give them up."""

    # --- any command, in a frame -----------------------------------------------------------------

    async def Call(self, caller: Caller, request: Any) -> Any:
        frame: bytes = request.body
        codec = codec_of(frame, "lengths")
        request_id: str | int | None = None
        try:
            envelope = native.open_envelope(frame, codec)
            request_id = envelope.reqId
            if envelope.cmd in ROWS:
                body = native.answered(await self._command(caller, envelope, codec), request_id, codec)
            elif envelope.cmd == "give_up":
                body = native.answered(self._give_up(caller, native.given_up(envelope, codec)), request_id, codec)
            else:
                body = await self._other(caller, envelope, frame, codec)
        except StokerError as error:
            body = native.refused(error, request_id, codec)
        return pb.Frame(body=body)

    async def _command(self, caller: Caller, envelope: native.Envelope, codec: Codec) -> Any:
        command = native.command_of(envelope, codec)
        tenant = caller.admit_for(envelope.tenant, command)
        if caller.session is None or envelope.reqId is None:
            return await caller.carry_out(tenant, command)
        number = (caller.peer, caller.session, envelope.reqId)
        return await caller.carry_out(tenant, command, partial(self._wait, number))

    async def _wait(self, number: Number, reply: "asyncio.Future[Any]") -> Any:
        self._waiting[number] = reply
        try:
            return await reply
        except asyncio.CancelledError:
            if number in self._waiting:  # not given up: the call itself has ended
                raise
            raise Unavailable(GIVEN_UP) from None
        finally:
            self._waiting.pop(number, None)

    def _give_up(self, caller: Caller, number: str | int) -> dict[str, int]:
        """A reply that is there already is sent all the same: the client can hand its jobs back."""
        key = (caller.peer, caller.session or "", number)
        reply = self._waiting.get(key)
        if reply is None or not reply.cancel():
            return {"count": 0}
        del self._waiting[key]
        return {"count": 1}

    async def _other(self, caller: Caller, envelope: native.Envelope, frame: bytes, codec: Codec) -> bytes:
        """What is not a command of the contract is a session's to answer, as on every transport."""
        session = Session(self._service, loopback=caller.is_local, identity=caller.identity)
        if envelope.tenant is None:
            envelope.tenant = caller.tenant_asked
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        session.request(envelope, frame, codec, answer.set_result)
        try:
            return await answer
        finally:
            session.close()

    # --- typed calls -----------------------------------------------------------------------------

    async def Push(self, caller: Caller, request: Any) -> Any:
        return m.pushed(await self._do(caller, m.push(request)))

    async def PushBatch(self, caller: Caller, request: Any) -> Any:
        return m.pushed_batch(await self._do(caller, m.push_batch(request)))

    async def Pull(self, caller: Caller, request: Any) -> Any:
        return m.pulled(await self._do(caller, m.pull(request)))

    async def PullBatch(self, caller: Caller, request: Any) -> Any:
        return m.delivered(await self._do(caller, m.pull_batch(request)))

    async def Ack(self, caller: Caller, request: Any) -> Any:
        return m.settled(await self._do(caller, m.ack(request)))

    async def AckBatch(self, caller: Caller, request: Any) -> Any:
        return m.settled(await self._do(caller, m.ack_batch(request)))

    async def Fail(self, caller: Caller, request: Any) -> Any:
        return m.failed(await self._do(caller, m.fail(request)))

    async def Release(self, caller: Caller, request: Any) -> Any:
        return m.settled(await self._do(caller, m.release(request)))

    async def Extend(self, caller: Caller, request: Any) -> Any:
        return m.extended(await self._do(caller, m.extend(request)))

    async def GetJob(self, caller: Caller, request: Any) -> Any:
        return m.job_view(await self._do(caller, m.get_job(request)))

    async def GetState(self, caller: Caller, request: Any) -> Any:
        return m.state(await self._do(caller, m.get_job(request)))

    async def Stats(self, caller: Caller, request: Any) -> Any:
        return m.stats(await self._do(caller, m.get_stats(request)))

    async def _do(self, caller: Caller, command: c.Command[Any]) -> Any:
        """Carry out what a typed call asks for."""
        check_tokens(command)
        tenant = caller.admit(command)
        reply = await caller.carry_out(tenant, command)
        self._accounts.settled(tenant, command)
        return reply

    # --- streams ---------------------------------------------------------------------------------

    async def StreamJobs(self, caller: Caller, request: Any) -> None:
        pull = read_open(request)
        tenant = caller.admit(pull)
        with self._accounts.open(tenant, request.credit) as account:
            await caller.write(pb.StreamJobsReply(opened=pb.Opened(stream=account.name)))

            def pieces(delivery: r.Delivery) -> Pieces:
                yield delivery.ids, pb.StreamJobsReply(delivery=m.delivered(delivery))

            feed = JobStream(self._service, self._accounts, caller, account, pull, request.batch_max)
            await feed.run(pieces, caller.write)

    async def GrantCredit(self, caller: Caller, request: Any) -> Any:
        tenant = caller.admit(c.Pull(()))
        account = self._accounts.find(tenant, request.stream)
        account.grant(request.credit)
        return pb.GrantCreditReply(credit=account.credit)

    async def ProcessJobs(self, caller: Caller, requests: AsyncIterator[Any]) -> None:
        await Processing(self._service, self._accounts, caller).run(requests)
