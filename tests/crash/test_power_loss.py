"""The power goes, and what is found afterwards is as good as was promised (F3).

Three processes work on one directory, one after the other: the first two close, or just die. All changes to all files
are written down, with the moments at which something was answered. Then the power goes at many moments of that story,
and each time something else of what was not flushed is left (`images.py`). Whatever is left must open, and hold what
was there after one of the commands: none that was answered as being on disk, and none from before the last
flush, may be missing. Ids and tokens that a client has seen are not given out again.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.recovery import GAP
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import sequence_of, shard_of
from stoker.model.options import Retention, Settings
from stoker.testing import FakeClock
from tests.crash.following import Following
from tests.crash.images import after_power_cut
from tests.crash.pictures import Picture
from tests.crash.restarted import fresh_directory
from tests.crash.roles import WATCHED, recover_and_repeat, work_traced
from tests.crash.watching import Call
from tests.crash.zygote import ChildFailed, the_zygote
from tests.histories.checker import can_be_repeated
from tests.histories.history import Intent, Recovered, Reply
from tests.histories.workload import SHARDS

SOAKS = os.environ.get("STOKER_SOAK") == "1"
STORIES = 24 if SOAKS else 4
CUTS = 1_000 if SOAKS else 15
"""Power cuts in each story."""

SETTINGS = LocalSettings(
    engine=Settings(retention=Retention(completed_count=20)),
    shards=SHARDS,
    journal=JournalSettings(
        fsync_interval_ms=3_600_000,
        wal_bytes_max=40_000,
        checkpoint_records=60,
        events_bytes_max=40_000,
        disk_reserve_bytes=4096,
        keys_in_memory=1,
        checkpoint_process=False,
    ),
)
assert SETTINGS.journal is not None
UNDER_WATCH = msgspec.structs.replace(SETTINGS, journal=msgspec.structs.replace(SETTINGS.journal, vfs=WATCHED))


class Turn(msgspec.Struct, frozen=True):
    """A command that was answered."""

    command: c.Command[Any] | None
    reply: Any
    begun: int
    """So many changes had been made to files before it was asked for, ..."""
    answered: int
    """... and so many when it was answered."""
    pictures: list[Picture]
    """What every shard must hold after it."""

    @property
    def is_on_disk(self) -> bool:
        return getattr(self.reply, "level", None) == "fsync"


class Story:
    """Some processes and everything that they did."""

    def __init__(self, seed: int, *, lies: bool = False) -> None:
        self.seed = seed
        self.calls: list[Call] = []
        self._lies = lies
        self._path = fresh_directory()
        self._following = Following(SETTINGS, f"seed {seed}")
        self.turns = [Turn(None, None, 0, 0, self._following.oracle.pictures())]
        chance = random.Random(seed)
        for process in range(3):
            self._live(f"{seed}.{process}", closes=chance.random() < 0.5)
        shutil.rmtree(self._path)

    def _live(self, name: str, *, closes: bool) -> None:
        """A process: what it says goes to the checks, and every answer becomes a turn."""
        memory = self._following.checker.memory()
        memory.now = FakeClock().now_ms()
        before = len(self.calls)
        asked: Intent | None = None
        reply: Any = None
        with the_zygote().fork(work_traced, str(self._path), UNDER_WATCH, name, memory, closes, self._lies) as child:
            while not isinstance(said := child.receive(), list):
                if isinstance(said, int):
                    assert asked is not None
                    self._end_turn(asked.command, reply, before + said)
                    continue
                self._following.read(said, child)
                if isinstance(said, Intent):
                    asked, reply = said, None
                elif isinstance(said, Reply):
                    reply = said.reply
        self.calls += said

    def _end_turn(self, command: c.Command[Any], reply: Any, position: int) -> None:
        pictures = self._following.oracle.pictures()
        self.turns.append(Turn(command, reply, self.turns[-1].answered, position, pictures))

    # --- what must be there ------------------------------------------------------------------------

    def least(self, cut: int) -> int:
        """The last turn that must have survived a power cut after so many changes."""
        told = max(
            (number for number, turn in enumerate(self.turns) if turn.is_on_disk and turn.answered <= cut), default=0
        )
        return max(told, self._flushed(cut))

    def _flushed(self, cut: int) -> int:
        """Up to which turn everything that was written to the log was flushed later on, by what the trace says."""
        flushed: dict[str, int] = {}
        for place, call in enumerate(self.calls[:cut]):
            if call.verb == "sync":
                flushed[call.name] = place
        for number, turn in enumerate(self.turns):
            for place in range(turn.begun, min(cut, turn.answered)):
                call = self.calls[place]
                if call.verb == "write" and call.name.endswith("-wal") and place >= flushed.get(call.name, 0):
                    return number - 1
            if turn.answered > cut:
                return number - 1
        return len(self.turns) - 1

    def most(self, cut: int) -> int:
        """The last turn that may have survived: the one that was being carried out."""
        return max(number for number, turn in enumerate(self.turns) if turn.begun <= cut)

    def given(self, cut: int) -> tuple[Counter[int], Counter[int]]:
        """The highest id and the highest token of every shard that somebody has been told of."""
        ids: Counter[int] = Counter()
        tokens: Counter[int] = Counter()
        for turn in self.turns:
            if turn.answered > cut:
                break
            for job in ids_of(turn.reply):
                ids[shard_of(job)] = max(ids[shard_of(job)], sequence_of(job))
                if isinstance(turn.reply, r.Delivery):
                    tokens[shard_of(job)] = max(tokens[shard_of(job)], turn.reply.token)
        return ids, tokens


def ids_of(reply: Any) -> Sequence[int]:
    match reply:
        case r.Pushed():
            return [reply.id]
        case r.PushedBatch() | r.Delivery():
            return [job for job in reply.ids if job]
    return []


def check_cut(story: Story, cut: int, chance: random.Random, gap: int = GAP) -> list[str]:
    """What is wrong after a power cut, if anything is."""
    path = fresh_directory()
    for name, data in after_power_cut(story.calls[:cut], chance).items():
        (path / name).write_bytes(data)
    try:
        return recovered_wrongly(story, cut, path, gap)
    finally:
        shutil.rmtree(path)


def recovered_wrongly(story: Story, cut: int, path: Path, gap: int) -> list[str]:
    with the_zygote().fork(recover_and_repeat, str(path), SETTINGS, gap) as child:
        try:
            found = child.receive()
            assert isinstance(found, Recovered)
            child.send("go on")
            reached = turn_of(story, found.pictures)
            least, most = story.least(cut), story.most(cut)
            wrong = []
            if not any(least <= turn <= most for turn in reached):
                wrong.append(f"it holds what was there after {reached}, and not after one of {least} to {most}")
            wrong += given_again(story, cut, found.pictures)
            turn = max(reached, default=0)
            repeatable = [each for each in story.turns[: turn + 1] if can_be_repeated(each.command) and each.reply]
            child.send([each.command for each in repeatable])
            for each in repeatable:
                reply = child.receive()
                if list(ids_of(reply)) != list(ids_of(each.reply)):
                    wrong.append(f"{each.command} was repeated and gave {reply} instead of {each.reply}")
            assert child.receive() == "closed"
            return wrong
        except ChildFailed as failure:
            return [f"it does not open: {failure}"]


def turn_of(story: Story, found: list[Picture]) -> list[int]:
    """After which turns exactly this was there."""
    states = [picture.state for picture in found]
    return [number for number, turn in enumerate(story.turns) if [each.state for each in turn.pictures] == states]


def given_again(story: Story, cut: int, found: list[Picture]) -> list[str]:
    ids, tokens = story.given(cut)
    wrong = []
    for shard, picture in enumerate(found):
        if picture.sequence < ids[shard]:
            wrong.append(f"shard {shard} gives ids from {picture.sequence + 1} on, and has given {ids[shard]}")
        if picture.token < tokens[shard]:
            wrong.append(f"shard {shard} gives tokens from {picture.token + 1} on, and has given {tokens[shard]}")
    return wrong


@cache
def tell(seed: int) -> Story:
    return Story(seed)


@pytest.mark.parametrize("seed", range(STORIES))
def test_what_was_flushed_survives_a_power_cut(seed: int):
    story, chance = tell(seed), random.Random(seed)
    for number in range(CUTS):
        cut = chance.randint(0, len(story.calls))
        wrong = check_cut(story, cut, random.Random(f"{seed}.{number}"))
        assert wrong == [], f"seed {seed}, number {number}, after {cut} of {len(story.calls)} changes"


def test_the_stories_have_everything_in_them():
    for seed in range(STORIES):
        story = tell(seed)
        verbs = Counter(call.verb for call in story.calls)
        assert all(
            verbs[verb] for verb in ("create", "write", "truncate", "delete", "rename", "sync", "sync_directory")
        )
        assert any(call.name.startswith("checkpoint-") for call in story.calls)
        assert any(turn.is_on_disk for turn in story.turns)
        assert any(story.least(cut) < story.most(cut) - 3 for cut in range(len(story.calls))), "much is not flushed"


def test_a_disk_that_lies_is_found_out():
    """Nothing is flushed, and yet it says so: the checks must see that something is missing."""
    story = Story(0, lies=True)
    chance = random.Random(0)
    found = 0
    for number in range(30):
        found += bool(check_cut(story, chance.randint(0, len(story.calls)), random.Random(number)))
        if found > 4:
            return
    pytest.fail(f"it was found out only {found} times")


def test_ids_that_are_given_again_are_found_out():
    """Without the distance that recovery keeps from what may have been lost."""
    story, chance = tell(0), random.Random(0)
    missing = {"gives ids", "gives tokens"}
    for number in range(60):
        for what in check_cut(story, chance.randint(0, len(story.calls)), random.Random(number), gap=0):
            missing -= {words for words in missing if words in what}
        if not missing:
            return
    pytest.fail(f"nobody noticed: it {missing}")
