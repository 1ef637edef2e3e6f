"""A web application and its jobs. They share the directory stoker.db: nothing else has to run.

    uvicorn shop:api                # in one terminal
    stoker worker shop:jobs         # in another, in the same directory

    curl -X POST localhost:8000/orders/7
    curl localhost:8000/jobs/64     # the id that was answered

For a small application one process is enough: `lifespan(jobs, worker=True)` runs the jobs beside the requests.
"""

import asyncio

from fastapi import FastAPI, HTTPException

import stoker
from stoker.integrations.fastapi import Queue, lifespan
from stoker.model.errors import NotFound

jobs = stoker.App()
api = FastAPI(lifespan=lifespan(jobs))


@jobs.job(queue="orders", max_attempts=8, timeout="2m")
async def pack(ctx: stoker.Context, order_id: int) -> str:
    """Runs in the worker, whichever process that is."""
    ctx.progress(50, "looking for a box")
    await asyncio.sleep(0.01)
    return f"order {order_id} is packed"


@api.post("/orders/{order_id}", status_code=202)
async def order(order_id: int) -> dict[str, int]:
    """The same order twice is packed once: while the job is not done, both responses name the same job."""
    job = await pack.options(unique_key=f"order:{order_id}").push(order_id)
    return {"job": job.id}


@api.get("/jobs/{job_id}")
async def show(job_id: int) -> dict[str, object]:
    """A handle knows how to decode the results of its kind of job."""
    job = pack.handle(job_id)
    try:
        view = await job.view()
    except NotFound:
        raise HTTPException(404, "there is no such job, or it ended more than an hour ago") from None
    result = await job.result() if view.state is stoker.State.COMPLETED else None
    return {"state": view.state, "progress": view.progress.percent, "result": result}


@api.delete("/jobs/{job_id}")
async def cancel(job_id: int, queue: Queue) -> dict[str, str]:
    """`Queue` is the whole queue: inspect, cancel, pause, count."""
    try:
        return {"state": (await queue.cancel(job_id)).state}
    except stoker.StokerError as error:  # it does not exist, or it has ended
        raise HTTPException(409, error.message) from None
