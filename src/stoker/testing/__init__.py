"""Tools for tests of code that uses Stoker: the real engine with a clock that tests move.

Tests of an application use `harness(app)`, tests of the queue itself use `World`. Names are loaded on first use,
because pytest loads the plugin in this package in every run, even in projects that never use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.testing.app_harness import Harness, harness
    from stoker.testing.clock import FakeClock
    from stoker.testing.outcomes import Drained, StillBusy
    from stoker.testing.pushes import PushedJob
    from stoker.testing.world import World

__all__ = ["Drained", "FakeClock", "Harness", "PushedJob", "StillBusy", "World", "harness"]

HOMES = {
    "Drained": "outcomes",
    "FakeClock": "clock",
    "Harness": "app_harness",
    "PushedJob": "pushes",
    "StillBusy": "outcomes",
    "World": "world",
    "harness": "app_harness",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    globals()[name] = found
    return found
