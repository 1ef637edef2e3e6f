"""Reads a lake with PyArrow and what docs/pipeline/tables.md says of manifests, without Spark.

`Watcher` reads all the time: what it sees once must never change, and must be a complete batch.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from stoker.model.events import Event

Contents = Counter[Hashable]
"""Rows by what identifies them, or, where rows are sums, what they add up to."""
NAME = re.compile(r"batch=\w+-(\d{10})(?:-(\d{10}))?")
POSITION = ("shard", "sequence", "index")
COUNTED = ("pushed", "started", "completed", "failed", "cancelled", "retrying", "released")
ENDS = ("completed", "failed", "cancelled", "expired")
DELIVERED = (*ENDS, "retrying", "released", "snoozed")
LAYERS = ("bronze", "jobs", "attempts", "minutes")
LOOK_S = 0.1


def directories(layer: Path) -> list[Path]:
    """Those that count."""
    while True:
        manifest, stretches = manifest_of(layer)
        found = [place for place in sorted(layer.glob("batch=*")) if counts(stretch_of(place.name), stretches)]
        if manifest_of(layer)[0] == manifest:
            return found


def manifest_of(layer: Path) -> tuple[str, list[tuple[int, int]]]:
    manifests = sorted((layer / "_compacted").glob("[0-9]*.json"))
    if not manifests:
        return "", []
    return manifests[-1].name, [(first, last) for first, last in json.loads(manifests[-1].read_text())["stretches"]]


def stretch_of(name: str) -> tuple[int, int]:
    found = NAME.fullmatch(name)
    assert found is not None, name
    return int(found[1]), int(found[2] or found[1])


def counts(stretch: tuple[int, int], compacted: list[tuple[int, int]]) -> bool:
    first, last = stretch
    return stretch in compacted or (first == last and not any(low <= first <= high for low, high in compacted))


def contents(layer: str, place: Path) -> Contents:
    """Of one directory."""
    files = ds.dataset(place, format="parquet")
    if layer != "minutes":
        rows = files.to_table(columns=list(POSITION)).to_pydict()
        return Counter(zip(*(rows[name] for name in POSITION), strict=True))
    found: Contents = Counter()
    for row in files.to_table(columns=["queue", *COUNTED]).to_pylist():
        found.update({(row["queue"], kind): row[kind] for kind in COUNTED if row[kind]})
    return found


def all_contents(lake: Path, layer: str) -> Contents:
    return sum((contents(layer, place) for place in directories(lake / layer)), Counter())


def expected(layer: str, events: Iterable[Event]) -> Contents:
    """What a layer has to say of these events."""
    if layer == "minutes":
        return Counter((event.queue, str(event.kind)) for event in events if event.kind in COUNTED)
    if layer == "jobs":
        events = [event for event in events if event.kind in ENDS]
    elif layer == "attempts":
        events = [event for event in events if event.kind in DELIVERED and event.started_at]
    return Counter((event.shard, event.sequence, event.index) for event in events)


def by_batch(lake: Path, events: Iterable[Event]) -> dict[int, list[Event]]:
    """The events that belong to each batch, by the offsets that Spark keeps of it."""
    offsets = {int(path.name): read_offsets(path) for path in (lake / "_checkpoint" / "offsets").glob("[0-9]*")}
    found: dict[int, list[Event]] = {number: [] for number in offsets}
    for event in events:
        reached = [number for number, ends in offsets.items() if event.sequence <= ends[event.shard]]
        if reached:
            found[min(reached)].append(event)
    return found


def read_offsets(path: Path) -> dict[int, int]:
    return {int(shard): last for shard, last in json.loads(path.read_text().splitlines()[-1]).items()}


class Watcher:
    """Looks at a lake from another thread for as long as it is entered."""

    def __init__(self, lake: Path) -> None:
        self.seen: dict[tuple[str, str], Contents] = {}
        """By layer and directory."""
        self.wrong: list[str] = []
        self.looks = 0
        self._lake, self._files = lake, dict[tuple[str, str], Any]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """After a last look."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(LOOK_S)
            for layer in LAYERS:
                for place in directories(self._lake / layer):
                    self._look(layer, place)
            self.looks += 1

    def _look(self, layer: str, place: Path) -> None:
        name = (layer, place.name)
        try:
            files = sorted((file.name, file.stat().st_size) for file in place.glob("[!._]*"))
            found = self.seen[name] if name in self.seen else contents(layer, place)
        except (OSError, pa.ArrowException) as error:
            files, found = [(str(error), 0)], Counter()
        is_new = name not in self.seen
        if (is_new or files != self._files[name]) and place not in directories(self._lake / layer):
            return  # a compaction has removed it meanwhile
        if is_new:
            self.seen[name], self._files[name] = found, files
        elif files != self._files[name]:
            self.wrong.append(f"{layer}/{place.name} had {self._files[name]} and has {files}")

    def partial(self, batches: dict[int, list[Event]]) -> list[str]:
        """What was seen and is not whole."""
        found = list(self.wrong)
        for (layer, name), seen in self.seen.items():
            first, last = stretch_of(name)
            events = [event for number in range(first, last + 1) for event in batches[number]]
            if seen != expected(layer, events):
                found.append(
                    f"{layer}/{name} was seen with {seen - expected(layer, events)} too much, "
                    f"{expected(layer, events) - seen} missing"
                )
        return found
