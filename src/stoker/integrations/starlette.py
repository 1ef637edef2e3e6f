"""Stoker in a Starlette or FastAPI application: opened and closed with it, and reachable from requests.

`lifespan(jobs)` is all that is needed. Nothing here imports Starlette: it only uses the `state` of the application and
of a request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from stoker.app.app import App
from stoker.client.aio import AsyncClient
from stoker.model.errors import InvalidRequest
from stoker.worker.worker import Worker

log = logging.getLogger("stoker.integrations")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]

STATE = "stoker"
"""The name of the App in the state of the web application and of each request."""


def lifespan(
    jobs: App,
    *,
    worker: bool | Mapping[str, Any] = False,
    inner: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
) -> Lifespan:
    """The lifespan of a web application that pushes jobs.

    With `worker=True`, or the settings of a worker, this process also runs the jobs. For handlers that need much CPU, a
    separate `stoker worker` is better. `inner` is your own lifespan, which runs inside this one.
    """

    @asynccontextmanager
    async def live(web: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(jobs.aclose)
            await asyncio.to_thread(lambda: jobs.broker)  # a wrong URL fails at the start
            web.state.stoker = jobs
            state: dict[str, Any] = {STATE: jobs}
            if worker is not False:
                settings = {} if worker is True else dict(worker)
                await stack.enter_async_context(working(jobs.worker(**settings)))
            if inner is not None:
                state |= await stack.enter_async_context(inner(web)) or {}
            yield state

    return live


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[Worker]:
    """Run a worker on this event loop. At the end it finishes the jobs that it has begun."""
    running = asyncio.create_task(worker.serve(), name="stoker worker")
    running.add_done_callback(tell_if_broken)
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.gather(running, return_exceptions=True)  # its error was logged when it happened


def tell_if_broken(running: "asyncio.Task[Any]") -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.error("the worker in this process has ended: no more jobs run here", exc_info=error)


def app_of(connection: Any) -> App:
    """The App of a request or a WebSocket."""
    found = getattr(connection.state, STATE, None) or getattr(connection.app.state, STATE, None)
    if not isinstance(found, App):
        raise InvalidRequest("this web application has no Stoker app: create it with lifespan=lifespan(jobs)")
    return found


def client_of(connection: Any) -> AsyncClient:
    """The asynchronous client of a request or a WebSocket, with everything that the queue can do."""
    return app_of(connection).aclient
