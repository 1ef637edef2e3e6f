"""What lies on disks stays readable: the bytes of every record, the defaults that they leave out, and their events.

When one of these tests fails, the format has changed. If that is meant, `tests/golden/regenerate.py` says what to do.
"""

import json
from typing import Any, get_args

import msgspec
import pytest

from stoker.engine.audit import audit
from stoker.engine.checkpoint_saving import load
from stoker.engine.shard import Shard
from stoker.engine.state_dump import dump
from stoker.model.commands import GetStats
from stoker.model.histograms import no_durations
from stoker.model.options import Options
from stoker.records import records as rec
from stoker.records.codec import decode, encode
from tests.golden.examples import EVERYTHING_SET, HISTORY, MESSAGES, OPTIONS, RECORDS
from tests.golden.regenerate import EVENTS, FILE, OMITTING, spelled_out, tag_of, told

GOLDEN: dict[str, Any] = json.loads(FILE.read_text())
GOLDEN_EVENTS: dict[str, list[dict[str, Any]]] = json.loads(EVENTS.read_text())
OLDER: dict[str, dict[str, Any]] = {
    name: json.loads(FILE.with_name(f"{name}.json").read_text())["records"] for name in ("records-1", "records-2")
}
"""Rows of version 1, and those of version 2 before fields were added to its records."""
LATEST = (
    *("codec", "name", "workflow", "blocked", "schedule", "slot", "pushed_at", "size", "labels"),
    *("note", "log_lines_max", "stack_lines_max", "skip_if_no_worker", "ready_at", "removed"),
)
LATER = {"records-1": ("sizes", "durability", *LATEST), "records-2": LATEST}
"""Fields that did not exist then."""

by_name = pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)


def test_every_record_has_an_example_and_golden_bytes():
    names = sorted(kind.__name__ for kind in rec.ALL)
    assert sorted(type(record).__name__ for record in RECORDS) == names
    assert sorted(GOLDEN["records"]) == names


@by_name
def test_encoding_gives_the_golden_bytes(record: rec.Record):
    assert encode(record).hex() == GOLDEN["records"][type(record).__name__]["hex"]


@by_name
def test_decoding_the_golden_bytes_gives_the_example(record: rec.Record):
    found = decode(bytes.fromhex(GOLDEN["records"][type(record).__name__]["hex"]))
    assert type(found) is type(record)
    assert found == record


@by_name
def test_a_record_means_the_golden_events(record: rec.Record):
    assert told(record) == GOLDEN_EVENTS[type(record).__name__]
    assert told(decode(encode(record))) == told(record)


@by_name
def test_a_tag_is_never_given_to_another_record(record: rec.Record):
    assert tag_of(record) == GOLDEN["records"][type(record).__name__]["tag"]


def test_the_version_is_the_one_of_the_golden_bytes():
    assert GOLDEN["version"] == rec.VERSION
    assert {hexes["hex"][:2] for hexes in GOLDEN["records"].values()} == {f"{rec.VERSION:02x}"}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, rows in OLDER.items() for name in rows])
def test_older_records_are_still_read(file: str, name: str):
    """In version 1 payloads stand inside and nothing is checksummed; later fields have their defaults."""
    found = decode(bytes.fromhex(OLDER[file][name]["hex"]))
    now = next(record for record in RECORDS if type(record).__name__ == name)
    assert type(found) is type(now)
    if file == "records-1" and type(found) is rec.JobsPushed:
        found = msgspec.structs.replace(found, sizes=None)
    assert found == without_later(now, LATER[file])


def without_later(value: Any, later: tuple[str, ...]) -> Any:
    """The value as it could be said before these fields came."""
    if isinstance(value, (list, tuple)):
        return type(value)(without_later(one, later) for one in value)
    if not isinstance(value, msgspec.Struct):
        return value
    kept = {}
    for field in msgspec.structs.fields(value):
        new = field.name in later and not field.required and type(value) is not rec.JobRun
        kept[field.name] = field.default if new else without_later(getattr(value, field.name), later)
    return type(value)(**kept)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_encodes_to_the_golden_bytes_and_back(message: rec.Message):
    golden = bytes.fromhex(GOLDEN["messages"][type(message).__name__])
    assert msgspec.msgpack.encode(message) == golden
    assert msgspec.msgpack.decode(golden, type=rec.Message) == message


def test_every_message_has_golden_bytes():
    assert [type(message) for message in MESSAGES] == list(get_args(rec.Message))


@pytest.mark.parametrize("name", OPTIONS)
def test_options_encode_to_the_golden_bytes_and_back(name: str):
    assert msgspec.msgpack.encode(OPTIONS[name]).hex() == GOLDEN["options"][name]
    assert msgspec.msgpack.decode(bytes.fromhex(GOLDEN["options"][name]), type=Options) == OPTIONS[name]


@pytest.mark.parametrize("kind", OMITTING, ids=lambda kind: kind.__name__)
def test_a_default_that_records_leave_out_never_changes(kind: type[msgspec.Struct]):
    """An old record without the field would come to mean something else."""
    nothing = msgspec.msgpack.encode(kind())
    assert msgspec.msgpack.decode(nothing) == {}, "defaults are left out"
    assert spelled_out(msgspec.msgpack.decode(nothing, type=kind)) == GOLDEN["defaults"][kind.__name__]


def test_the_full_example_sets_every_option_to_something_else_than_its_default():
    unset = [name for name in Options.__struct_fields__ if getattr(EVERYTHING_SET, name) == getattr(Options(), name)]
    assert not unset


def test_a_checkpoint_of_the_first_format_is_still_read():
    """What it could not say is as if it had never been said, or is counted."""
    saved = json.loads(FILE.with_name("checkpoint-1.json").read_text())
    assert saved["format"] == 1
    loaded, position = load(bytes.fromhex(chunk) for chunk in saved["chunks"])
    live = Shard()
    for now, command in HISTORY:
        live.execute("acme", command, now)
    for queue in live.tenants["acme"].queues.values():
        queue.wait, queue.run = no_durations(), no_durations()
    audit(loaded)
    assert position == 4711
    assert dump(loaded) == dump(live)
    assert loaded.execute("acme", GetStats(), 1_010).payload_bytes > 0
