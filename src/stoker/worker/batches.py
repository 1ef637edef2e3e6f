"""Batch handlers: many jobs, one call.

The function takes a list where a job has a value (`def embed(texts: list[str])`), several lists of the same length
where a job has several, and returns a list with a result or an exception for each job, or nothing. What it raises is
the end of all of them. How jobs are collected stands in `batch_lane.py`; this knows neither queues nor threads.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from stoker.model.options import Codec
from stoker.worker.context import Context
from stoker.worker.errors import BadArguments, BadResult, Interrupted
from stoker.worker.handler import Arguments, Handler
from stoker.worker.lane import Host

Ending: TypeAlias = bytes | Exception | None
"""A result, nothing, or why there is none."""


class BatchContext(Context):
    """What the handler of a batch may know and say: about all of its jobs, or through `jobs` about each.

    The properties are those of the first job, but for those that say whether to go on: they speak for all.
    """

    __slots__ = ("jobs",)

    def __init__(self, jobs: Sequence[Context], host: Host, started_at: float) -> None:
        first = jobs[0]
        super().__init__(first._chunk, first.id, host, started_at)
        self.jobs = tuple(jobs)

    @property
    def cancelled(self) -> bool:
        """All of them: as long as one is wanted the call is."""
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
    """The exceptions that a batch handler returned, each with its job; with the batch, where some were not called."""
    if not isinstance(ctx, BatchContext) or not isinstance(result, Sequence) or isinstance(result, (str, bytes)):
        return []
    jobs: Sequence[Context] = ctx.jobs if len(ctx.jobs) == len(result) else [ctx] * len(result)
    return [(job, one) for job, one in zip(jobs, result, strict=True) if isinstance(one, Exception)]


class Merged:
    """The arguments of some jobs as one call, and what becomes of each of them."""

    def __init__(self, handler: Handler, payloads: Iterable[tuple[Sequence[bytes], Codec]]) -> None:
        self._handler = handler
        self.endings: list[Ending] = []
        """One for each job, in order; of those that cannot be called the error already."""
        self.good: list[int] = []
        """The positions of those that are called."""
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
        """Every job of a call brings the same parameters as the first: the lists stay side by side."""
        count, names = len(found[0][0]), found[0][1].keys()
        odd = [at for at, (args, kwargs) in enumerate(found) if len(args) != count or kwargs.keys() != names]
        for at in reversed(odd):
            self.endings[self.good.pop(at)] = BadArguments(
                f"jobs of one batch give the same arguments: expected {_shape(*found[0])}, got {_shape(*found.pop(at))}"
            )
        return found

    def returned(self, value: Any) -> None:
        """What the handler returned for those that were called."""
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
        """None of them has a result."""
        for position in self.good:
            self.endings[position] = error


def _shape(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*([f"{len(args)} by position"] if args else []), *kwargs]) or "none"


def call_together(
    handler: Handler,
    payloads: Iterable[tuple[Sequence[bytes], Codec]],
    call: Callable[[list[list[Any]], dict[str, list[Any]]], Any],
) -> list[Ending]:
    """One call for all, and the ending of each."""
    merged = Merged(handler, payloads)
    if merged.good:
        try:
            merged.returned(call(merged.args, merged.kwargs))
        except Exception as error:
            merged.raised(error)
        except SystemExit as error:
            merged.raised(RuntimeError(f"the handler called sys.exit({error.code!r})"))
    return merged.endings
