"""Lets Spark find the stream of jobs by itself, as `pyspark_stoker` does the source: one module can name only one."""

from stoker.spark.fleet.streaming import JobsSource as DefaultSource

__all__ = ["DefaultSource"]
