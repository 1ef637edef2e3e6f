"""Reads the tables of a lake with PyArrow and what the Delta protocol says of `_delta_log`, without Spark or delta-rs.

`Watcher` reads all the time: each version that it sees must have exactly the events of the batches that it is about.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from stoker.model.events import Event

Contents = Counter[Hashable]
"""Rows by what identifies them, or, where rows are sums, what they add up to."""
STREAM = re.compile(r"stoker/[0-9a-f]{8}")
POSITION = ("shard", "sequence", "index")
COUNTED = ("pushed", "started", "completed", "failed", "cancelled", "retrying", "released")
ENDS = ("completed", "failed", "cancelled", "expired")
DELIVERED = (*ENDS, "retrying", "released", "snoozed")
LAYERS = ("bronze", "jobs", "attempts", "minutes")
LOOK_S = 0.1


@dataclass
class Snapshot:
    """One version of a table."""

    version: int = -1
    files: set[str] = field(default_factory=set)
    applications: dict[str, int] = field(default_factory=dict)

    def apply(self, actions: Iterable[dict[str, Any]]) -> None:
        """Removes first: a commit can do both, and never to the same file."""
        listed = list(actions)
        for action in listed:
            if action.get("remove"):
                self.files.discard(unquote(action["remove"]["path"]))
        for action in listed:
            if action.get("add"):
                self.files.add(unquote(action["add"]["path"]))
            if action.get("txn"):
                self.applications[action["txn"]["appId"]] = action["txn"]["version"]

    @property
    def batch(self) -> int:
        """The newest batch of the stream; there is only one stream."""
        found = [number for app, number in self.applications.items() if STREAM.fullmatch(app)]
        return max(found, default=-1)


def snapshots(table: Path) -> list[Snapshot]:
    """All versions that can still be read: from the oldest checkpoint or version 0 on."""
    log = table / "_delta_log"
    commits = sorted(int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal())
    if not commits:
        return []
    now = Snapshot()
    if commits[0] > 0:
        (place,) = log.glob(f"{commits[0] - 1:020d}.checkpoint.parquet")
        now.apply(pq.read_table(place, columns=["add", "remove", "txn"]).to_pylist())
    found = []
    for number in commits:
        lines = (log / f"{number:020d}.json").read_text().splitlines()
        now = Snapshot(number, set(now.files), dict(now.applications))
        now.apply(json.loads(line) for line in lines)
        found.append(now)
    return found


def newest(table: Path) -> Snapshot:
    found = snapshots(table)
    return found[-1] if found else Snapshot()


def contents(layer: str, file: Path) -> Contents:
    """Of one file."""
    if layer != "minutes":
        rows = pq.ParquetFile(file).read(columns=list(POSITION)).to_pydict()
        return Counter(zip(*(rows[name] for name in POSITION), strict=True))
    found: Contents = Counter()
    for row in pq.ParquetFile(file).read(columns=["queue", *COUNTED]).to_pylist():
        found.update({(row["queue"], kind): row[kind] for kind in COUNTED if row[kind]})
    return found


def all_contents(lake: Path, layer: str) -> Contents:
    """Of the newest version."""
    return sum((contents(layer, lake / layer / file) for file in newest(lake / layer).files), Counter())


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
        self.seen: dict[tuple[str, int], tuple[int, Contents]] = {}
        """By layer and version: the newest batch, and what is in it."""
        self.wrong: list[str] = []
        self.looks = 0
        self._lake, self._files = lake, dict[tuple[str, str], Contents]()
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
                self._look(layer)
            self.looks += 1

    def _look(self, layer: str) -> None:
        now = newest(self._lake / layer)
        if now.version < 0 or (layer, now.version) in self.seen:
            return
        try:
            found = sum((self._contents(layer, file) for file in now.files), Counter[Hashable]())
        except (OSError, pa.ArrowException) as error:
            self.wrong.append(f"{layer}, version {now.version}: {error}")
            return
        self.seen[layer, now.version] = (now.batch, found)

    def _contents(self, layer: str, file: str) -> Contents:
        if (layer, file) not in self._files:
            self._files[layer, file] = contents(layer, self._lake / layer / file)
        return self._files[layer, file]

    def partial(self, batches: dict[int, list[Event]]) -> list[str]:
        """What was seen and is not whole."""
        found = list(self.wrong)
        for (layer, version), (last, seen) in self.seen.items():
            events = [event for number in range(last + 1) for event in batches[number]]
            if seen != expected(layer, events):
                found.append(
                    f"{layer}, version {version}, was seen with {seen - expected(layer, events)} too much, "
                    f"{expected(layer, events) - seen} missing"
                )
        return found
