"""Separates payloads that could not be decoded: no row is lost, and each says what is wrong with it.

It looks only at the columns that the source makes with the option `payloadSchema`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from stoker.model.errors import InvalidRequest
from stoker.spark.lake.layout import Lake
from stoker.spark.tables import PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW

LAYER = "quarantine"
KEPT = ("time", "shard", "sequence", "index", "tenant", "queue", "job", "name", "event", "tags")
"""Columns that say whose payload it is, and where the log has it."""


def is_told(rows: DataFrame) -> bool:
    """Whether the rows say which payloads could not be decoded."""
    return PAYLOAD_ERROR.name in rows.columns


def check_fields(lake: Lake, rows: DataFrame) -> None:
    """Payload fields may be added to a lake, but never change their type, or bronze could no longer be read."""
    kept = lake.schema("bronze")
    if not is_told(rows) or kept is None or PAYLOAD.name not in kept.names:
        return
    before, now = types_of(kept), types_of(rows.schema)
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            raise InvalidRequest(
                f"option payloadSchema: {name} is {now[name]}, and in this lake it has been {before[name]}: keep the"
                " type, rename the field, or begin another lake"
            )


def types_of(schema: StructType) -> dict[str, str]:
    """The fields of decoded payloads."""
    payload = schema[PAYLOAD.name].dataType
    assert isinstance(payload, StructType)
    return {field.name: field.dataType.simpleString() for field in payload.fields}


def corrupt(rows: DataFrame) -> DataFrame:
    """The rows whose payload could not be decoded: the table `quarantine` of a lake."""
    kept = [name for name in (*KEPT, PAYLOAD_ERROR.name, PAYLOAD_RAW.name) if name in rows.columns]
    return rows.where(F.col(PAYLOAD_ERROR.name).isNotNull()).select(*kept)


def quarantine(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Split rows into sound and corrupt ones, for a batch or a stream that was read with the option `payloadSchema`.

    Sound rows have `payload` and no error columns; corrupt ones have all columns except `payload`. Together they are
    all rows.
    """
    if not is_told(rows):
        raise InvalidRequest(
            "these rows have no column payload_error: read them with the option payloadSchema, and name payload_error"
            " if you name columns"
        )
    error = F.col(PAYLOAD_ERROR.name)
    sound = rows.where(error.isNull()).drop(PAYLOAD_ERROR.name, PAYLOAD_RAW.name)
    return sound, rows.where(error.isNotNull()).drop(PAYLOAD.name)
