"""Write the golden files anew: `python tests/golden/regenerate.py`.

Only for a change of format that is meant: a field added at the end of a record with a default, or a new record.
A changed default of an option needs a new `records.VERSION` besides, because old records leave it out.
`events.json` has what readers of events are told of each example.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from stoker.model.events import Event
from stoker.model.filters import JobFilter
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options
from stoker.model.schedules import Schedule
from stoker.records.codec import encode
from stoker.records.events import events_of
from stoker.records.records import VERSION, Message, Record

FILE = Path(__file__).with_name("records.json")
EVENTS = Path(__file__).with_name("events.json")

OMITTING: tuple[type[msgspec.Struct], ...] = (Options, Backoff, Dependency, DeadLetterPolicy, Schedule, JobFilter)
"""What is encoded without the fields that have their defaults: changing such a default changes old records."""


def tag_of(record: Record) -> int:
    tag = record.__struct_config__.tag
    assert type(tag) is int
    return tag


def spelled_out(value: Any) -> Any:
    """Every field, defaults included: what `omit_defaults` leaves out."""
    if isinstance(value, msgspec.Struct):
        return {name: spelled_out(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [spelled_out(item) for item in value]
    return value


def golden(records: tuple[Record, ...], options: dict[str, Options], messages: tuple[Message, ...]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "records": {type(record).__name__: {"tag": tag_of(record), "hex": encode(record).hex()} for record in records},
        "messages": {type(message).__name__: msgspec.msgpack.encode(message).hex() for message in messages},
        "options": {name: msgspec.msgpack.encode(value).hex() for name, value in options.items()},
        "defaults": {kind.__name__: spelled_out(kind()) for kind in OMITTING},
    }


def told(record: Record) -> list[dict[str, Any]]:
    """The events of a record, without the fields that have their defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Event)}
    return [
        {name: spelled_out(value) for name, value in msgspec.structs.asdict(event).items() if value != defaults[name]}
        for event in events_of(3, 17, record)
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    from tests.golden.examples import MESSAGES, OPTIONS, RECORDS

    FILE.write_text(json.dumps(golden(RECORDS, OPTIONS, MESSAGES), indent=1) + "\n")
    EVENTS.write_text(json.dumps({type(record).__name__: told(record) for record in RECORDS}, indent=1) + "\n")
