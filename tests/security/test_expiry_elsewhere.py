"""A token that is withdrawn while its request waits brings nothing, over HTTP and gRPC as over TCP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from stoker.model import commands as c
from stoker.model.errors import Unauthenticated
from stoker.proto import stoker_pb2, stoker_pb2_grpc
from stoker.server.auth.identity import OPEN
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import NewToken, create_token, revoke_token
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener
from tests.served.on_loop import Place, run, serving, until

FREE, OFF = "127.0.0.1:0", "off"


async def pull_over_http(port: int, token: str) -> int:
    """The status that a pull which waits is answered with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"cmd": "pull", "body": {"queues": ["q"], "wait_ms": 60_000}}).encode()
    head = f"POST /api/call HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def pull_over_grpc(port: int, token: str) -> Any:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = stoker_pb2_grpc.QueueStub(channel)
        try:
            await stub.Pull(
                stoker_pb2.PullRequest(queues=["q"], wait_ms=60_000), metadata=[("authorization", f"Bearer {token}")]
            )
        except grpc.aio.AioRpcError as error:
            return error.code()
        return None


async def withdrawn_while_it_waits(place: Place, file: Path, token: NewToken, pulling: "asyncio.Task[Any]") -> Any:
    await until(lambda: place.server.dispatcher.is_waiting)
    revoke_token(file, token.record.id)
    place.server.gate.reload()
    job = place.broker.execute("default", c.Push("q", b"")).id
    answer = await pulling
    await until(lambda: place.broker.execute("default", c.GetJob(job)).attempts == 0)
    return answer


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_pull_that_waited_brings_no_job_to_a_withdrawn_token(tmp_path: Path, transport: str):
    file = tmp_path / "tokens.jsonl"
    token = create_token(file, name="worker", now=0)

    async def main() -> None:
        listeners: dict[str, Any] = {
            "tcp": TcpListener(listen=OFF),
            "http": HttpListener(listen=FREE if transport == "http" else OFF),
            "grpc": GrpcListener(listen=FREE if transport == "grpc" else OFF),
        }
        async with serving(auth=AuthSettings(tokens_file=str(file)), **listeners) as place:
            pull = pull_over_http if transport == "http" else pull_over_grpc
            pulling = asyncio.create_task(pull(place.port, token.text))
            answer = await withdrawn_while_it_waits(place, file, token, pulling)
            assert answer == (401 if transport == "http" else grpc.StatusCode.UNAUTHENTICATED)

    run(main)


def test_a_push_that_happened_is_answered_though_its_token_ended_meanwhile():
    """Refusing it would tell the client that nothing was pushed."""
    ended = msgspec.structs.replace(OPEN, expires_at=1.0)

    async def main() -> None:
        async with serving() as place:
            service = place.server.service
            job = (await service.call("default", c.Push("q", b""), ended)).id
            with pytest.raises(Unauthenticated):
                await service.call("default", c.Pull(["q"], wait_ms=60_000), ended)
            await until(lambda: place.broker.execute("default", c.GetJob(job)).attempts == 0)

    run(main)
