"""How many objects a large request would become, found out before it becomes them.

An empty map is one byte on the wire and some hundred bytes as the options of a job; a frame within its limit could so
take all memory there is. The fields that hold many such things are looked at with a decoder that keeps nothing and
stops at the first one too many. What it costs is paid by large requests only.
"""

from typing import Any, Literal

import msgspec

COUNTED_BYTES = 256 * 1024
"""Smaller requests cannot become more than some ten megabytes."""
OBJECTS_MAX = 100_000
"""Three times what a full batch with all its edges has."""

CODECS: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}

Verdict = Literal["few", "many", "odd"]
"""`odd`: something stands there that no request has, and every typed decoder stops at it at the latest."""


def judge(body: Any, codec: str, most: int = OBJECTS_MAX, *, as_list: bool = False) -> Verdict:
    """Whether a request (or, `as_list`, a list of items) holds more than this many items and edges."""
    counted = 0

    def one_more() -> None:
        nonlocal counted
        counted += 1
        if counted > most:
            raise ValueError("too many")

    class CountedEdge(msgspec.Struct):
        def __post_init__(self) -> None:
            one_more()

    class CountedItem(msgspec.Struct):
        depends_on: list[int | CountedEdge] | None = None
        after: list[int | str | CountedEdge] | None = None
        jobs: list[CountedEdge] | None = None

        def __post_init__(self) -> None:
            one_more()

    class CountedBody(msgspec.Struct):
        jobs: list[CountedItem] | None = None
        children: list[CountedItem] | None = None
        entries: list[CountedItem] | None = None
        each: list[CountedItem] | None = None
        steps: list[CountedItem] | None = None
        options: CountedItem | None = None
        depends_on: list[int | CountedEdge] | None = None

    try:
        found = CODECS[codec].decode(body, type=list[int | CountedItem] if as_list else CountedBody)
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError):
        return "many" if counted > most else "odd"
    return "many" if as_list and len(found) > most else "few"
