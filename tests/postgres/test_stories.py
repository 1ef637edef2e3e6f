"""The promises of one seat; and bugs planted into it, each of which makes its story fail."""

from collections.abc import Callable

import pytest

from stoker.journal.postgres import retention, writer
from stoker.journal.postgres.journal import PostgresJournal
from stoker.model.errors import StokerError
from tests.postgres.stories import (
    STORIES,
    Story,
    a_busy_broker_keeps_its_lease,
    a_checkpoint_never_goes_backwards,
    a_lost_end_is_noticed,
    a_stale_owner_is_refused,
    an_append_in_flight_is_read_by_the_next_owner,
    nothing_is_read_after_the_lease,
)

Bug = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Story, cluster: str, monkeypatch: pytest.MonkeyPatch):
    story(cluster, monkeypatch)


def changed(monkeypatch: pytest.MonkeyPatch, module: object, name: str, old: str, new: str) -> None:
    """Plant a bug into a statement."""
    text = getattr(module, name)
    assert old in text
    monkeypatch.setattr(module, name, text.replace(old, new))


def fence_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, writer, "APPEND", "heads.epoch = asked.epoch AND heads.last = asked.last", "true")


def predecessor_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(
        monkeypatch,
        writer,
        "APPEND",
        "heads.epoch = asked.epoch AND heads.last = asked.last",
        "heads.epoch = asked.epoch",
    )


def epoch_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale owner that has seen as many records as there are may write on."""
    changed(
        monkeypatch,
        writer,
        "APPEND",
        "heads.epoch = asked.epoch AND heads.last = asked.last",
        "heads.last >= asked.last",
    )


def reads_after_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(self: PostgresJournal, ticket: int) -> bool:
        return self._tickets.reached >= ticket

    def when_flushed(self: PostgresJournal, ticket: int, tell: Callable[[], object]) -> bool:
        return self._tickets.reached < ticket and self._tickets.when(ticket, tell)

    monkeypatch.setattr(PostgresJournal, "reached", reached)
    monkeypatch.setattr(PostgresJournal, "when_flushed", when_flushed)


def renewal_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals wait for the lock that every turn needs."""
    monkeypatch.setattr("tests.journal.toy_roles.PATIENCE_S", 5)  # it never comes
    from stoker.journal.postgres.store import PostgresStore

    real = PostgresStore.start

    def start(self: PostgresStore, owner: object) -> None:
        renew = self.lease._renew

        def in_turn() -> None:
            with owner.guard:  # type: ignore[attr-defined]
                renew()

        monkeypatch.setattr(self.lease, "_renew", in_turn)
        real(self, owner)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresStore, "start", start)


def checkpoint_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, retention, "ENFORCE", "reached.new < reached.before", "false")


BUGS: list[tuple[Bug, Story]] = [
    (fence_left_out, a_stale_owner_is_refused),
    (epoch_not_looked_at, a_stale_owner_is_refused),
    (fence_left_out, an_append_in_flight_is_read_by_the_next_owner),
    (predecessor_not_looked_at, a_lost_end_is_noticed),
    (reads_after_the_lease, nothing_is_read_after_the_lease),
    (renewal_on_the_loop, a_busy_broker_keeps_its_lease),
    (checkpoint_backwards, a_checkpoint_never_goes_backwards),
]


@pytest.mark.parametrize(("bug", "story"), BUGS, ids=lambda each: each.__name__)
def test_a_planted_bug_is_noticed(bug: Bug, story: Story, cluster: str, monkeypatch: pytest.MonkeyPatch):
    bug(monkeypatch)
    with pytest.raises((AssertionError, StokerError)):
        story(cluster, monkeypatch)
