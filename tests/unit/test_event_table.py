"""The table of events is the one place that says what ends a delivery or a job; all else derives from it."""

import ast
from pathlib import Path

import pytest

from stoker.model.event_table import ENDS_DELIVERY, ENDS_JOB, FAILS_DELIVERY, HANDS_BACK, REMOVES_JOB, TABLE, in_order
from stoker.model.events import EventKind
from stoker.model.states import ENDED, State
from tests.unit.literal_sets import HOUSE, is_attribute_of, literal_sets, modules

ALLOWED = ("event_table.py", "record_table.py", "demo.py")
"""The tables, and a command that picks three numbers of a report."""
WORDS = frozenset(kind.value for kind in EventKind)
IS_KIND = is_attribute_of(("EventKind",), frozenset(kind.name for kind in EventKind))


def test_every_kind_has_a_row():
    assert set(TABLE) == set(EventKind)
    assert list(TABLE) == list(EventKind), "in the same order"


def test_an_event_that_ends_a_job_is_named_as_the_state():
    assert in_order(ENDS_JOB) == tuple(state.value for state in ENDED)
    assert all(TABLE[EventKind(state.value)].state is state for state in ENDED)


def test_what_ends_a_job_ends_its_delivery():
    assert ENDS_JOB < ENDS_DELIVERY
    assert FAILS_DELIVERY | HANDS_BACK < ENDS_DELIVERY
    assert in_order(ENDS_DELIVERY - ENDS_JOB) == ("retrying", "released", "snoozed")


def test_a_job_whose_delivery_ended_is_not_active():
    assert [kind for kind, row in TABLE.items() if row.state is State.ACTIVE] == [EventKind.STARTED]
    assert all(TABLE[kind].state is not None for kind in ENDS_DELIVERY)


def test_a_job_that_is_gone_has_no_state():
    assert all(TABLE[kind].state is None for kind in REMOVES_JOB)


@pytest.mark.parametrize("path", modules(*ALLOWED), ids=lambda path: str(path.relative_to(HOUSE)))
def test_no_module_keeps_a_set_of_events_of_its_own(path: Path):
    found = [f"{path.name}:{node.lineno}: {ast.unparse(node)[:100]}" for node in literal_sets(path, is_event)]
    assert not found, "derive these from stoker.model.event_table: " + "; ".join(found)


def is_event(node: ast.expr | None) -> bool:
    return IS_KIND(node) or (isinstance(node, ast.Constant) and node.value in WORDS)


def test_a_literal_set_would_be_noticed(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        "A = frozenset((EventKind.FAILED, EventKind.RETRYING))\nB = ('completed', 'failed')\n"
        "C = {EventKind.FAILED: State.FAILED, EventKind.LOG: 'x'}\nD = (EventKind.FAILED, 1)\n"
    )
    assert sorted(node.lineno for node in literal_sets(module, is_event)) == [1, 2]
