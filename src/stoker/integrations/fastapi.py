"""Stoker in a FastAPI application.

    from fastapi import FastAPI
    from stoker.integrations.fastapi import Queue, lifespan

    api = FastAPI(lifespan=lifespan(jobs))

    @api.get("/jobs/{job_id}")
    async def show(job_id: int, queue: Queue) -> str:
        return await queue.get_state(job_id)

Pushing needs no dependency: `await welcome.push(7)` works in any handler, `welcome.push_sync(7)` in plain ones.
"""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from stoker.app.app import App
from stoker.client.aio import AsyncClient
from stoker.integrations.starlette import app_of, client_of, lifespan, working

__all__ = ["Jobs", "Queue", "lifespan", "working"]


def _app(connection: HTTPConnection) -> App:
    return app_of(connection)


def _client(connection: HTTPConnection) -> AsyncClient:
    return client_of(connection)


Jobs = Annotated[App, Depends(_app)]
"""A parameter of this type gets the App."""

Queue = Annotated[AsyncClient, Depends(_client)]
"""A parameter of this type gets the asynchronous client."""
