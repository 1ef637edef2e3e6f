"""Adds the fields of the running job to log records: job, queue, attempt and worker.

    handler.addFilter(stoker.JobFields())

The job is found through a context variable, so it works in coroutines, threads, child processes and batches, and in
code that inherits their context (`asyncio.to_thread`, tasks). How records are written is not decided here.
"""

import logging
from collections.abc import Sequence
from typing import Any

from stoker.logs import JOB_FIELDS
from stoker.worker.context import current
from stoker.worker.lane import JobChunk

IDS_TOLD = 20
"""Job ids that one record lists for a batch."""


def fields_of(chunk: JobChunk, job: int, worker: str) -> dict[str, Any]:
    """The fields of one job."""
    return dict(zip(JOB_FIELDS, (job, chunk.name, chunk.queue, chunk.attempt, worker), strict=True))


def job_fields() -> dict[str, Any]:
    """The fields of the running job; empty outside of a job. A batch has its first job, and `job_ids` for all."""
    here = current.get()
    if here is None:
        return {}
    found = fields_of(here.chunk, here.job, here.host.worker)
    return found if here.together is None else found | together(here.together)


def together(ids: Sequence[int]) -> dict[str, Any]:
    return {"job_ids": list(ids[:IDS_TOLD]), "jobs": len(ids)}


class JobFields(logging.Filter):
    """Gives every log record that is written while a job runs the fields of that job. It lets every record through.

    Put it on a handler: a filter on a logger does not see the records of child loggers. Fields that a record already
    has are left unchanged.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in job_fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
