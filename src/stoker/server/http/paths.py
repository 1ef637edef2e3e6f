"""Finds the handler of a path: a tree of path segments, searched in a microsecond."""

from collections.abc import Awaitable, Callable

from stoker.server.http.answers import NotHere, WrongMethod
from stoker.server.http.visit import Visit

Handler = Callable[[Visit], Awaitable[None]]


class Node:
    """One segment of paths."""

    __slots__ = ("handlers", "literals", "name", "variable")

    def __init__(self) -> None:
        self.literals: dict[str, Node] = {}
        self.variable: Node | None = None
        self.name = ""
        """The name of the parameter, if the segment is one."""
        self.handlers: dict[str, Handler] = {}


class Paths:
    """All paths with their methods."""

    def __init__(self) -> None:
        self._root = Node()

    def add(self, method: str, path: str, handler: Handler) -> None:
        node = self._root
        for segment in path.split("/")[1:]:
            if segment.startswith("{"):
                if node.variable is None:
                    node.variable, node.name = Node(), segment[1:-1]
                assert node.name == segment[1:-1], f"{path}: the parameter is called {node.name} elsewhere"
                node = node.variable
            else:
                node = node.literals.setdefault(segment, Node())
        assert method not in node.handlers, f"{method} {path} is there twice"
        node.handlers[method] = handler

    def find(self, visit: Visit) -> Handler:
        """The handler; the parameters of the path go to the visit. Raises `NotHere` or `WrongMethod`."""
        found: dict[str, str] = {}
        node = _walk(self._root, visit.path.split("/"), 1, found)
        if node is None:
            raise NotHere("there is nothing at this path: /docs lists all paths")
        handler = node.handlers.get(visit.method)
        if handler is None and visit.method == "HEAD":
            handler = node.handlers.get("GET")  # the protocol leaves the body out
        if handler is None:
            raise WrongMethod(", ".join(sorted(node.handlers)))
        visit.parameters = found
        return handler


def _walk(node: Node, segments: list[str], at: int, found: dict[str, str]) -> Node | None:
    """Literal segments first; a parameter is never empty."""
    if at == len(segments):
        return node if node.handlers else None
    segment = segments[at]
    literal = node.literals.get(segment)
    if literal is not None:
        ended = _walk(literal, segments, at + 1, found)
        if ended is not None:
            return ended
    if node.variable is None or not segment:
        return None
    ended = _walk(node.variable, segments, at + 1, found)
    if ended is not None:
        found[node.name] = segment
    return ended


def describe(paths: Paths) -> list[tuple[str, str]]:
    """Every method and path."""
    found: list[tuple[str, str]] = []

    def visit(node: Node, path: str) -> None:
        found.extend((method, path or "/") for method in node.handlers)
        for segment, child in node.literals.items():
            visit(child, f"{path}/{segment}")
        if node.variable is not None:
            visit(node.variable, f"{path}/{{{node.name}}}")

    visit(paths._root, "")
    return found
