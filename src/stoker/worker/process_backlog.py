"""Work for child processes: jobs of chunks, cut into pieces that wait in line or are held by a child.

Values and arithmetic; nothing here knows processes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoker.worker.handler import Handler
from stoker.worker.lane import JobChunk
from stoker.worker.process_frames import Part


@dataclass(slots=True)
class ChunkPart:
    """Some jobs of a chunk."""

    chunk: JobChunk
    ids: Sequence[int]
    payloads: Sequence[bytes]

    def split(self, count: int) -> tuple["ChunkPart", "ChunkPart | None"]:
        """The first `count` jobs, and the rest."""
        if count >= len(self.ids):
            return self, None
        return (
            ChunkPart(self.chunk, self.ids[:count], self.payloads[:count]),
            ChunkPart(self.chunk, self.ids[count:], self.payloads[count:]),
        )

    def remove(self, job: int) -> None:
        at = self.ids.index(job)
        self.ids = [*self.ids[:at], *self.ids[at + 1 :]]
        self.payloads = [*self.payloads[:at], *self.payloads[at + 1 :]]

    def part(self) -> Part:
        chunk = self.chunk
        return Part(
            chunk.token,
            chunk.queue,
            list(self.ids),
            list(self.payloads),
            chunk.options,
            chunk.attempt,
            chunk.pushed_at,
            chunk.received_at,
        )


@dataclass(slots=True, eq=False)
class ChildPiece:
    """Work for a child: some jobs one after another, or all of them `together` in one call."""

    tasks: list[ChunkPart]
    together: bool = False
    done: Callable[[], None] | None = None
    """Called when none of its jobs is left."""
    left: int = 0

    def __post_init__(self) -> None:
        self.left = self.jobs

    @property
    def jobs(self) -> int:
        return sum(len(task.ids) for task in self.tasks)

    @property
    def handler(self) -> Handler:
        return self.tasks[0].chunk.handler

    def lost(self, jobs: int = 1) -> None:
        """Remove this many of its jobs."""
        self.left -= jobs
        if self.left == 0 and self.done is not None:
            self.done()


@dataclass(slots=True)
class InHand:
    """One job that a child has."""

    chunk: JobChunk
    job: int
    payload: bytes
    piece: ChildPiece

    def is_called_with(self, other: "InHand") -> bool:
        return self.piece.together and self.piece is other.piece


def tasks_of(some: list[InHand]) -> list[ChunkPart]:
    """The same jobs grouped by chunk."""
    by_chunk: dict[JobChunk, list[InHand]] = {}
    for held in some:
        by_chunk.setdefault(held.chunk, []).append(held)
    return [
        ChunkPart(chunk, [held.job for held in jobs], [held.payload for held in jobs])
        for chunk, jobs in by_chunk.items()
    ]


class Backlog:
    """Pieces that wait for a child, in order."""

    def __init__(self) -> None:
        self._pieces: deque[ChildPiece] = deque()
        self.jobs = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def handler(self) -> str:
        """The name of the next handler."""
        return self._pieces[0].handler.name

    def add(self, piece: ChildPiece, *, first: bool = False) -> None:
        self.jobs += piece.left
        if first:
            self._pieces.appendleft(piece)
        else:
            self._pieces.append(piece)

    def next(self, jobs: int) -> ChildPiece:
        """Up to `jobs` jobs; jobs that are called together stay together."""
        piece = self._pieces.popleft()
        if not piece.together:
            head, rest = piece.tasks[0].split(jobs)
            piece = ChildPiece([head])
            if rest is not None:
                self._pieces.appendleft(ChildPiece([rest]))
        self.jobs -= piece.left
        return piece

    def empty(self) -> list[ChunkPart]:
        """Remove and return everything that waits."""
        pieces, self._pieces, self.jobs = self._pieces, deque(), 0
        tasks = [task for piece in pieces for task in piece.tasks]
        for piece in pieces:
            piece.lost(piece.left)
        return tasks

    def remove(self, chunk: JobChunk, job: int) -> bool:
        """Remove a job. Returns whether it was there."""
        for piece in self._pieces:
            for task in piece.tasks:
                if task.chunk is chunk and job in task.ids:
                    task.remove(job)
                    self.jobs -= 1
                    piece.tasks = [task for task in piece.tasks if task.ids]
                    self._pieces = deque(piece for piece in self._pieces if piece.tasks)
                    piece.lost()
                    return True
        return False
