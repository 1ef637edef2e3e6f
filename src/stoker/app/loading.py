"""Finds an app by name, as in `shop.jobs:app`, for the command line and other tools.

Nothing here knows what an app is for.
"""

import inspect
import os
from types import ModuleType
from typing import Any

from stoker.app.app import App
from stoker.app.errors import CannotLoad
from stoker.app.importing import broken, hint_for, imported

USUAL = "app"
"""The default attribute name of an app."""


def load_app(target: str, *, directory: str | None = None) -> App:
    """The app of `module:attribute`, or of `module` with an attribute named `app` or with only one app in it.

    `directory` (by default the current one) is searched first, as with `python -m`. Raises `CannotLoad`.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise CannotLoad(
            f"{target!r} does not name an app: expected module:attribute, as in shop.jobs:app{hint_for(target)}"
        )
    module = imported(module_name, directory or os.getcwd())
    found = value_in(module, attribute, target) if attribute else only_app_in(module)
    if inspect.isfunction(found):
        try:
            found = found()
        except Exception as error:
            raise broken(module_name, f"{attribute}() raised {type(error).__name__}: {error}", error) from error
    if not isinstance(found, App):
        raise CannotLoad(f"{target!r} is not an app: expected a stoker.App, got {type(found).__name__}")
    return found


def value_in(module: ModuleType, attribute: str, target: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise CannotLoad(f"{target!r}: {module.__name__} has no {attribute!r}{apps_in(module)}")
        found = getattr(found, part)
    return found


def only_app_in(module: ModuleType) -> Any:
    """The module's only app. `app` may be something else, for example the web application that pushes the jobs."""
    usual = getattr(module, USUAL, None)
    apps = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    if isinstance(usual, App) or inspect.isfunction(usual):
        return usual
    if len(apps) == 1:
        return next(iter(apps.values()))
    raise CannotLoad(f"{module.__name__!r} has no app named {USUAL!r}: say which one to use{apps_in(module)}")


def apps_in(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, App)]
    return f"; there is {', '.join(names)}" if names else "; it has no stoker.App"
