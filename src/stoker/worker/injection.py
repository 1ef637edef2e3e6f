"""Provides the values of parameters that use `Depends`, and cleans up after them.

A provider is inspected once, when its handler is first called; after that a call only follows a plan. A value with the
scope `job` is made for each job and cleaned up when the handler has ended. One with the scope `worker` is made once, on
the worker's event loop or in a thread beside it, and cleaned up when the worker ends.
"""

import asyncio
import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from stoker.worker.context import Context
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Depends, Scope

Making = Literal["plain", "async", "generator", "async generator"]
Values = dict[Callable[..., Any], Any]
"""The values made for one job, by provider: each provider is called once a job."""


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """How one provider is called."""

    provider: Callable[..., Any]
    scope: Scope
    making: Making
    needs: Mapping[str, "ProviderCall"] = field(default_factory=dict)
    context: str | None = None

    @property
    def is_async(self) -> bool:
        return self.making in ("async", "async generator")


def plan_of(depends: Depends, above: tuple[Callable[..., Any], ...] = ()) -> ProviderCall:
    """Raises `BadHandler` for dependencies that can never be provided."""
    provider = depends.provider
    if not callable(provider):
        raise BadHandler(f"Depends({provider!r}): expected something callable")
    if provider in above:
        chain = " -> ".join(name_of(each) for each in (*above, provider))
        raise BadHandler(f"dependencies cannot depend on each other in a circle: {chain}")
    context, wanted = needs_of(provider)
    needs = {name: plan_of(need, (*above, provider)) for name, need in wanted.items()}
    if depends.scope == "worker" and (context or any(need.scope == "job" for need in needs.values())):
        raise BadHandler(
            f"{name_of(provider)} has the scope 'worker': it cannot depend on a value with the scope 'job'"
        )
    return ProviderCall(provider, depends.scope, making_of(provider), needs, context)


def making_of(provider: Callable[..., Any]) -> Making:
    """How a provider makes its value. A callable object is judged by its `__call__`."""
    for seen in (provider, getattr(provider, "__call__", None)):  # noqa: B004  # we want the method, not to know of it
        if inspect.isasyncgenfunction(seen):
            return "async generator"
        if inspect.isgeneratorfunction(seen):
            return "generator"
        if inspect.iscoroutinefunction(seen):
            return "async"
    return "plain"


def needs_of(provider: Callable[..., Any]) -> tuple[str | None, dict[str, Depends]]:
    """The parameter for the context, and those with `Depends`, given as default or in `Annotated`."""
    try:
        parameters = inspect.signature(provider).parameters
    except (TypeError, ValueError):
        return None, {}
    try:
        hints = typing.get_type_hints(signed(provider), include_extras=True)
    except Exception:  # an annotation that cannot be resolved is ignored
        hints = {}
    context: str | None = None
    found: dict[str, Depends] = {}
    for name, parameter in parameters.items():
        hint = hints.get(name)
        depends = depends_in(parameter.default, hint)
        if depends is not None:
            found[name] = depends
        elif hint is Context:
            context = name
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise BadHandler(
                f"{name_of(provider)} has a parameter {name!r} that nothing provides: annotate it with Context,"
                " or give it a default, for example Depends(...)"
            )
    return context, found


def signed(provider: Callable[..., Any]) -> Any:
    """The function whose annotations count: `__init__` of a class, `__call__` of another object."""
    if inspect.isclass(provider):
        return provider.__init__
    return provider if inspect.isroutine(provider) else type(provider).__call__


def depends_in(default: Any, hint: Any) -> Depends | None:
    if isinstance(default, Depends):
        return default
    if typing.get_origin(hint) is typing.Annotated:
        return next((each for each in typing.get_args(hint)[1:] if isinstance(each, Depends)), None)
    return None


def name_of(provider: Callable[..., Any]) -> str:
    return getattr(provider, "__qualname__", None) or repr(provider)


class WorkerScope:
    """Values that live as long as the worker. Belongs to the worker's event loop."""

    def __init__(self) -> None:
        self._values: Values = {}
        self._making: dict[Callable[..., Any], asyncio.Lock] = {}
        self._stack = AsyncExitStack()

    def known(self, plan: ProviderCall) -> tuple[bool, Any]:
        """Whether the value exists already, and the value. May be called from any thread."""
        try:
            return True, self._values[plan.provider]
        except KeyError:
            return False, None

    async def get(self, plan: ProviderCall) -> Any:
        async with self._making.setdefault(plan.provider, asyncio.Lock()):
            if plan.provider not in self._values:
                self._values[plan.provider] = await self._make(plan)
            return self._values[plan.provider]

    async def _make(self, plan: ProviderCall) -> Any:
        needs = {name: await self.get(need) for name, need in plan.needs.items()}
        if plan.making == "async":
            return await plan.provider(**needs)
        if plan.making == "async generator":
            return await self._stack.enter_async_context(asynccontextmanager(plan.provider)(**needs))
        if plan.making == "plain":
            return await asyncio.to_thread(plan.provider, **needs)  # opening a connection pool may take a while
        opened = contextmanager(plan.provider)(**needs)
        value = await asyncio.to_thread(opened.__enter__)
        self._stack.push_async_callback(asyncio.to_thread, opened.__exit__, None, None, None)
        return value

    async def close(self) -> None:
        """Clean up in reverse order."""
        self._values.clear()
        await self._stack.aclose()


class Injector:
    """The dependencies of one handler."""

    def __init__(self, dependencies: Mapping[str, Depends], scope: WorkerScope) -> None:
        self._plans = {name: plan_of(depends) for name, depends in dependencies.items()}
        self._scope = scope

    # --- on the event loop -----------------------------------------------------------------------

    async def fill(self, ctx: Context, stack: AsyncExitStack) -> dict[str, Any]:
        """The values by parameter; `stack` cleans them up."""
        made: Values = {}
        return {name: await self._value(plan, ctx, stack, made) for name, plan in self._plans.items()}

    async def _value(self, plan: ProviderCall, ctx: Context, stack: AsyncExitStack, made: Values) -> Any:
        if plan.scope == "worker":
            is_known, value = self._scope.known(plan)
            return value if is_known else await self._scope.get(plan)
        if plan.provider not in made:
            needs = {name: await self._value(need, ctx, stack, made) for name, need in plan.needs.items()}
            if plan.context:
                needs[plan.context] = ctx
            if plan.making == "async":
                made[plan.provider] = await plan.provider(**needs)
            elif plan.making == "plain":
                made[plan.provider] = plan.provider(**needs)
            elif plan.making == "generator":
                made[plan.provider] = stack.enter_context(contextmanager(plan.provider)(**needs))
            else:
                opened = asynccontextmanager(plan.provider)(**needs)
                made[plan.provider] = await stack.enter_async_context(opened)
        return made[plan.provider]

    # --- in a thread -----------------------------------------------------------------------------

    def fill_plain(self, ctx: Context, stack: ExitStack, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
        """The same for a plain handler; asynchronous providers run on the loop meanwhile."""
        made: Values = {}
        return {name: self._plain_value(plan, ctx, stack, made, loop) for name, plan in self._plans.items()}

    def _plain_value(
        self, plan: ProviderCall, ctx: Context, stack: ExitStack, made: Values, loop: asyncio.AbstractEventLoop
    ) -> Any:
        if plan.scope == "worker":
            is_known, value = self._scope.known(plan)
            return value if is_known else asyncio.run_coroutine_threadsafe(self._scope.get(plan), loop).result()
        if plan.provider not in made:
            needs = {name: self._plain_value(need, ctx, stack, made, loop) for name, need in plan.needs.items()}
            if plan.context:
                needs[plan.context] = ctx
            if plan.making == "plain":
                made[plan.provider] = plan.provider(**needs)
            elif plan.making == "generator":
                made[plan.provider] = stack.enter_context(contextmanager(plan.provider)(**needs))
            elif plan.making == "async":
                made[plan.provider] = asyncio.run_coroutine_threadsafe(plan.provider(**needs), loop).result()
            else:
                made[plan.provider] = stack.enter_context(OnLoop(asynccontextmanager(plan.provider)(**needs), loop))
        return made[plan.provider]


class OnLoop:
    """An asynchronous context manager for use in a thread: entered and left on the event loop."""

    def __init__(self, opened: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._opened, self._loop = opened, loop

    def __enter__(self) -> Any:
        return asyncio.run_coroutine_threadsafe(self._opened.__aenter__(), self._loop).result()

    def __exit__(self, *raised: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(self._opened.__aexit__(*raised), self._loop).result()
