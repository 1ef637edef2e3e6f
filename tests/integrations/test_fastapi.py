"""A FastAPI application with jobs: it pushes from requests, knows its queue, and may run a worker of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import stoker
from stoker.integrations import starlette
from stoker.integrations.fastapi import Jobs, Queue, lifespan
from stoker.model.errors import InvalidRequest
from stoker.testing import harness


def made(**settings: Any) -> tuple[FastAPI, stoker.App, Any]:
    """A web application that pushes jobs, its App and its job type."""
    jobs = stoker.App("memory://")

    @jobs.job(queue="mail")
    async def welcome(user_id: int) -> str:
        return f"welcome, number {user_id}"

    api = FastAPI(lifespan=lifespan(jobs, **settings))

    @api.post("/users/{user_id}")
    async def register(user_id: int) -> int:
        return (await welcome.push(user_id)).id

    @api.post("/plainly/{user_id}")
    def register_plainly(user_id: int) -> int:
        return welcome.push_sync(user_id).id

    @api.get("/waiting")
    async def waiting(queue: Queue) -> int:
        return (await queue.get_counts("mail")).waiting

    @api.get("/kinds")
    async def kinds(app: Jobs) -> list[str]:
        return list(app.jobs)

    @api.get("/results/{job}")
    async def result(job: int) -> str:
        return await welcome.handle(job).result(timeout="30s")

    @api.websocket("/live")
    async def live(socket: WebSocket, queue: Queue) -> None:
        await socket.accept()
        await socket.send_json((await queue.get_counts("mail")).waiting)
        await socket.close()

    return api, jobs, welcome


def test_requests_push_jobs():
    api, jobs, welcome = made()
    with harness(jobs) as world, TestClient(api) as browser:
        job = browser.post("/users/7").json()
        browser.post("/plainly/8")
        world.assert_pushed(welcome, user_id=7)
        world.assert_pushed(welcome, user_id=8)
        world.drain().check()
        assert browser.get(f"/results/{job}").json() == "welcome, number 7"


def test_parameters_get_the_app_and_its_client():
    api, jobs, _ = made()
    with harness(jobs), TestClient(api) as browser:
        browser.post("/users/7")
        assert browser.get("/waiting").json() == 1
        assert browser.get("/kinds").json() == ["welcome"]
        with browser.websocket_connect("/live") as socket:
            assert socket.receive_json() == 1


@pytest.mark.parametrize("worker", [True, {"concurrency": 2}])
def test_a_worker_may_run_beside_the_requests(worker: Any):
    api, _, _ = made(worker=worker)
    with TestClient(api) as browser:
        job = browser.post("/users/7").json()
        assert browser.get(f"/results/{job}").json() == "welcome, number 7"


def test_a_worker_that_breaks_is_told_and_the_application_goes_on(caplog: pytest.LogCaptureFixture):
    api, _, _ = made(worker={"queues": ["no name of a queue"]})
    with TestClient(api) as browser:
        assert browser.post("/users/7").status_code == 200
    assert "the worker in this process has ended" in caplog.text


def test_a_lifespan_of_ones_own_runs_inside():
    told: list[str] = []

    @asynccontextmanager
    async def own(web: FastAPI) -> AsyncIterator[dict[str, str]]:
        told.append(repr(web.state.stoker))
        yield {"mine": "yes"}
        told.append("over")

    api, _, _ = made(inner=own)

    @api.get("/mine")
    async def mine(request: Request) -> str:
        return str(request.state.mine)

    with TestClient(api) as browser:
        assert browser.get("/mine").json() == "yes"
    assert told == ["<App of 1 jobs>", "over"]


def test_the_queue_is_closed_with_the_application():
    api, jobs, _ = made()
    with TestClient(api) as browser:
        browser.post("/users/7")
        assert jobs.client.get_counts().waiting == 1
    assert jobs.client.get_counts().waiting == 0, "what was in memory is gone: this is another queue"
    jobs.close()


def test_a_queue_that_cannot_be_opened_is_told_at_the_start():
    with (
        pytest.raises(InvalidRequest, match="scheme"),
        TestClient(FastAPI(lifespan=lifespan(stoker.App("nowhere://")))),
    ):
        pass


def test_an_application_without_the_lifespan_is_told_what_is_missing():
    api = FastAPI()

    @api.get("/waiting")
    async def waiting(queue: Queue) -> int:
        return 0

    with TestClient(api) as browser, pytest.raises(InvalidRequest, match="lifespan"):
        browser.get("/waiting")


def test_plain_starlette_works_too():
    jobs = stoker.App("memory://")

    async def names(request: Request) -> JSONResponse:
        assert starlette.app_of(request) is jobs
        return JSONResponse(list(await starlette.client_of(request).list_queues()))

    web = Starlette(routes=[Route("/", names)], lifespan=starlette.lifespan(jobs))
    with TestClient(web) as browser:
        jobs.client.push("mail", b"")
        assert browser.get("/").json() == ["mail"]
