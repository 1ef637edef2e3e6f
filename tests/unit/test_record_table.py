"""The table of records is the one place that says what a record means to readers; all else derives from it.

How a record changes a shard is code, and a test names a record that lacks it. What a record weighs in memory is code,
too: `test_memory_journal.py` names a record that is not weighed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.engine.shard import APPLY
from stoker.model.event_table import ENDS_DELIVERY
from stoker.model.events import EventKind
from stoker.records import records as rec
from stoker.records.record_table import MEANS, NOTED, SILENT, STEPS, TABLE, RecordType
from stoker.records.runs import EACH, MORE, SHAPES, WHICH, EventRun, runs_of
from tests.golden.examples import RECORDS
from tests.unit.literal_sets import HOUSE, is_attribute_of, literal_sets, modules

IS_RECORD = is_attribute_of(("rec", "records"), frozenset(kind.__name__ for kind in rec.ALL))
OWN_MODULE = "stoker.records.records"

by_row = pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)


def names(kinds: Any) -> set[str]:
    """As a set, so that a failure names what is missing."""
    return {kind.__name__ for kind in kinds}


def test_every_record_has_a_row():
    assert names(TABLE) == names(rec.ALL)


def test_every_record_can_be_applied():
    assert names(APPLY) == names(rec.ALL)


def test_every_event_is_meant_by_a_record():
    assert frozenset().union(*MEANS.values()) == frozenset(EventKind)


def test_a_story_tells_notes_or_leaves_out_every_record_once():
    assert names([*STEPS, *NOTED, *SILENT]) == names(rec.ALL)
    assert not names(STEPS & NOTED)
    assert all(TABLE[kind].events for kind in STEPS)


@by_row
def test_columns_are_filled_from_fields_of_the_record(kind: RecordType):
    row = TABLE[kind]
    assert set(row.columns) <= set(EventRun._fields)
    assert set(row.labels) <= set(rec.Labels.__struct_fields__)
    assert {*row.columns.values(), *row.labels.values()} <= set(kind.__struct_fields__)


@by_row
def test_a_record_that_means_events_has_what_all_events_have(kind: RecordType):
    row = TABLE[kind]
    assert not row.events or {"at", "tenant", "queue"} <= set(kind.__struct_fields__)
    assert row.events or not (row.jobs or row.columns or row.labels)


@by_row
def test_what_ends_a_delivery_says_when_and_nothing_else_does(kind: RecordType):
    row = TABLE[kind]
    assert ("finished_at" in row.columns) == bool(ENDS_DELIVERY.intersection(row.events))
    assert ENDS_DELIVERY.issuperset(row.events) or ENDS_DELIVERY.isdisjoint(row.events)


@by_row
def test_of_several_events_one_is_chosen(kind: RecordType):
    assert len(TABLE[kind].events) < 2 or kind in WHICH


def test_only_records_with_events_have_code_for_them():
    assert set(WHICH) | set(MORE) | set(EACH) <= set(MEANS)
    assert {row.jobs for row in TABLE.values()} == set(SHAPES)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_runs_say_nothing_that_the_table_does_not(record: rec.Record):
    assert {run.event for run in runs_of(record)} <= set(TABLE[type(record)].events)


@pytest.mark.parametrize("path", modules("records"), ids=lambda path: str(path.relative_to(HOUSE)))
def test_no_module_keeps_a_set_of_records_of_its_own(path: Path):
    found = [f"{path.name}:{node.lineno}: {ast.unparse(node)[:100]}" for node in sets_of_records(path)]
    assert not found, "derive these from stoker.records.record_table: " + "; ".join(found)


def sets_of_records(path: Path) -> Iterator[ast.expr]:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    bare = {alias.name for node in imports if node.module == OWN_MODULE for alias in node.names}
    return literal_sets(path, lambda node: IS_RECORD(node) or (isinstance(node, ast.Name) and node.id in bare))


def test_a_literal_set_would_be_noticed(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        "A = {rec.JobsPushed, rec.ScheduledPush}\nB = isinstance(x, rec.Retrying | rec.JobDied)\n"
        "C = {rec.JobsPushed: weigh, rec.JobDied: weigh}\nD: rec.JobsPushed | rec.JobDied\n"
        "from stoker.records.records import JobsPushed, PartStaged\n"
        "E = (JobsPushed, PartStaged)\nF = (JobsEnded, JobDied)\n"
    )
    assert sorted(node.lineno for node in sets_of_records(module)) == [1, 2, 6]
