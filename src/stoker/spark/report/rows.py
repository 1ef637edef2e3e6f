"""Rows of Spark as plain values."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

TOP = 12
"""Rows of a table."""


def listed(rows: DataFrame) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.asDict().items()} for row in rows.collect()]


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")  # Spark returns it in this process's time zone
    return value
