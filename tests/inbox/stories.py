"""What a reader promises, each in a small story over a real PostgreSQL and a real queue.

`test_reader.py` runs them as they are; `test_planted_bugs.py` runs them over code with a bug in it.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any

import psycopg

from stoker.inbox.reader import QueueTrouble, Reader
from stoker.model import commands as c
from stoker.model import errors
from stoker.model.replies import PushedBatch, Refusal
from tests.inbox.world import Died, InboxWorld, Mortal

Story = Callable[[InboxWorld], None]
HOUR_S = 3_600


def payloads(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def once(*payloads: bytes) -> Counter[bytes]:
    return Counter(payloads)


class Answers:
    """A queue that answers a push with these, in turn: an error, a refusal of items, or as the real one does."""

    def __init__(self, world: InboxWorld, *answers: errors.StokerError | dict[int, Refusal] | None) -> None:
        self._real, self._answers = world.client.broker.execute_async, list(answers)
        self.commands: list[c.PushBatch] = []

    async def __call__(self, tenant: str, command: c.PushBatch) -> PushedBatch:
        self.commands.append(command)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, errors.StokerError):
            raise answer
        if answer is not None:
            return PushedBatch([0] * len(command.payloads), answer)
        return await self._real(tenant, command)


class PushedThen:
    """A queue that takes the push, and whose answer is this error."""

    def __init__(self, world: InboxWorld, error: errors.StokerError) -> None:
        self._real, self._error = world.client.broker.execute_async, error

    async def __call__(self, tenant: str, command: c.PushBatch) -> PushedBatch:
        await self._real(tenant, command)
        raise self._error


def stop_clock(reader: Reader) -> None:
    """No time passes for it: it neither looks at the whole table again nor tries again what waits."""
    now = reader._clock()
    reader._clock = lambda: now


def read_in_trouble(world: InboxWorld, reader: Reader) -> None:
    with contextlib.suppress(QueueTrouble):
        world.read(1, reader)


# --- every committed row is one job ------------------------------------------------------------------


def a_reader_that_dies_anywhere_loses_and_doubles_nothing(world: InboxWorld) -> None:
    """Two queues, a row that is nonsense and a row that the queue refuses: every outcome is on the way."""
    whole = Mortal()
    fill(world)
    world.read(1, life=whole)
    assert whole.points > 15
    expected = check(world)
    for point in range(1, whole.points + 1):
        fill(world)
        try:
            world.read(1, life=Mortal(point))
        except Died:
            pass
        else:
            raise AssertionError(f"nothing happened at point {point}")
        world.read_all()
        assert check(world) == expected, f"died at point {point} of {whole.points}"


def fill(world: InboxWorld) -> None:
    world.sql("TRUNCATE stoker_inbox")
    world.seen.clear()
    with world.database.transaction():
        world.commit(*payloads(3))
        world.commit(*payloads(3, 3), queue="bills")
        world.sql("INSERT INTO stoker_inbox (queue, payload, options) VALUES ('mail', 'x', '{\"nonsense\": 1}')")
        world.commit(b"refused", unique_key="k" * 2_000)


def check(world: InboxWorld) -> tuple[Counter[bytes], list[str]]:
    jobs = Counter(world.jobs())
    assert jobs == once(*payloads(6))
    return jobs, sorted(error.partition(":")[0] for error in world.errors().values())


def rows_of_a_queue_come_in_the_order_of_their_insertion(world: InboxWorld) -> None:
    world.commit(*payloads(50))
    world.read(1)
    assert [job.payload for job in world.client.pull("mail", 100)] == payloads(50)


def a_batch_that_was_left_is_sent_again_under_its_name(world: InboxWorld) -> None:
    world.commit(*payloads(3))
    read_in_trouble(world, world.reader(PushedThen(world, errors.Unknown("the answer was lost"))))
    first = world.sql("SELECT DISTINCT batch FROM stoker_inbox")
    again = Answers(world)
    world.read(1, world.reader(again))
    assert again.commands == []  # not before a minute has passed
    world.age()
    world.read(1, world.reader(again))
    assert [(command.request_key,) for command in again.commands] == first
    assert world.jobs() == once(*payloads(3))
    assert world.rows() == 0


def a_refusal_of_a_batch_that_may_have_been_pushed_takes_no_name_off(world: InboxWorld) -> None:
    """The queue had taken the batch, and is full when it comes again: a new name would push it twice."""
    world.commit(*payloads(3))
    read_in_trouble(world, world.reader(PushedThen(world, errors.Unknown("the answer was lost"))))
    world.age()
    read_in_trouble(world, world.reader(Answers(world, errors.DiskFull("no room"))))
    world.read_all()
    assert world.jobs() == once(*payloads(3))


def a_reader_that_was_held_up_sends_nothing_that_another_one_may_send(world: InboxWorld) -> None:
    """It wakes up after the queue has forgotten the request: it must notice, and not push a second time."""
    world.commit(*payloads(3))
    answers = Answers(world)
    reader = world.reader(answers)
    sort, clock = reader._sorted, reader._clock

    def sorted_in_sleep(rows: Any) -> Any:
        reader._clock = lambda: clock() + HOUR_S
        return sort(rows)

    reader._sorted = sorted_in_sleep  # type: ignore[method-assign]
    world.read(1, reader)
    assert answers.commands == []
    world.read_all()
    assert world.jobs() == once(*payloads(3))


def a_name_is_not_taken_off_a_batch_that_another_reader_has_taken(world: InboxWorld) -> None:
    """One reader is slow to hear that the queue is full; meanwhile another one has pushed the batch."""
    world.commit(*payloads(3))
    other = world.client.broker.execute_async

    class Slow:
        async def __call__(self, tenant: str, command: c.PushBatch) -> PushedBatch:
            world.sql("UPDATE stoker_inbox SET taken_at = clock_timestamp()")  # as the other one's take does
            await other(tenant, command)
            raise errors.DiskFull("no room")

    read_in_trouble(world, world.reader(Slow()))
    world.read_all()
    assert world.jobs() == once(*payloads(3))


def two_readers_at_once_never_name_the_same_rows(world: InboxWorld) -> None:
    """The second reader claims while the first one has read the rows, and not yet named them."""
    world.commit(*payloads(3))
    first, second = world.reader(), world.reader()
    sort = first._sorted

    def sorted_meanwhile(rows: Any) -> Any:
        other = Thread(target=world.read, args=(1, second))
        other.start()
        other.join(60)
        assert not other.is_alive(), "it waits for locks"
        return sort(rows)

    first._sorted = sorted_meanwhile  # type: ignore[method-assign]
    world.read(1, first)
    world.read_all()
    assert world.jobs() == once(*payloads(3))


# --- what cannot be pushed ---------------------------------------------------------------------------


def rows_with_nonsense_are_set_aside_by_name_and_the_others_go_on(world: InboxWorld) -> None:
    nonsense = {
        "queue 'no queue!' is not a valid name": ("default", "no queue!", "{}"),
        "tenant '' is not a valid name": ("", "mail", "{}"),
        "unknown field 'prioritty'; did you mean 'priority'": ("default", "mail", '{"prioritty": 1}'),
        "Expected `int`, got `str` - at `$.priority`": ("default", "mail", '{"priority": "high"}'),
        "Expected `object`, got `array`": ("default", "mail", "[]"),
        "depends_on names an item of a batch": ("default", "mail", '{"depends_on": [{"item": 0}]}'),
        "limit_exceeded: ": ("default", "mail", '{"group_id": "' + "g" * 2_000 + '"}'),
        "unknown_dependency: ": ("default", "mail", '{"depends_on": [{"id": 999999999999}]}'),
        "may not name tenant 'other'": ("other", "mail", "{}"),
    }
    for tenant, queue, options in nonsense.values():
        world.sql(
            "INSERT INTO stoker_inbox (tenant, queue, payload, options) VALUES (%s, %s, 'x', %s)",
            tenant,
            queue,
            options,
        )
    world.commit(*payloads(3))
    reader = world.reader(tenants=["default"])
    world.read(1, reader)
    found = list(world.errors().values())
    assert len(found) == len(nonsense)
    assert [words for words, error in zip(nonsense, found, strict=True) if words not in error] == []
    assert (reader.totals.pushed, reader.totals.refused) == (3, len(nonsense))
    assert world.jobs() == once(*payloads(3))
    world.read_all()
    assert world.rows() == len(nonsense)


def rows_that_claim_to_be_in_a_batch_are_set_aside(world: InboxWorld) -> None:
    """A program wrote into columns of the readers: its rows are neither pushed nor mixed into a batch."""
    world.commit(*payloads(3))
    read_in_trouble(world, world.reader(PushedThen(world, errors.Unknown("the answer was lost"))))
    name = world.sql("SELECT DISTINCT batch FROM stoker_inbox")[0][0]
    world.sql(
        "INSERT INTO stoker_inbox (queue, payload, batch, named_at, taken_at) VALUES ('mail', 'new', %s, now(), now())",
        name,
    )
    world.sql("INSERT INTO stoker_inbox (queue, payload, batch) VALUES ('bills', 'own', 'my batch')")
    world.read_all()
    assert world.jobs() == once(*payloads(3))
    assert {error.partition(":")[0] for error in world.errors().values()} == {"unknown"}
    assert world.rows() == 5


def a_batch_that_is_older_than_half_the_memory_of_the_queue_is_set_aside(world: InboxWorld) -> None:
    world.commit(*payloads(3))
    read_in_trouble(world, world.reader(PushedThen(world, errors.Unknown("the answer was lost"))))
    world.age(12 * HOUR_S + 60)
    world.commit(*payloads(3, 3), queue="bills")
    answers = Answers(world)
    reader = world.reader(answers)
    world.read(1, reader)
    assert [command.queue for command in answers.commands] == ["bills"]  # the reader goes on
    assert reader.totals.set_aside == 3
    assert all("so old that the queue may have forgotten" in error for error in world.errors().values())


def a_batch_below_that_age_is_sent(world: InboxWorld) -> None:
    world.commit(*payloads(3))
    read_in_trouble(world, world.reader(PushedThen(world, errors.Unknown("the answer was lost"))))
    world.age(11 * HOUR_S)
    world.read(1)
    assert world.rows() == 0
    assert world.jobs() == once(*payloads(3))


# --- what is refused for now -------------------------------------------------------------------------


def rows_wait_while_the_queue_takes_nothing(world: InboxWorld) -> None:
    world.commit(*payloads(2))
    world.commit(*payloads(2, 2), queue="bills")
    for error in (errors.DiskFull("full"), errors.Unreachable("away"), errors.Unauthenticated("no token")):
        answers = Answers(world, error)
        read_in_trouble(world, world.reader(answers))
        assert len(answers.commands) == 1  # the second queue is not tried
        assert world.sql("SELECT count(*) FROM stoker_inbox WHERE batch IS NULL AND error IS NULL") == [(4,)]
    world.read(1)
    assert world.jobs() == once(*payloads(4))


def rows_of_a_queue_over_its_quota_hold_up_no_other(world: InboxWorld) -> None:
    world.commit(*payloads(2))
    world.commit(*payloads(2, 2), queue="bills")
    answers = Answers(world, errors.QuotaExceeded("too many"))
    reader = world.reader(answers)
    stop_clock(reader)
    world.read(3, reader)
    assert [command.queue for command in answers.commands] == ["mail", "bills"]
    assert world.errors() == {}
    world.read_all()
    assert world.jobs() == once(*payloads(4))


def items_that_are_refused_for_now_get_another_name(world: InboxWorld) -> None:
    world.commit(*payloads(1))
    world.read(1, world.reader(Answers(world, {0: Refusal("memory_full", "no room")})))
    assert world.sql("SELECT batch, error FROM stoker_inbox") == [(None, None)]
    world.read(1)
    assert world.jobs() == once(*payloads(1))


def a_batch_that_is_too_large_for_the_queue_is_pushed_in_smaller_ones(world: InboxWorld) -> None:
    world.commit(*payloads(10))

    class Small(Answers):
        async def __call__(self, tenant: str, command: c.PushBatch) -> PushedBatch:
            if len(command.payloads) > 3:
                raise errors.LimitExceeded("batch_jobs_max is 3")
            return await super().__call__(tenant, command)

    world.read(12, world.reader(Small(world)))
    assert world.rows() == 0
    assert world.jobs() == once(*payloads(10))


# --- finding rows ------------------------------------------------------------------------------------


def a_row_that_commits_late_is_found_although_later_ids_were_pushed(world: InboxWorld) -> None:
    with psycopg.connect(world.url) as slow:
        slow.execute("INSERT INTO stoker_inbox (queue, payload) VALUES ('mail', 'late')")
        reader = world.reader()
        stop_clock(reader)
        for number in range(6):
            world.commit(b"%d" % number)
            world.read(1, reader)
        slow.commit()
        world.read(1, reader)
    assert world.rows() == 0
    assert world.jobs() == once(*payloads(6), b"late")


def a_backlog_is_read_to_its_end_without_waiting_for_a_full_look(world: InboxWorld) -> None:
    world.sql(
        "INSERT INTO stoker_inbox (queue, payload) SELECT 'mail', convert_to(n::text, 'UTF8')"
        " FROM generate_series(0, 4999) AS n"
    )
    reader = world.reader()
    world.read(1, reader)
    reader._full_at = float("inf")  # no other full look
    world.read(6, reader)
    assert world.rows() == 0
    assert world.jobs() == once(*payloads(5_000))


STORIES: Iterable[Story] = (
    two_readers_at_once_never_name_the_same_rows,
    a_reader_that_dies_anywhere_loses_and_doubles_nothing,
    rows_of_a_queue_come_in_the_order_of_their_insertion,
    a_batch_that_was_left_is_sent_again_under_its_name,
    a_refusal_of_a_batch_that_may_have_been_pushed_takes_no_name_off,
    a_reader_that_was_held_up_sends_nothing_that_another_one_may_send,
    a_name_is_not_taken_off_a_batch_that_another_reader_has_taken,
    rows_with_nonsense_are_set_aside_by_name_and_the_others_go_on,
    rows_that_claim_to_be_in_a_batch_are_set_aside,
    a_batch_that_is_older_than_half_the_memory_of_the_queue_is_set_aside,
    a_batch_below_that_age_is_sent,
    rows_wait_while_the_queue_takes_nothing,
    rows_of_a_queue_over_its_quota_hold_up_no_other,
    items_that_are_refused_for_now_get_another_name,
    a_batch_that_is_too_large_for_the_queue_is_pushed_in_smaller_ones,
    a_row_that_commits_late_is_found_although_later_ids_were_pushed,
    a_backlog_is_read_to_its_end_without_waiting_for_a_full_look,
)
