"""Converts schemas of DataFrames to Arrow, and refuses types that have no meaning here.

A DataFrame is checked before its first row is computed; an error names the column and a conversion.
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
"""Types without a form in a payload, and a conversion for each. Spark would pass on its internal form."""


def arrow_schema(schema: StructType, only: Collection[str] | None = None) -> pa.Schema:
    """The schema as Spark sends it, with timestamps in UTC; only these columns, if given."""
    fields = [field for field in schema.fields if only is None or field.name in only]
    for field in fields:
        for kind in kinds_in(field.dataType):
            if type(kind).__name__ in STRANGE:
                raise InvalidRequest(
                    f"column {field.name} is {field.dataType.simpleString()}, which a payload cannot have:"
                    f" make it {STRANGE[type(kind).__name__]}, or drop it"
                )
    return to_arrow_schema(StructType(fields), timezone="UTC")


def kinds_in(kind: Any) -> Iterator[Any]:
    """A type, and the types that it is made of."""
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
