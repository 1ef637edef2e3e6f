"""Bugs planted into the reader, each of which makes a named story fail."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stoker.inbox import table
from tests.inbox import stories
from tests.inbox.stories import Story
from tests.inbox.world import InboxWorld
from tests.mutants.planting import Edit, planted_here

DIES = stories.a_reader_that_dies_anywhere_loses_and_doubles_nothing

BUGS = {
    "batch name made anew": (
        Edit("inbox.reader:Reader._send", "request_key=sending.batch", "request_key=sending.batch + uuid4().hex"),
        DIES,
    ),
    "deleted before pushed": (
        Edit("inbox.reader:Reader._send", "payloads, each =", "await table.settle(sending, {})\n    payloads, each ="),
        DIES,
    ),
    "locks let go before the rows are named": (
        Edit("inbox.table:InboxTable.claim", "async with self._connection.transaction():", "if True:"),
        stories.two_readers_at_once_never_name_the_same_rows,
    ),
    "name taken off what may have been pushed": (
        Edit("inbox.reader:Reader._not_pushed", "if not sending.is_first:", "if False:"),
        stories.a_refusal_of_a_batch_that_may_have_been_pushed_takes_no_name_off,
    ),
    "late reader sends": (
        Edit("inbox.reader:Reader._send", "if self._clock() - taken > OURS_S:", "if False:"),
        stories.a_reader_that_was_held_up_sends_nothing_that_another_one_may_send,
    ),
    "name taken off what another one took": (
        Edit("inbox.table:RELEASE", "AND taken_at = %(taken_at)s", ""),
        stories.a_name_is_not_taken_off_a_batch_that_another_reader_has_taken,
    ),
    "age not looked at": (
        Edit("inbox.reader:Reader._resend_problem", "if sending.age_s > self._stale_s:", "if False:"),
        stories.a_batch_that_is_older_than_half_the_memory_of_the_queue_is_set_aside,
    ),
    "rows under a name not counted": (
        Edit("inbox.reader:Reader._pushed", "if len(reply.ids) != len(sending.rows):", "if False:"),
        stories.rows_that_claim_to_be_in_a_batch_are_set_aside,
    ),
    "refused rows deleted": (
        Edit("inbox.reader:Reader._pushed", "await table.settle(sending, refused)", "await table.settle(sending, {})"),
        stories.rows_with_nonsense_are_set_aside_by_name_and_the_others_go_on,
    ),
    "tenants not looked at": (
        Edit("inbox.checking:problem_of", "if tenants and row.tenant not in tenants:", "if False:"),
        stories.rows_with_nonsense_are_set_aside_by_name_and_the_others_go_on,
    ),
    "unsent rows keep their name": (
        Edit("inbox.reader:Reader._send_all", "for sending in left[1:]:", "for sending in ():"),
        stories.rows_wait_while_the_queue_takes_nothing,
    ),
    "floor above running transactions": (
        Edit("inbox.position:Position._is_settled", "look.oldest_running >= mark.horizon", "True"),
        stories.a_row_that_commits_late_is_found_although_later_ids_were_pushed,
    ),
    "floor above rows that were not claimed": (
        Edit(
            "inbox.position:Position.claimed",
            "self._settled if last_id is None else min(self._settled, last_id)",
            "self._settled",
        ),
        stories.a_backlog_is_read_to_its_end_without_waiting_for_a_full_look,
    ),
    "order turned round": (
        Edit("inbox.table:by_place", "key=lambda row: row.id", "key=lambda row: -row.id"),
        stories.rows_of_a_queue_come_in_the_order_of_their_insertion,
    ),
}


@contextmanager
def planted(edit: Edit) -> Iterator[None]:
    """In a function, or in a statement."""
    name = edit.where.removeprefix("inbox.table:")
    if not name.isupper():
        with planted_here([edit]):
            yield
        return
    statement = getattr(table, name)
    assert statement.count(edit.old) == 1, "the bug has no one place any more"
    setattr(table, name, statement.replace(edit.old, edit.new))
    try:
        yield
    finally:
        setattr(table, name, statement)


@pytest.mark.parametrize(("edit", "story"), BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_caught(world: InboxWorld, edit: Edit, story: Story):
    with planted(edit), pytest.raises(AssertionError):
        story(world)
