"""Arrow batches as bytes: tasks send their results to the driver as one value, not row by row."""

import io
from collections.abc import Sequence

import pyarrow as pa


def packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    """At least one batch, all of one schema."""
    written = io.BytesIO()
    with pa.ipc.new_stream(written, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return written.getvalue()


def unpacked(told: Sequence[bytes]) -> pa.Table | None:
    """Everything that was packed, in order; None if there was nothing."""
    tables = [pa.ipc.open_stream(rows).read_all() for rows in told]
    return pa.concat_tables(tables) if tables else None
