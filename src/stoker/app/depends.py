"""`Depends` as people write it: a default of a parameter of any type.

What it makes is the worker's own `Depends`. It stands here as a function, because a type checker must let
`db: Database = Depends(open_database)` pass.
"""

from collections.abc import Callable
from typing import Any

from stoker.worker import handler


def by_annotation() -> Any:
    """Stands for a provider that the app knows by the parameter's type."""
    raise AssertionError("it is exchanged for the app's own when a handler is made")


def Depends(provider: Callable[..., Any] = by_annotation, *, scope: handler.Scope = "job") -> Any:
    """Gives a parameter its value when the job runs: what `provider` returns or yields.

    A provider is a plain or `async` function, or a generator of either kind, whose second half cleans up. It may have
    parameters with `Depends` of its own, or one annotated with `Context`. `scope="job"` makes a value for each job,
    `scope="worker"` one for the worker's life. Without a provider it is the one that `App(dependencies=...)` has for
    the type of the parameter. Such a parameter is no part of a push.
    """
    return handler.Depends(provider, scope)
