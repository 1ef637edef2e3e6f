"""Finds a handler in a child process: by the module and name of its function, never by what a job says.

The worker says where its handlers are defined, and the child imports them from there.
"""

import importlib
import logging
import runpy
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from stoker import logs
from stoker.logs import JOB_FIELDS, JsonLines, PlainLines
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Handler
from stoker.worker.log_fields import JobFields
from stoker.worker.process_frames import Setup

MAIN = "__main__"
LOG_FORMAT = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"


def setup_of(handlers: Iterable[Handler]) -> Setup:
    """What children need to know. Raises `BadHandler` for a handler that a child could not find."""
    origins: dict[str, str] = {}
    for handler in handlers:
        module, _, name = handler.origin.partition(":")
        if not module or not name or "<" in name:
            raise BadHandler(
                f"handler {handler.name} runs in processes, which cannot find {handler.origin or 'it'!r}: define it at"
                " the top of a module, not inside a function"
            )
        origins[handler.name] = handler.origin
    main = sys.modules.get(MAIN)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return Setup(origins, spec.name, True, *logging_here())
    return Setup(origins, file or "", False, *logging_here())


def logging_here() -> tuple[int, str, str]:
    """Level, format and style of this process's log, so that its children write the same way."""
    root = logging.getLogger()
    if not root.handlers:
        return 0, "", ""
    formatter = root.handlers[0].formatter
    if type(formatter) is logging.Formatter:
        return root.level, formatter._fmt or "", ""
    return root.level, "", "json" if isinstance(formatter, JsonLines) else ("plain" * isinstance(formatter, PlainLines))


# --- in the child ------------------------------------------------------------------------------------


def import_main(setup: Setup) -> None:
    """Run the worker's `__main__` under another name, so that it does not start a worker again."""
    if not any(origin.startswith(f"{MAIN}:") for origin in setup.handlers.values()) or not setup.main:
        return
    if setup.main_is_module:
        sys.modules[MAIN] = importlib.import_module(setup.main)
        return
    module = ModuleType("__stoker_main__")
    sys.modules[MAIN] = sys.modules[module.__name__] = module
    module.__dict__.update(runpy.run_path(setup.main, run_name=module.__name__))


def log_like_parent(setup: Setup) -> None:
    """Set up logging like the parent. Called after the imports, so that an app's own setup has priority."""
    if not setup.log_level:
        return
    if setup.log_style:
        logs.set_up("json" if setup.log_style == "json" else "plain", setup.log_level, JobFields())
    elif not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(setup.log_format or LOG_FORMAT, defaults=dict.fromkeys(JOB_FIELDS, "-")))
        handler.addFilter(JobFields())
        logging.basicConfig(level=setup.log_level, handlers=[handler])


def handler_at(origin: str, name: str) -> Handler:
    """The handler at `module:qualname`: the object itself, or the handler that a decorator made of it.

    If the function stands there undecorated, its job is searched in the same module and in the module's apps.
    """
    module_name, _, qualname = origin.partition(":")
    module = importlib.import_module(module_name)
    found: Any = module
    for step in qualname.split("."):
        found = getattr(found, step)
    handler = handler_in(found, name)
    for value in () if handler is not None else list(vars(module).values()):
        find = getattr(value, "find_job", None)
        handler = handler_in(find(name) if callable(find) and not isinstance(value, type) else value, name)
        if handler is not None and handler.name == name:
            break
        handler = None
    if handler is None:
        raise BadHandler(
            f"{origin} is a {type(found).__name__}, and no job {name!r} is declared in {module_name}: decorate the"
            " function where it is defined"
        )
    return handler


def handler_in(value: Any, name: str) -> Handler | None:
    if not isinstance(value, Handler):
        if isinstance(value, type) or getattr(value, "name", None) != name:
            return None
        value = getattr(value, "handler", None)
        if callable(value):
            value = value()
    return value if isinstance(value, Handler) else None
