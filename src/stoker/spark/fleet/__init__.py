"""Spark executors as workers: jobs out of a queue, through any DataFrame code, and back as results.

Jobs are claimed by name. A claim that is asked for again brings the same jobs, so Spark may run a task as often as it
likes. What the jobs became comes back to the driver, and only there they are settled: no task ever settles anything.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.spark.fleet.rounds import Round as Round
    from stoker.spark.fleet.rounds import RoundFailed as RoundFailed
    from stoker.spark.fleet.rounds import process as process
    from stoker.spark.fleet.streaming import JobsSource as JobsSource
    from stoker.spark.fleet.streaming import process_stream as process_stream

__all__ = ["JobsSource", "Round", "RoundFailed", "process", "process_stream"]

_OF_STREAMS = ("JobsSource", "process_stream")


def __getattr__(name: str) -> Any:
    """What drivers use is loaded when it is asked for: executors need `work` alone."""
    if name not in __all__:
        raise AttributeError(f"module 'stoker.spark.fleet' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"stoker.spark.fleet.{'streaming' if name in _OF_STREAMS else 'rounds'}")
    return getattr(home, name)
