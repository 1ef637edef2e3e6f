"""Spark and the queue: a data source and sink, executors as workers, and the lake with the history.

    import stoker.spark

    spark = stoker.spark.session()
    events = spark.read.format("stoker").option("url", "tcp://127.0.0.1:6789").load()

It needs `pip install 'stoker[spark]'`. It reads the log's records directly; everything else goes through the client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.spark.fleet.rounds import process as process
    from stoker.spark.fleet.streaming import process_stream as process_stream
    from stoker.spark.lake.quarantine import quarantine as quarantine
    from stoker.spark.pushing import push as push
    from stoker.spark.source import register as register
    from stoker.spark.starting import session as session

__all__ = ["process", "process_stream", "push", "quarantine", "register", "session"]

_HOMES = {
    "process": "stoker.spark.fleet.rounds",
    "process_stream": "stoker.spark.fleet.streaming",
    "push": "stoker.spark.pushing",
    "quarantine": "stoker.spark.lake.quarantine",
    "register": "stoker.spark.source",
    "session": "stoker.spark.starting",
}


def __getattr__(name: str) -> Any:
    """Names that need pyspark are loaded on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stoker.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
