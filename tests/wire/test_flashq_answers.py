"""Errors that clients can tell apart, and ids in few words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model import errors
from stoker.wire.flashq import RequestContext, failure
from stoker.wire.flashq.answers import ids_of

RANGES = RequestContext(ranges=True)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (errors.NotFound("job 64 not found: it never was"), "job not found"),
        (errors.InvalidRequest("no ids: name at least one job"), "invalid"),
        (errors.Unauthenticated("who are you?"), "authentication"),
        (errors.Busy("come back later"), "too many requests"),
        (errors.LimitExceeded("that is too much"), "limit"),
    ],
)
def test_an_error_has_the_word_that_clients_look_for(error: errors.StokerError, word: str):
    answer = failure(error)
    assert word in answer["error"].lower()
    assert (answer["ok"], answer["success"], answer["code"]) == (False, False, error.code)


def test_what_may_be_tried_again_says_so():
    assert failure(errors.Busy("later"))["retryable"]
    assert "retryable" not in failure(errors.NotFound("never"))


def test_another_missing_thing_is_not_called_a_job():
    assert "job" not in failure(errors.NotFound("queue q not found: push to it"))["error"].lower()


@given(st.lists(st.integers(0, 40)))
def test_runs_of_ids_say_the_same_as_the_ids(ids: list[int]):
    runs: list[list[int]] = ids_of(ids, RANGES)  # type: ignore[assignment]
    assert [first + number * step for first, count, step in runs for number in range(count)] == ids


def test_a_range_of_ids_is_three_numbers():
    assert ids_of(range(64, 64 * 1_001, 64), RANGES) == [[64, 1_000, 64]]
    assert ids_of(range(0), RANGES) == []
    assert ids_of(range(64, 256, 64), RequestContext()) == [64, 128, 192]
