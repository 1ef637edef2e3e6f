"""Builds the callable of a handler: the function inside its dependencies, inside its middleware.

For most handlers that is the function itself. Lanes decode the arguments before the call and encode the result after
it; this module knows neither payloads nor queues.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from stoker.worker.context import Context
from stoker.worker.handler import Handler, Middleware
from stoker.worker.injection import Injector, WorkerScope

Call = Callable[[Context, Sequence[Any], Mapping[str, Any]], Any]
AsyncCall = Callable[[Context, Sequence[Any], Mapping[str, Any]], Awaitable[Any]]


# --- on the event loop -------------------------------------------------------------------------------


def async_call(handler: Handler, scope: WorkerScope) -> AsyncCall:
    """The callable of an `async` handler that has dependencies or middleware."""
    function, parameter = handler.function, handler.context
    injector = Injector(handler.dependencies, scope) if handler.dependencies else None

    async def call(ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = dict(kwargs)
        if parameter is not None:
            given[parameter] = ctx
        if injector is None:
            return await function(*args, **given)
        raised: BaseException | None = None
        async with AsyncExitStack() as stack:
            try:
                given.update(await injector.fill(ctx, stack))
                return await function(*args, **given)
            except BaseException as error:
                raised = error
                raise
        # a dependency swallowed the exception: the handler failed all the same
        raise raised or AssertionError("unreachable")

    wrapped: AsyncCall = call
    for middleware in reversed(handler.middleware):
        wrapped = async_layer(middleware, wrapped)
    return wrapped


def async_layer(middleware: Middleware, inner: AsyncCall) -> AsyncCall:
    async def call(ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        async with AsyncAround(middleware, ctx) as around:
            await awaited(middleware.before(ctx))
            try:
                result = await inner(ctx, args, kwargs)
            except BaseException as error:
                await awaited(middleware.failed(ctx, error))
                raise
            await awaited(middleware.after(ctx, result))
            around.result = result
        return around.result

    return call


async def awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class AsyncAround:
    """The generator of one middleware for one call, plain or asynchronous."""

    def __init__(self, middleware: Middleware, ctx: Context) -> None:
        self._around = None if middleware.around is None else middleware.around(ctx)
        self.result: Any = None

    async def __aenter__(self) -> "AsyncAround":
        if inspect.isasyncgen(self._around):
            await anext(self._around)
        elif self._around is not None:
            next(self._around)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if self._around is None:
            return False
        try:
            if inspect.isasyncgen(self._around):
                await (self._around.asend(self.result) if error is None else self._around.athrow(error))
            elif error is None:
                self._around.send(self.result)
            else:
                self._around.throw(error)
        except (StopIteration, StopAsyncIteration):
            return not isinstance(error, asyncio.CancelledError)
        raise RuntimeError("`around` of a middleware must yield exactly once")


# --- in a thread, or in a process --------------------------------------------------------------------


def plain_call(handler: Handler, scope: WorkerScope, loop: Callable[[], asyncio.AbstractEventLoop]) -> Call:
    """The callable of a plain handler that has dependencies or middleware; asynchronous parts run on `loop`."""
    function, parameter = handler.function, handler.context
    injector = Injector(handler.dependencies, scope) if handler.dependencies else None

    def call(ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = dict(kwargs)
        if parameter is not None:
            given[parameter] = ctx
        if injector is None:
            return function(*args, **given)
        raised: BaseException | None = None
        with ExitStack() as stack:
            try:
                given.update(injector.fill_plain(ctx, stack, loop()))
                return function(*args, **given)
            except BaseException as error:
                raised = error
                raise
        raise raised or AssertionError("unreachable")

    wrapped: Call = call
    for middleware in reversed(handler.middleware):
        wrapped = plain_layer(middleware, wrapped, loop)
    return wrapped


def plain_layer(middleware: Middleware, inner: Call, loop: Callable[[], asyncio.AbstractEventLoop]) -> Call:
    def done(value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        return asyncio.run_coroutine_threadsafe(awaited(value), loop()).result()

    def call(ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with PlainAround(AsyncAround(middleware, ctx), done) as around:
            done(middleware.before(ctx))
            try:
                result = inner(ctx, args, kwargs)
            except BaseException as error:
                done(middleware.failed(ctx, error))
                raise
            done(middleware.after(ctx, result))
            around.result = result
        return around.result

    return call


class PlainAround:
    """The same in a thread: a plain generator runs in the thread, an asynchronous one on the loop."""

    def __init__(self, around: AsyncAround, done: Callable[[Any], Any]) -> None:
        self._around, self._done = around, done
        self.result: Any = None

    def __enter__(self) -> "PlainAround":
        self._step(self._around.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._around.result = self.result
        return bool(self._step(self._around.__aexit__(kind, error, trace)))

    def _step(self, coroutine: Any) -> Any:
        """Run a coroutine that never waits, here: a single step finishes it."""
        if inspect.isasyncgen(self._around._around):
            return self._done(coroutine)
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("a plain generator never awaits")
