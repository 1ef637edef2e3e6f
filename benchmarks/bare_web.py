"""A uvicorn and a grpc.aio that only echo: what these servers can do on this machine with no queue behind them.

`python -m benchmarks.bare_web` prints the ports of both, one a line, and serves until its standard input ends.
"""

import asyncio
import sys
from typing import Any

import grpc
import uvicorn
import uvloop

HEADERS = [(b"content-type", b"application/json")]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI application: the body of the request is the body of the answer."""
    body, is_more = b"", True
    while is_more:
        event = await receive()
        body += event.get("body", b"")
        is_more = event.get("more_body", False)
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, length]})
    await send({"type": "http.response.body", "body": body})


class EchoCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call with its own bytes."""

    def service(self, handler_call_details: Any) -> Any:
        async def same(request: bytes, context: Any) -> bytes:
            return request

        return grpc.unary_unary_rpc_method_handler(same)


async def main() -> None:
    calls = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    calls.add_generic_rpc_handlers((EchoCalls(),))
    port = calls.add_insecure_port("127.0.0.1:0")
    await calls.start()
    settings = uvicorn.Config(echo, lifespan="off", log_level="error", http="httptools", loop="uvloop")
    state = uvicorn.server.ServerState()
    settings.load()
    protocol = settings.http_protocol_class
    web = await asyncio.get_running_loop().create_server(
        lambda: protocol(settings, state, {}),  # type: ignore[call-arg]
        "127.0.0.1",
        0,
    )
    print(web.sockets[0].getsockname()[1], flush=True)
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await calls.stop(0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
