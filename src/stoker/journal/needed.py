"""Which parts of a log are still needed, and when the state is saved again: decisions, without their files.

The log serves three: recovery (everything behind the last checkpoint), readers of events (a time and a number of
bytes), and payloads that stay in it until they are due.
"""

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar


class Bounds(Protocol):
    """Of the settings of a journal: when a checkpoint is due, and how much history is kept."""

    @property
    def checkpoint_records(self) -> int: ...
    @property
    def checkpoint_bytes(self) -> int: ...
    @property
    def checkpoint_files(self) -> int: ...
    @property
    def events_age_ms_max(self) -> int: ...
    @property
    def events_bytes_max(self) -> int: ...


class Finished(Protocol):
    """A part of a log that is written no more."""

    @property
    def last(self) -> Sequence[int]:
        """The last sequence number of each shard at its end."""
        ...

    @property
    def ended_at(self) -> int:
        """When its last record happened."""
        ...

    @property
    def bytes(self) -> int: ...


class Held(Protocol):
    """A part of a log in which records can be found."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    @property
    def is_rewritten(self) -> bool:
        """Whether it holds only what was needed when it was made."""
        ...

    def ends_at(self, shard: int) -> int | None: ...

    def place_of(self, shard: int, sequence: int) -> tuple[int, int]:
        """The position of the row that holds this record, and its size."""
        ...


def is_due(finished: Sequence[Finished], position: Sequence[int], bounds: Bounds, times: int = 1) -> bool:
    """Whether the log behind a checkpoint, which reaches to `position`, has grown enough that the next one is due; or
    to so many times that.
    """
    behind = behind_checkpoint(finished, position)
    if not behind:
        return False
    records = sum(behind[-1].last) - sum(position)
    size = sum(part.bytes for part in behind)
    return (
        records >= bounds.checkpoint_records * times
        or size >= bounds.checkpoint_bytes * times
        or len(behind) >= bounds.checkpoint_files * times
    )


def behind_checkpoint(finished: Sequence[Finished], position: Sequence[int]) -> list[Finished]:
    """The parts that a restart has to read."""
    return [part for part in finished if not is_covered(part, position)]


def is_covered(part: Finished, position: Sequence[int]) -> bool:
    """Whether a checkpoint reaches to the end of a part."""
    return bool(position) and all(end <= reached for end, reached in zip(part.last, position, strict=True))


def expired(finished: Sequence[Finished], now: int, bounds: Bounds) -> int:
    """How many parts, from the first, are past retention: no reader of events needs them."""
    size, kept = 0, len(finished)
    while kept and size <= bounds.events_bytes_max:
        part = finished[kept - 1]
        if part.ended_at <= now - bounds.events_age_ms_max:
            break
        size += part.bytes
        if size <= bounds.events_bytes_max:
            kept -= 1
    return kept


P = TypeVar("P", bound=Held)


class Needs(Generic[P]):
    """What of some parts of a log, those past retention, the state still refers to."""

    def __init__(self, parts: Sequence[P]) -> None:
        self._parts = parts
        self.rows: dict[str, set[int]] = {part.name: set() for part in parts}
        """Positions, by part."""
        self._bytes: dict[str, int] = dict.fromkeys(self.rows, 0)

    def add(self, shard: int, sequences: Iterable[int]) -> None:
        """A shard refers to these records."""
        for sequence in sequences:
            for part in self._parts:
                end = part.ends_at(shard)
                if end is None or end >= sequence:
                    self._add(part, shard, sequence)
                    break

    def _add(self, part: P, shard: int, sequence: int) -> None:
        position, size = part.place_of(shard, sequence)
        rows = self.rows[part.name]
        if position not in rows:
            rows.add(position)
            self._bytes[part.name] += size

    def unneeded(self) -> list[str]:
        """Parts that nothing refers to."""
        return [part.name for part in self._parts if not self.rows[part.name]]

    def mostly_dead(self, below: float) -> list[P]:
        """Neighbouring parts of which less than this share is needed: one with only that can take their place."""
        run: list[P] = []
        for part in self._parts:
            needed, size = self._bytes[part.name], max(1, part.bytes)
            if needed and needed / size < below and (not part.is_rewritten or run):
                run.append(part)
            elif needed and run:
                break
        return run
