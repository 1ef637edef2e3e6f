"""Lets Spark find the source by itself: it looks for a `DefaultSource` in modules whose names begin with `pyspark_`."""

from stoker.spark.source import StokerSource as DefaultSource

__all__ = ["DefaultSource"]
