"""The parts that a workflow is written with: `fetch.s(1) >> group(parse.s(), index.s()) >> report.s()`.

A node is a piece of a graph: a call, calls side by side, calls one after another, or a call for each element of the
previous results. Nodes are values; `workflow.py` turns them into steps.
"""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from stoker.app.hints import OF_GRAPHS, missing
from stoker.model.errors import InvalidRequest
from stoker.model.options import DependencyPolicy

if TYPE_CHECKING:
    from stoker.app.jobtype import JobType

Nodes: TypeAlias = "Node | Iterable[Node]"


class Node:
    """A piece of a workflow. `a >> b` runs b when a has completed."""

    __slots__ = ("key", "policy")

    def __init__(self) -> None:
        self.key = ""
        self.policy: DependencyPolicy | None = None

    if not TYPE_CHECKING:  # type checkers should still report missing attributes

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_GRAPHS, repr(self) if name in OF_GRAPHS else "")

    def __rshift__(self, other: Nodes) -> "Chain":
        return chain(self, other)

    def __rrshift__(self, other: Nodes) -> "Chain":
        return chain(other, self)

    def on_failure(self, policy: DependencyPolicy) -> Self:
        """What happens to this piece when one before it fails: it fails too (`fail`), is cancelled (`cancel`), or runs
        all the same when all have ended (`continue`).
        """
        changed = copy.copy(self)
        changed.policy = policy
        return changed

    def named(self, key: str) -> Self:
        """Name the step in the workflow; the default is its job's name."""
        changed = copy.copy(self)
        changed.key = key
        return changed


class Chain(Node):
    """Pieces one after another."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        super().__init__()
        self.parts = parts

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.parts))


class Group(Node):
    """Pieces side by side. What follows a group waits for all of it."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[Node, ...]) -> None:
        super().__init__()
        self.members = members

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.members[:3]))
        return f"group({shown}{', ...' if len(self.members) > 3 else ''})"


class Map(Node):
    """A call for each element of the previous jobs' results, as `resize.map()` makes it."""

    __slots__ = ("job_type", "kwargs")

    def __init__(self, job_type: "JobType[..., Any]", kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.job_type = job_type
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"{self.job_type.name}.map({', '.join(f'{name}={value!r}' for name, value in self.kwargs.items())})"


def node_of(value: Any) -> Node:
    if isinstance(value, Node):
        return value
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return group(*value)
    raise InvalidRequest(
        f"{value!r} is not a piece of a workflow: expected a step, as in welcome.s(7), or a group of them"
    )


def chain(*nodes: Nodes) -> Chain:
    """One after another: `chain(a, b, c)` is `a >> b >> c`. A list stands for a group."""
    parts: list[Node] = []
    for node in map(node_of, nodes):
        is_open = isinstance(node, Chain) and node.policy is None
        parts += node.parts if is_open else [node]  # type: ignore[attr-defined]
    if not parts:
        raise InvalidRequest("chain() is empty: expected at least one step")
    return Chain(tuple(parts))


def group(*nodes: Nodes) -> Group:
    """Side by side: `group(a, b)`, or `group(resize.s(n) for n in range(100))`."""
    members: list[Node] = []
    for node in nodes:
        members += [node] if isinstance(node, Node) else [node_of(each) for each in _many(node)]
    if not members:
        raise InvalidRequest("group() is empty: expected at least one step")
    return Group(tuple(members))


def _many(value: Any) -> Iterable[Any]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value
    return (node_of(value),)
