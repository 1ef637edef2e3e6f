"""Work in steps, written once for callers that block and for callers on an event loop.

Such work is a generator. It yields what is to be done next, mostly a command, and is sent what came of it; an error is
raised where it stands. It does no I/O itself: the caller brings a function that does one step.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def carry_out(work: Generator[S, Any, T], do: Callable[[S], Any]) -> T:
    """Do one step after another; what the work returns."""
    try:
        step = next(work)
        while True:
            try:
                result = do(step)
            except Exception as error:
                step = work.throw(error)
            else:
                step = work.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        work.close()


async def carry_out_async(work: Generator[S, Any, T], do: Callable[[S], Awaitable[Any]]) -> T:
    """The same without blocking."""
    try:
        step = next(work)
        while True:
            try:
                result = await do(step)
            except Exception as error:
                step = work.throw(error)
            else:
                step = work.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        work.close()
