"""Schemas of DataFrames as Arrow's, for everything that takes rows of others: what has no meaning there is refused.

A DataFrame is looked at before its first row is computed; an error names the column, and what to make of it.
"""

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType

from stoker.model.errors import InvalidRequest

STRANGE = {
    "VariantType": "to_json(...) of it",
    "YearMonthIntervalType": "a number of months",
    "CalendarIntervalType": "a number, or a string",
    "GeometryType": "st_asbinary(...) of it",
    "GeographyType": "st_asbinary(...) of it",
}
"""Types that a payload has no form for, and what to make of them. Spark would hand over how it keeps them itself."""


def arrow_schema(schema: StructType, only: Collection[str] | None = None) -> pa.Schema:
    """As Spark sends it, with moments in UTC; of these columns only, if they are named."""
    fields = [field for field in schema.fields if only is None or field.name in only]
    for field in fields:
        for kind in kinds_in(field.dataType):
            if type(kind).__name__ in STRANGE:
                raise InvalidRequest(
                    f"column {field.name} is {field.dataType.simpleString()}, and nothing here has a form for that:"
                    f" make it {STRANGE[type(kind).__name__]}, or drop it"
                )
    return to_arrow_schema(StructType(fields), timezone="UTC")


def kinds_in(kind: Any) -> Iterator[Any]:
    """A type, and those that it is made of."""
    yield kind
    parts: list[Any] = []
    if isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    for part in parts:
        yield from kinds_in(part)
