"""The smallest worker that can be: it pulls what is there, runs it in this thread, and settles it."""

import asyncio
import inspect
from typing import Any

from stoker.app.app import App
from stoker.worker.handler import Handler
from stoker.worker.outcomes import Failure


def work(app: App, **injected: Any) -> int:
    """Run all jobs that wait in the app's queues; what handlers ask for besides their arguments is `injected`."""
    handlers = app.handlers()
    known = {name: handler for handler in handlers for name in (handler.name, *handler.aliases)}
    queues = sorted({handler.queue for handler in handlers})
    count = 0
    while True:
        delivery = app.client.pull(queues, 100)
        if not delivery:
            return count
        for job in delivery:
            count += 1
            handler = known[job.options.name or ""]
            try:
                result = handler.encode(called(handler, job.payload, job.options.codec, injected))
            except Exception as error:
                told = Failure.of(error)
                app.client.fail(job.id, job.token, told.error, error_class=told.error_class, stack=told.stack)
            else:
                app.client.ack(job.id, job.token, result, codec="msgpack")


def called(handler: Handler, payload: bytes, codec: Any, injected: dict[str, Any]) -> Any:
    args, kwargs = handler.decode(payload, codec)
    wanted = {*handler.dependencies, *([handler.context] if handler.context else [])}
    if handler.batch is not None:
        args = [[value] for value in args]
    result = handler.function(*args, **kwargs, **{name: injected[name] for name in wanted})
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    return result[0] if handler.batch is not None else result
