"""Errors between a job and its handler: a branch of the tree in `model/errors.py`.

    StokerError
    `-- WorkerError
        |-- BadArguments        bad_arguments        the payload does not fit the handler's parameters
        |-- BadResult           bad_result           the handler's result cannot be encoded
        |-- BadHandler          bad_handler          a handler, a dependency or a middleware is declared wrongly
        |-- UnknownHandler      unknown_handler      no handler in this worker has the job's name
        `-- Interrupted         interrupted          the handler should stop
            |-- JobCancelled      job_cancelled        the job was cancelled
            |-- LeaseLost         lease_lost           the job no longer belongs to this worker
            `-- SoftTimeout       soft_timeout         its soft timeout has passed

`Interrupted` is raised inside handlers: by `ctx.check()`, or when a soft timeout passes. None of these is sent over the
wire as the error of a command: a job's error is text.
"""

from stoker.model.errors import StokerError


class WorkerError(StokerError):
    code = "worker"


class BadArguments(WorkerError):
    """The payload does not fit. The message names the path of the bad value. A retry would fail the same way."""

    code = "bad_arguments"


class BadResult(WorkerError):
    code = "bad_result"


class BadHandler(WorkerError):
    code = "bad_handler"


class UnknownHandler(WorkerError):
    code = "unknown_handler"


class Interrupted(WorkerError):
    code = "interrupted"


class JobCancelled(Interrupted):
    code = "job_cancelled"


class LeaseLost(Interrupted):
    code = "lease_lost"


class SoftTimeout(Interrupted):
    code = "soft_timeout"
