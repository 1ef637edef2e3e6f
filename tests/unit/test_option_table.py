"""An option is described once; what cannot be derived from that is held complete here."""

from typing import Any

import pytest

from stoker.app.options import DURATIONS, RENAMED, JobOptions
from stoker.engine.plain_options import is_plain, is_simple
from stoker.model.option_table import TABLE
from stoker.model.options import Backoff, Dependency, Options
from stoker.proto import stoker_pb2 as pb
from stoker.wire.flashq import requests as q

OF_THE_QUEUE = {name for name, row in TABLE.items() if not row.is_column}
"""Filled in by the queue, or following from the payload."""


def test_every_option_has_a_row() -> None:
    assert list(TABLE) == list(Options.__struct_fields__)


def test_every_option_is_in_the_proto() -> None:
    assert set(TABLE) - set(pb.Options.DESCRIPTOR.fields_by_name) == set()


def test_every_option_can_be_asked_for_in_flashqs_dialect() -> None:
    known = set(q.JobOptions.__struct_fields__)
    assert {row.flashq for row in TABLE.values() if row.flashq} - known == set()


def test_every_option_can_be_written_in_an_app() -> None:
    written = {DURATIONS.get(name, RENAMED.get(name, name)) for name in JobOptions.__annotations__}
    assert set(TABLE) - written - OF_THE_QUEUE == set()


@pytest.mark.parametrize("name", TABLE)
def test_options_that_need_something_of_their_own_are_no_part_of_a_batch(name: str) -> None:
    value = {"backoff": Backoff(base_ms=5), "depends_on": (Dependency(64),), "tags": ("t",), "codec": "json"}
    default = getattr(Options(), name)
    said: dict[str, Any] = {name: value.get(name, not default if isinstance(default, bool) else 5)}
    options = Options(**said)
    how = TABLE[name].batched
    assert (is_plain(options), is_simple(options)) == (how != "never", how != "general")
