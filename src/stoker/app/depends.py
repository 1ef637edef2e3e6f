"""`Depends` as users write it: the default of a parameter of any type.

It returns the worker's own `Depends`. It is a function that returns `Any`, because a type checker must accept `db:
Database = Depends(open_database)`.
"""

from collections.abc import Callable
from typing import Any

from stoker.worker import handler


def by_annotation() -> Any:
    """Stands for the provider that the app has for the parameter's type."""
    raise AssertionError("it is replaced by the app's provider when a handler is made")


def Depends(provider: Callable[..., Any] = by_annotation, *, scope: handler.Scope = "job") -> Any:
    """Gives a parameter its value when the job runs: what `provider` returns or yields.

    A provider is a plain or `async` function, or a generator of either kind, which cleans up after its `yield`. It may
    have parameters with `Depends`, and one annotated with `Context`. `scope="job"` makes a value for each job;
    `scope="worker"` makes one for the worker's lifetime. Without a provider, the app's provider for the parameter's
    type is used (`App(dependencies=...)`). Such a parameter is not part of a push.
    """
    return handler.Depends(provider, scope)
