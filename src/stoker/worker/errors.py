"""What can go wrong between a job and its handler, as a branch of the tree in `model/errors.py`.

    StokerError
    `-- WorkerError
        |-- BadArguments        bad_arguments        the payload does not fit the handler's parameters
        |-- BadResult           bad_result           what the handler returned cannot be written
        |-- BadHandler          bad_handler          a handler, a dependency or a middleware is declared wrongly
        |-- UnknownHandler      unknown_handler      no handler in this worker has the job's name
        `-- Interrupted         interrupted          the handler should stop
            |-- JobCancelled      job_cancelled        somebody cancelled the job
            |-- LeaseLost         lease_lost           the job belongs to somebody else by now
            `-- SoftTimeout       soft_timeout         its soft timeout has passed

`Interrupted` is raised inside handlers, where `ctx.check()` is called or a soft timeout strikes. Nothing here is ever
sent over the wire as an error of a command: a job's error is text.
"""

from stoker.model.errors import StokerError


class WorkerError(StokerError):
    code = "worker"


class BadArguments(WorkerError):
    """The payload does not fit. The message names the path of the value; trying again would fail again."""

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
