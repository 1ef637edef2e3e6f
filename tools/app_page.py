"""Makes the reference of the app from docstrings: what can be declared, pushed, asked and raised.

Methods that exist twice, for coroutines and for plain code, are listed once with both names.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.app import errors as app_errors
from stoker.app import handles, inputs, jobtype, nodes, options, schedules, workflow
from stoker.app.app import App
from stoker.app.depends import Depends
from stoker.testing import Drained, Harness, PushedJob
from stoker.worker import context, handler, outcomes, queues, spans
from stoker.worker import errors as worker_errors
from stoker.worker.context import Context
from stoker.worker.worker import Worker
from tools.make_docs import code, docstring_at, joined, joined_paragraphs, page
from tools.make_docs import table as markdown

INNER = frozenset("remember layers_for find_job own_handlers wanted signature arguments step forget_checkpoint".split())
"""Methods for Stoker's own use."""


def app_page() -> str:
    return page(
        "The app",
        "app and src/stoker/worker",
        "Everything but the testing kit is reached through `import stoker`.",
        "## App",
        *described(App),
        "## Options",
        "`@app.job(...)` takes all of these, `job_type.options(...)` those of a push, `App(defaults=...)` and"
        ' `App(queues=...)` those for all jobs. Durations are text (`"1h30m"`), seconds or a `timedelta`.',
        "### Everywhere",
        options_of(options.Common),
        "### Of `@app.job` and `App`, but not of a push",
        options_of(options.Defaults),
        "### Of `@app.job` and a push, but not of `App`",
        options_of(options.PushOptions),
        "### Of `@app.job` alone",
        options_of(options.JobOptions),
        "## Schedules",
        "What `@app.schedule(...)` takes besides a cron expression.",
        options_of(schedules.Rule),
        "## JobType",
        *described(jobtype.JobType),
        "## Job",
        *described(handles.Job),
        "## JobBatch",
        *described(handles.JobBatch),
        "## Step",
        *described(jobtype.Step),
        "## Workflows",
        "A step, `welcome.s(7)`, is a node, and so is the result of these; `a >> b` runs b after a.",
        *brief(nodes.group),
        *brief(nodes.chain),
        *brief(workflow.workflow),
        *brief(inputs.Input),
        *brief(inputs.Inputs),
        "### Node",
        *described(nodes.Node),
        "### Workflow",
        *described(workflow.Workflow),
        "### WorkflowRun",
        *described(workflow.WorkflowRun),
        "## Context",
        *described(Context),
        "## Ends of an attempt",
        *(block for kind in (outcomes.Snooze, outcomes.Retry, outcomes.Cancel, outcomes.Dead) for block in brief(kind)),
        *brief(outcomes.RetryPolicy),
        "## Other values",
        *brief(handler.Batch),
        *brief(Depends),
        "### Middleware",
        *described(handler.Middleware),
        *brief(spans.Spans),
        "## Worker",
        "`app.worker(...)` makes one; `stoker worker module:app` runs one.",
        *described(Worker),
        *brief(queues.QueueSettings),
        *brief(context.current_job),
        *brief(context.JobLogHandler),
        "## Testing",
        "Of `stoker.testing`; the [guide](../guide/testing.md) shows it in use.",
        "### Harness",
        *described(Harness),
        *brief(Drained),
        *brief(PushedJob),
        "## Errors",
        markdown("Code, Error, Meaning", [*error_rows(app_errors), *error_rows(worker_errors)]),
    )


def options_of(kind: Any) -> str:
    return fields_of(kind, "Option, Takes, Meaning")


def described(kind: type[Any]) -> list[str]:
    """The class, and its public methods and properties in source order."""
    blocks = [joined_paragraphs(inspect.getdoc(kind))]
    if "__init__" in vars(kind) and kind in (App, Worker):
        blocks.append(code(f"{kind.__name__}{shown(kind.__init__)}"))
    rows = []
    for name, value in vars(kind).items():
        if (name.startswith("_") and name != "__call__") or name in INNER:
            continue
        if name.endswith("_sync") and name.removesuffix("_sync") in vars(kind):
            continue
        row = row_of(kind, name, value)
        if row is not None:
            rows.append(row)
    return [*blocks, markdown("Name, Meaning", rows)]


def row_of(kind: type[Any], name: str, value: Any) -> list[str] | None:
    twin = f" and `{name}_sync`" if f"{name}_sync" in vars(kind) else ""
    if isinstance(value, property):
        return [code(name), joined(inspect.getdoc(value))]
    if hasattr(value, "func"):  # a cached property: for internal use
        return None
    if inspect.isfunction(value):
        return [code(f"{name}{shown(value)}") + twin, joined(value.__doc__)]
    return None


def shown(function: Callable[..., Any]) -> str:
    """The parameters as in the source."""
    tree = Unquoted().visit(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0])
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    written = ast.unparse(tree.args).removeprefix("self, ").removeprefix("self")
    returns = "" if tree.returns is None or tree.name == "__init__" else f" -> {ast.unparse(tree.returns)}"
    return f"({written}){returns}".replace("'", '"')


class Unquoted(ast.NodeTransformer):
    """Removes quotes from annotations; they are there because the names are imported for type checkers only."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = self._plain(node.annotation)
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns = self._plain(node.returns)
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _plain(self, annotation: ast.expr | None) -> ast.expr | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return ast.parse(annotation.value, mode="eval").body
        return annotation


def brief(kind: Any) -> list[str]:
    """A value type: its parameters or fields."""
    blocks = [f"### {kind.__name__}", joined_paragraphs(inspect.getdoc(kind))]
    if dataclasses.is_dataclass(kind):
        return [*blocks, fields_of(kind, "Field, Takes, Default, Meaning")]
    return [*blocks[:1], code(kind.__name__ + shown(kind.__init__ if inspect.isclass(kind) else kind)), *blocks[1:]]


def fields_of(kind: Any, heads: str) -> str:
    """The class's own fields, with their docstrings."""
    tree = ast.parse(Path(inspect.getfile(kind)).read_text())
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    rows = []
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "" if node.value is None else code(ast.unparse(node.value))
            row = [code(node.target.id), code(ast.unparse(node.annotation)), default, docstring_at(body, place + 1)]
            rows.append(row if "Default" in heads else [*row[:2], row[3]])
    return markdown(heads, rows)


def error_rows(module: Any) -> list[list[str]]:
    """The meanings are in the drawn tree, beside the names."""
    from tools.make_docs import DRAWN

    beside = {found["name"]: found["rest"] for found in DRAWN.finditer(module.__doc__ or "")}
    return [
        [code(getattr(module, name).code), code(name), rest.removeprefix(getattr(module, name).code).strip()]
        for name, rest in beside.items()
    ]
