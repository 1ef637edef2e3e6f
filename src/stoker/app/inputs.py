"""Passes the results of earlier workflow steps to a job's parameters, and makes the jobs of a `map`.

    @app.job
    def report(pages: list[Page] = stoker.Inputs()) -> str: ...

Such a parameter is not part of a push: the worker asks the queue for the results when the job starts. This module knows
the worker's contexts and the queue's commands, but no graphs.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from stoker.app.arguments import Arguments
from stoker.app.converting import encode
from stoker.app.errors import JobFailed
from stoker.app.results import Results
from stoker.app.signatures import element_of, signature_of
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.states import State
from stoker.model.steps import carry_out, carry_out_async
from stoker.worker.context import Context
from stoker.worker.errors import BadArguments
from stoker.worker.handler import Depends, Handler, Kind

if TYPE_CHECKING:
    from stoker.app.app import App
    from stoker.app.jobtype import JobType

SPREAD = "stoker.map"
"""The kind of job that makes the jobs of a `map`. Every worker of an app has it."""
PAGE = 1_000


def one_input() -> Any:
    """Stands for the result of the previous job."""
    raise AssertionError("it is replaced by a provider that knows the parameter's type")


def all_inputs() -> Any:
    """Stands for the results of all previous jobs."""
    raise AssertionError("it is replaced by a provider that knows the parameter's type")


def Input() -> Any:
    """A parameter default: the result of the previous job, as the parameter's type.

    There must be exactly one previous job. If it failed and this step runs all the same, the parameter is None.
    """
    return Depends(one_input)


def Inputs() -> Any:
    """A parameter default: a list with the results of all previous jobs, in the order of the steps.

    Where a job failed and this step runs all the same, the list has a `JobFailed` in its place.
    """
    return Depends(all_inputs)


def provider_of(depends: Depends, annotation: Any, kind: Kind, label: str) -> Depends | None:
    """The real provider, if `depends` is `Input()` or `Inputs()`."""
    if depends.provider is one_input:
        return Depends(_asking(_one(Results(annotation, label), label), kind))
    if depends.provider is all_inputs:
        return Depends(_asking(_all(Results(element_of(annotation), label), label), kind))
    return None


Questions = Generator[c.Command[Any], Any, Any]


def _one(results: Results, label: str) -> Callable[[Context], Questions]:
    def ask(ctx: Context) -> Questions:
        inputs = yield from inputs_of(ctx.id)
        if len(inputs) != 1:
            raise BadArguments(
                f"{label}: job {ctx.id} comes after {len(inputs)} jobs: Input() takes exactly one, use Inputs()"
            )
        return results.decode(readable(inputs[0], label).result, inputs[0].codec)

    return ask


def _all(results: Results, label: str) -> Callable[[Context], Questions]:
    def ask(ctx: Context) -> Questions:
        inputs = yield from inputs_of(ctx.id)
        return [
            results.decode(one.result, one.codec)
            if readable(one, label).state is State.COMPLETED
            else JobFailed(one.id, one.state or State.FAILED, "before", error=one.error)
            for one in inputs
        ]

    return ask


def readable(one: r.Input, label: str) -> r.Input:
    """Raises if the result is gone: a missing result must not be read as None."""
    if one.state is None:
        raise BadArguments(
            f"{label}: the result of job {one.id} of the step {one.step!r} is no longer kept: its queue was"
            " obliterated, or there was more than workflow_results_bytes_max to keep; return references to large things"
        )
    return one


def inputs_of(job: int) -> Generator[c.Command[Any], Any, list[r.Input]]:
    found: list[r.Input] = []
    after: int | None = 0
    while after is not None:
        page: r.Inputs = yield c.GetInputs(job, after, PAGE)
        found += page.inputs
        after = page.next_after
    return found


def _asking(ask: Callable[[Context], Questions], kind: Kind) -> Callable[..., Any]:
    """A provider that sends the commands where its handler runs: on the event loop, in a thread or in a process."""

    def provide(ctx: Context) -> Any:
        return carry_out(ask(ctx), ctx._host.execute)

    async def provide_async(ctx: Context) -> Any:
        return await carry_out_async(ask(ctx), ctx._host.execute_async)

    return provide_async if kind == "async" else provide


# --- a job for each element --------------------------------------------------------------------------


def spread_payload(job_type: "JobType[..., Any]", step: str, kwargs: dict[str, Any]) -> bytes:
    return encode({"job": job_type.name, "step": step, "kwargs": kwargs})


def spreader(app: "App", queue: str) -> Handler:
    """The handler that makes the jobs of a `map`: one for each element of the previous results."""

    async def spread(ctx: Context, job: str, step: str, kwargs: dict[str, Any]) -> None:
        arguments = app.job_named(job).arguments
        inputs = await carry_out_async(inputs_of(ctx.id), ctx._host.execute_async)
        payloads = [arguments.encode((element,), kwargs) for one in inputs for element in _elements(one)]
        if payloads:
            await ctx._host.execute_async(c.FillStep(ctx.id, step, payloads, ctx._chunk.token))

    signature = signature_of(spread, SPREAD)
    return Handler(
        name=SPREAD,
        function=spread,
        kind="async",
        queue=queue,
        decode=Arguments(signature, SPREAD).read,
        encode=Results(None, SPREAD).encode,
        context=signature.context,
    )


def _elements(one: r.Input) -> list[Any]:
    if readable(one, SPREAD).state is not State.COMPLETED:
        return []
    value = Results(Any, SPREAD).decode(one.result, one.codec)
    if not isinstance(value, list):
        raise BadArguments(
            f"{SPREAD}: job {one.id} returned {type(value).__name__}: expected a list, because"
            " .map() makes a job of each element"
        )
    return value
