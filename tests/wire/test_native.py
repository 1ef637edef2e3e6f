"""Stoker's own dialect: what goes in comes out, and whatever else is sent is refused with a code."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import PERMISSIONS, TABLE
from stoker.model.errors import BY_CODE, InvalidRequest, NotFound, StokerError
from stoker.model.options import Options
from stoker.wire import native
from stoker.wire.frames import Codec
from stoker.wire.native_commands import ROWS
from tests.soaking import drawing

CODECS: tuple[Codec, ...] = ("json", "msgpack")


def test_every_command_of_the_contract_has_a_row():
    assert set(TABLE) == set(c.ALL)
    assert {row.command for row in ROWS.values()} == set(c.ALL)
    assert {row.permission for row in ROWS.values()} == set(PERMISSIONS)


@pytest.mark.parametrize("codec", CODECS)
def test_a_command_goes_there_and_back(codec: Codec):
    sent = c.PushBatch("q", [b"a", b"\xff"], Options(priority=3, tags=("t",)), request_key="k")
    envelope = native.open_envelope(native.request(sent, 7, "acme", codec), codec)
    assert (envelope.cmd, envelope.reqId, envelope.tenant) == ("push_batch", 7, "acme")
    assert native.command_of(envelope, codec) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_ids_that_are_a_range_stay_one(codec: Codec):
    sent = c.Ack(range(64, 640_064, 64), 5)
    frame = native.request(sent, 1, None, codec)
    assert len(frame) < 120
    assert native.command_of(native.open_envelope(frame, codec), codec) == sent
    reply = native.answered(r.PushedBatch(range(64, 128, 64)), 1, codec)
    assert native.reply(native.open_head(reply, codec), c.PushBatch, codec).ids == range(64, 128, 64)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ids", [[-1], [-1, 0], [-1, 0, 64, 0], [-1, 1, 2, 3, 4]])
def test_a_range_that_is_none_is_refused(codec: Codec, ids: list[int]):
    body = native.FORMATS[codec].encode({"cmd": "ack", "body": {"ids": ids}})
    with pytest.raises(InvalidRequest):
        native.command_of(native.open_envelope(body, codec), codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("error", list(BY_CODE.values()))
def test_an_error_is_the_same_on_both_ends(codec: Codec, error: type[StokerError]):
    frame = native.refused(error("why"), "x", codec)
    with pytest.raises(error, match="why"):
        native.reply(native.open_head(frame, codec), c.Push, codec)


def test_a_code_that_is_not_known_yet_is_still_an_error_of_ours():
    head = native.ReplyHead(False, code="from_the_future", error="text")
    with pytest.raises(StokerError, match="text"):
        native.reply(head, c.Push, "json")
    assert type(native.error_of(head)) is StokerError
    assert type(native.error_of(native.ReplyHead(False, code="not_found"))) is NotFound


@pytest.mark.parametrize("codec", CODECS)
@given(noise=st.binary(max_size=300))
def test_any_bytes_are_an_envelope_or_refused(codec: Codec, noise: bytes):
    check_frame(noise, codec)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("codec", CODECS)
@drawing(40)
@given(name=st.sampled_from(sorted(ROWS)), data=st.data())
def test_any_body_is_a_command_or_refused(codec: Codec, name: str, data: st.DataObject):
    fields = st.sampled_from(ROWS[name].command.__struct_fields__ or ("none",))
    body = data.draw(st.dictionaries(fields, VALUES, max_size=6) | VALUES)
    check_frame(native.FORMATS[codec].encode({"cmd": name, "body": body}), codec)


def check_frame(frame: bytes, codec: Codec) -> None:
    try:
        envelope = native.open_envelope(frame, codec)
        command = native.command_of(envelope, codec)
    except InvalidRequest:
        return
    assert type(command) in TABLE


@pytest.mark.parametrize("codec", CODECS)
def test_deep_nesting_is_refused_and_not_an_overflow(codec: Codec):
    deep = b"[" * 100_000 if codec == "json" else b"\x91" * 100_000
    with pytest.raises(InvalidRequest):
        native.open_envelope(deep, codec)
    start = b'{"cmd":"push","body":' if codec == "json" else b"\x82\xa3cmd\xa4push\xa4body"
    with pytest.raises(InvalidRequest):
        native.open_envelope(start + deep, codec)


def test_an_amplifying_body_is_refused_by_its_type_before_it_is_built():
    """A megabyte of empty lists would be 64 MB of objects."""
    body = msgspec.msgpack.encode({"cmd": "push", "body": {"queue": "q", "payload": [[]] * 1_000_000}})
    with pytest.raises(InvalidRequest, match="payload"):
        native.command_of(native.open_envelope(body, "msgpack"), "msgpack")


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("cmd", "body", "told"),
    [
        ("push", {"queue": "q", "payload": b"", "options": {"prioriti": 5}}, "in options; did you mean 'priority'?"),
        ("push", {"queue": "q", "payload": b"", "optoins": {}}, "did you mean 'options'?"),
        ("push_batch", {"queue": "q", "payloads": [b""], "each": [{"backoff": {"bas_ms": 1}}]}, "in each[0].backoff"),
        ("push_workflow", {"steps": [{"queue": "q", "payload": b""}]}, "in steps[0]; did you mean 'payloads'?"),
        ("kv_set_many", {"entries": [{"key": "k", "value": b"", "ttl": 1}]}, "did you mean 'ttl_ms'?"),
        ("pull", {"queue": ["q"]}, "did you mean 'queues'?"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_name_that_was_meant(codec: Codec, cmd: str, body: Any, told: str):
    sent = native.Envelope(cmd, body=msgspec.Raw(native.FORMATS[codec].encode(body)))
    with pytest.raises(InvalidRequest) as refused:
        native.command_of(sent, codec)
    assert str(refused.value).startswith(f"invalid {cmd}: unknown field ")
    assert told in str(refused.value)
