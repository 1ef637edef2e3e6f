"""The types of `@app.job`: which function becomes which job type.

Type checkers read this to know what `push` takes: the parameters of the function without a leading `Context`, and for
batches an element of the list. The first overload that fits counts, so coroutine functions come before plain ones,
which would match them, too. Nothing here is called at run time.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from stoker.app.jobtype import AsyncJobType, JobType, PlainJobType
from stoker.worker.context import Context

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class Anything:
    """Accepted only by a parameter that takes any value: the function says nothing about its arguments."""


class JobDecorator(Protocol):
    """What `@app.job(queue="mail")` does to a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]], /
    ) -> AsyncJobType[..., R]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncJobType[P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobType[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Anything, P], R], /) -> PlainJobType[..., R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> PlainJobType[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainJobType[P, R]: ...


class BatchDecorator(Protocol):
    """What `@app.job(batch=64)` does to a function of a list. With several lists, arguments are not type-checked."""

    @overload
    def __call__(self, function: Callable[[list[A]], Coroutine[Any, Any, None]], /) -> JobType[[A], None]: ...

    @overload
    def __call__(
        self, function: Callable[[list[A]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> JobType[[A], R]: ...

    @overload
    def __call__(self, function: Callable[[list[A]], None], /) -> JobType[[A], None]: ...

    @overload
    def __call__(self, function: Callable[[list[A]], Sequence[R | Exception]], /) -> JobType[[A], R]: ...

    @overload
    def __call__(self, function: Callable[..., Any], /) -> JobType[..., Any]: ...
