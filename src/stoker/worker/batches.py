"""Batch handlers: many jobs, one call.

The function takes a list where a job has one value (`def embed(texts: list[str])`), or several lists of the same length
where a job has several. It returns a list with a result or an exception for each job, or None. An exception that it
raises fails all jobs of the call. `batch_lane.py` collects the jobs; this module knows neither queues nor threads.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from stoker.model.options import Codec
from stoker.worker.context import Context
from stoker.worker.errors import BadArguments, BadResult, Interrupted
from stoker.worker.handler import Arguments, Handler
from stoker.worker.lane import LaneHost

Ending: TypeAlias = bytes | Exception | None
"""A result, None for no result, or the exception."""


class BatchContext(Context):
    """The context of a batch call. It speaks for all jobs; `jobs` has a context for each.

    Properties are those of the first job, except those that say whether to go on: they cover all jobs.
    """

    __slots__ = ("jobs",)

    def __init__(self, jobs: Sequence[Context], host: LaneHost, started_at: float) -> None:
        first = jobs[0]
        super().__init__(first._chunk, first.id, host, started_at)
        self.jobs = tuple(jobs)

    @property
    def cancelled(self) -> bool:
        """True only when all jobs are cancelled: while one is wanted, the call is."""
        return all(job.cancelled for job in self.jobs)

    @property
    def lost(self) -> bool:
        return all(job.lost for job in self.jobs)

    def interruption(self) -> Interrupted | None:
        reasons = [job.interruption() for job in self.jobs]
        return None if None in reasons else reasons[0]

    def heartbeat(self) -> None:
        self.check()
        for job in self.jobs:
            self._host.renew(job._chunk)

    def progress(self, percent: float, message: str = "") -> None:
        for job in self.jobs:
            job.progress(percent, message)

    def log(self, message: str, *values: object, level: str = "info") -> None:
        for job in self.jobs:
            job.log(message, *values, level=level)

    def forget_checkpoint(self) -> None:
        for job in self.jobs:
            job.forget_checkpoint()


def errors_in(ctx: Context, result: Any) -> list[tuple[Context, Exception]]:
    """The exceptions that a batch handler returned, each with its job's context.

    Where some jobs were left out of the call, positions do not match and the batch's own context stands for all.
    """
    if not isinstance(ctx, BatchContext) or not isinstance(result, Sequence) or isinstance(result, (str, bytes)):
        return []
    jobs: Sequence[Context] = ctx.jobs if len(ctx.jobs) == len(result) else [ctx] * len(result)
    return [(job, one) for job, one in zip(jobs, result, strict=True) if isinstance(one, Exception)]


class Merged:
    """The arguments of several jobs as one call, and the ending of each job."""

    def __init__(self, handler: Handler, payloads: Iterable[tuple[Sequence[bytes], Codec]]) -> None:
        self._handler = handler
        self.endings: list[Ending] = []
        """One for each job, in order. Jobs whose arguments are bad have their error here before the call."""
        self.good: list[int] = []
        """The positions of the jobs that take part in the call."""
        decode = handler.decode
        found: list[Arguments] = []
        for some, codec in payloads:
            for payload in some:
                try:
                    found.append(decode(payload, codec))
                except Exception as error:
                    self.endings.append(error)
                else:
                    self.good.append(len(self.endings))
                    self.endings.append(None)
        if found:
            found = self._alike(found)
        args, kwargs = found[0] if found else ((), {})
        self.args = [[one[at] for one, _ in found] for at in range(len(args))]
        self.kwargs = {name: [named[name] for _, named in found] for name in kwargs}

    def _alike(self, found: list[Arguments]) -> list[Arguments]:
        """Keep the jobs that bring the same parameters as the first; the lists of a call must have the same length."""
        count, names = len(found[0][0]), found[0][1].keys()
        odd = [at for at, (args, kwargs) in enumerate(found) if len(args) != count or kwargs.keys() != names]
        for at in reversed(odd):
            self.endings[self.good.pop(at)] = BadArguments(
                f"jobs of one batch give the same arguments: expected {_shape(*found[0])}, got {_shape(*found.pop(at))}"
            )
        return found

    def returned(self, value: Any) -> None:
        """Note what the handler returned for the jobs of the call."""
        if value is None:
            return
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise BadResult(
                f"{self._handler.name} returned {type(value).__name__} for a batch: expected a list with a result or an"
                " exception for each job, or None"
            )
        if len(value) != len(self.good):
            raise BadResult(
                f"{self._handler.name} returned {len(value)} results for {len(self.good)} jobs: expected one for each"
            )
        for position, result in zip(self.good, value, strict=True):
            self.endings[position] = self._ending(result)

    def _ending(self, result: Any) -> Ending:
        if result is None or isinstance(result, Exception):
            return result
        try:
            return self._handler.encode(result)
        except Exception as error:
            return error

    def raised(self, error: Exception) -> None:
        """The call raised: this is the ending of all its jobs."""
        for position in self.good:
            self.endings[position] = error


def _shape(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*([f"{len(args)} by position"] if args else []), *kwargs]) or "none"


def call_together(
    handler: Handler,
    payloads: Iterable[tuple[Sequence[bytes], Codec]],
    call: Callable[[list[list[Any]], dict[str, list[Any]]], Any],
) -> list[Ending]:
    """Call the handler once for all jobs; returns the ending of each."""
    merged = Merged(handler, payloads)
    if merged.good:
        try:
            merged.returned(call(merged.args, merged.kwargs))
        except Exception as error:
            merged.raised(error)
        except SystemExit as error:
            merged.raised(RuntimeError(f"the handler called sys.exit({error.code!r})"))
    return merged.endings
