"""Finds the handler of a path: a tree of path segments, searched in a microsecond."""

from collections.abc import Awaitable, Callable

from stoker.server.http.request import HttpRequest
from stoker.server.http.responses import NotHere, WrongMethod

Handler = Callable[[HttpRequest], Awaitable[None]]


class PathNode:
    """One segment of paths."""

    __slots__ = ("handlers", "literals", "name", "variable")

    def __init__(self) -> None:
        self.literals: dict[str, PathNode] = {}
        self.variable: PathNode | None = None
        self.name = ""
        """The name of the parameter, if the segment is one."""
        self.handlers: dict[str, Handler] = {}


class Paths:
    """All paths with their methods."""

    def __init__(self) -> None:
        self._root = PathNode()

    def add(self, method: str, path: str, handler: Handler) -> None:
        node = self._root
        for segment in path.split("/")[1:]:
            if segment.startswith("{"):
                if node.variable is None:
                    node.variable, node.name = PathNode(), segment[1:-1]
                assert node.name == segment[1:-1], f"{path}: the parameter is called {node.name} elsewhere"
                node = node.variable
            else:
                node = node.literals.setdefault(segment, PathNode())
        assert method not in node.handlers, f"{method} {path} is there twice"
        node.handlers[method] = handler

    def find(self, http_request: HttpRequest) -> Handler:
        """The handler; the parameters of the path go to the visit. Raises `NotHere` or `WrongMethod`."""
        found: dict[str, str] = {}
        node = _walk(self._root, http_request.path.split("/"), 1, found)
        if node is None:
            raise NotHere("there is nothing at this path: /docs lists all paths")
        handler = node.handlers.get(http_request.method)
        if handler is None and http_request.method == "HEAD":
            handler = node.handlers.get("GET")  # the protocol leaves the body out
        if handler is None:
            raise WrongMethod(", ".join(sorted(node.handlers)))
        http_request.parameters = found
        return handler


def _walk(node: PathNode, segments: list[str], at: int, found: dict[str, str]) -> PathNode | None:
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

    def http_request(node: PathNode, path: str) -> None:
        found.extend((method, path or "/") for method in node.handlers)
        for segment, child in node.literals.items():
            http_request(child, f"{path}/{segment}")
        if node.variable is not None:
            http_request(node.variable, f"{path}/{{{node.name}}}")

    http_request(paths._root, "")
    return found
