"""Stoker as a backend of Django's tasks: `@task` functions are pushed to a queue and run by `manage.py stoker_worker`.

    INSTALLED_APPS = [..., "stoker.integrations.django"]
    TASKS = {"default": {"BACKEND": "stoker.integrations.django.StokerBackend"}}

Django loads this package before its applications are ready, so it imports nothing of Django by itself.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.integrations.django.backend import StokerBackend

__all__ = ["StokerBackend"]


def __getattr__(name: str) -> Any:
    if name == "StokerBackend":
        from stoker.integrations.django.backend import StokerBackend

        return StokerBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
