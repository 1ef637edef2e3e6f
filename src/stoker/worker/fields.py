"""The fields of a job in log records: which job it was, of which queue, in which attempt, on which worker.

    handler.addFilter(stoker.JobFields())

The job is found through a context variable: in coroutines, in threads, in child processes and in batches alike, and in
whatever inherits their context (`asyncio.to_thread`, tasks). Nothing here knows how records are written.
"""

import logging
from collections.abc import Sequence
from typing import Any

from stoker.logs import JOB_FIELDS
from stoker.worker.context import current
from stoker.worker.lane import Chunk

IDS_TOLD = 20
"""Of the jobs of one batch."""


def fields_of(chunk: Chunk, job: int, worker: str) -> dict[str, Any]:
    """What a record says about a job."""
    return dict(zip(JOB_FIELDS, (job, chunk.name, chunk.queue, chunk.attempt, worker), strict=True))


def job_fields() -> dict[str, Any]:
    """Those of the job that runs here; empty outside of any. A batch has its first job, and `job_ids` for all."""
    here = current.get()
    if here is None:
        return {}
    found = fields_of(here.chunk, here.job, here.host.worker)
    return found if here.together is None else found | together(here.together)


def together(ids: Sequence[int]) -> dict[str, Any]:
    return {"job_ids": list(ids[:IDS_TOLD]), "jobs": len(ids)}


class JobFields(logging.Filter):
    """Gives every record that is written while a job runs the fields of that job. It lets every record through.

    Put it on a handler: a filter of a logger does not see the records of its children. A field that a record has
    already is left as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in job_fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
