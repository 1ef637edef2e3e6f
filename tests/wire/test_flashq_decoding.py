"""Whatever bytes come, a request or a coded refusal comes out; and every spelling of a field means the same."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LimitExceeded
from stoker.model.limits import Limits
from stoker.wire.flashq import BY_NAME, ROWS, RequestContext, decode, failure
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.decoding import COUNTED_BYTES, Codec
from stoker.wire.flashq.mapping import Field, Fixed, Said, fields_of
from tests.soaking import drawing

MODULES: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}
CODECS: tuple[Codec, ...] = ("json", "msgpack")
COMMANDS = sorted(BY_NAME)

numbers = st.integers(-(2**63), 2**64 - 1)
scalars = st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=8) | st.binary(max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def field_names() -> list[str]:
    names = {field for row in ROWS.values() for field in row.request.__struct_fields__}
    return sorted(names | {camel(name) for name in names} | set(q.ALSO) | {"unheard_of"})


fields = st.dictionaries(st.sampled_from(field_names()), values, max_size=6)
frames = st.fixed_dictionaries({"queue": values, "id": values, "data": values, "jobs": values}) | fields


def outcome(frame: bytes, codec: Codec, cmd: str) -> object:
    """The request, or None if it was refused; anything else fails the test."""
    try:
        return decode(frame, codec, cmd)
    except (InvalidRequest, LimitExceeded) as refusal:
        msgspec.json.encode(failure(refusal))
        return None


@pytest.mark.parametrize("codec", CODECS)
@drawing(100)
@given(cmd=st.sampled_from(COMMANDS), frame=st.binary(max_size=60))
def test_any_bytes_are_a_request_or_refused(codec: Codec, cmd: str, frame: bytes):
    outcome(frame, codec, cmd)


@drawing(100)
@given(cmd=st.sampled_from(COMMANDS), text=st.text(alphabet='{}[]":,\\u0019aeidqx \n\ud800\x00é', max_size=60))
def test_any_text_is_a_request_or_refused(cmd: str, text: str):
    outcome(text.encode("utf-8", "surrogatepass"), "json", cmd)


@pytest.mark.parametrize("codec", CODECS)
@drawing(50)
@given(cmd=st.sampled_from(COMMANDS), sent=frames)
def test_any_map_is_a_request_or_refused(codec: Codec, cmd: str, sent: dict[str, Any]):
    request = outcome(MODULES[codec].encode({"cmd": cmd, **sent}), codec, cmd)
    assert request is None or isinstance(request, q.FlashqRequest | q.JobRequest)


@pytest.mark.parametrize("codec", CODECS)
@drawing(30)
@given(cmd=st.sampled_from(["PUSH", "PUSHB", "ACK", "PULL"]), sent=frames, cut=st.integers(0, 200), flip=st.integers())
def test_a_damaged_frame_is_a_request_or_refused(codec: Codec, cmd: str, sent: dict[str, Any], cut: int, flip: int):
    frame = bytearray(MODULES[codec].encode({"cmd": cmd, **sent}))
    frame[flip % len(frame)] ^= 1 << flip % 8
    outcome(bytes(frame[: max(1, len(frame) - cut)]), codec, cmd)


GIVEN: dict[str, Any] = {
    "size_limit": 1_000,
    "jobs": [{"data": 1}],
    "children": [{"queue": "q", "data": 1}],
    "entries": [{"key": "k", "value": 1}],
    "steps": [{"queue": "q", "jobs": [{"data": 1}], "after": [0, "key", {"step": 0}]}],
    "results": [1],
    "rate_limit": {"count": 5},
    "dead_letters": {"entries_max": 5},
}


def example(field: Any) -> Any:
    """A value that the field takes."""
    if field.name in GIVEN:
        return GIVEN[field.name]
    words = ("commit", "keep", "hold", "json", "allow", "once", "running", "retry")
    candidates: list[Any] = [7, "text", True, ["text"], [7], *words, {}]
    for value in candidates:
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            continue
        return value
    return {"any": "value"}


def full_example(kind: type) -> dict[str, Any]:
    return {field.name: example(field) for field in msgspec.structs.fields(kind) if field.name != "reqId"}


def plain(value: Any) -> Any:
    """Requests compare by value, but what passes through does not."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def meaning(request: q.AnyRequest, cmd: str, codec: Codec) -> Any:
    """Pushes come in several types; what counts of them is what the queue is asked."""
    return next(ROWS[cmd].plan(request, RequestContext(codec))) if cmd in ("PUSH", "PUSHB") else plain(request)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cmd", sorted(ROWS))
def test_both_spellings_of_each_field_give_the_same_request(cmd: str, codec: Codec):
    sent = full_example(ROWS[cmd].request)
    module = MODULES[codec]
    snake = decode(module.encode(sent), codec, cmd)
    other = decode(module.encode({camel(name): value for name, value in sent.items()}), codec, cmd)
    assert meaning(snake, cmd, codec) == meaning(other, cmd, codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cmd", sorted(ROWS))
def test_a_null_stands_for_a_field_that_was_left_out(cmd: str, codec: Codec):
    kind = ROWS[cmd].request
    required = {field.name: example(field) for field in msgspec.structs.fields(kind) if field.required}
    nulls = {name: None for name in kind.__struct_fields__ if name not in required}
    nulls = {name: None for name in nulls if name not in ("data", "result")}  # where null is a value
    module = MODULES[codec]
    short, long = (decode(module.encode(sent), codec, cmd) for sent in (required, {**nulls, **required}))
    assert meaning(short, cmd, codec) == meaning(long, cmd, codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("cmd", "sent", "field", "value"),
    [
        ("HEARTBEAT", {"job_id": 64}, "id", 64),
        ("LOG", {"jobId": 64, "message": "m"}, "id", 64),
        ("GETLOGS", {"job_id": 64}, "id", 64),
        ("GETJOBBYCUSTOMID", {"customId": "mine"}, "job_id", "mine"),
        ("GETJOBBYCUSTOMID", {"jobId": "mine"}, "job_id", "mine"),
        ("PUSH", {"queue": "q", "data": 1, "customId": "mine"}, "job_id", "mine"),
        ("PUSH", {"queue": "q", "data": 1, "jobId": "mine"}, "job_id", "mine"),
        ("PUSH", {"queue": "q", "data": 1, "leaseMs": 5}, "stall_timeout", 5),
        ("PUSH", {"queue": "q", "data": 1, "idempotencyKey": "k"}, "request_key", "k"),
        ("GETJOBS", {"queue": None, "state": None, "limit": 5}, "limit", 5),
        ("FAIL", {"id": 64, "error": None}, "error", ""),
    ],
)
def test_second_names_that_published_clients_send(cmd: str, sent: Any, field: str, value: Any, codec: Codec):
    assert getattr(decode(MODULES[codec].encode(sent), codec, cmd), field) == value


def test_a_number_and_a_text_are_request_ids():
    for sent in ("r1", 7):
        assert decode(msgspec.json.encode({"cmd": "PING", "reqId": sent}), "json", "PING").reqId == sent


def test_cron_takes_its_options_flat_or_as_an_object():
    flat = decode(b'{"name":"n","queue":"q","schedule":"* * * * *","priority":3,"repeatEvery":5}', "json", "CRON")
    inside = decode(b'{"name":"n","queue":"q","schedule":"* * * * *","options":{"maxAttempts":9}}', "json", "CRON")
    assert isinstance(flat, q.Cron)
    assert isinstance(inside, q.Cron)
    assert (flat.priority, flat.repeat_every) == (3, 5)
    assert inside.options is not None
    assert inside.options.max_attempts == 9


@pytest.mark.parametrize(
    ("cmd", "frame", "says"),
    [
        ("PUSH", b'{"queue":"q"}', "data"),
        ("PUSH", b'{"data":1}', "queue"),
        ("PUSH", b'{"queue":5,"data":1}', "queue"),
        ("PUSH", b'{"queue":"q","data":1,"priority":"x"}', "priority"),
        ("PUSH", b'{"queue":"q","data":1,"tags":[1]}', "tags"),
        ("PUSH", b'{"queue":"q","data":1,"onConflict":"explode"}', "on_conflict"),
        ("ACK", b'{"id":"x"}', "id"),
        ("PULLB", b'{"queue":"q","count":1.5}', "count"),
        ("PUSH", b'{"queue":"q","data":"\xff"}', "UTF-8"),
        ("PUSH", b"[" * 100_000 + b"]" * 100_000, "object"),
        ("PUSH", b'{"queue":"q","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        ("PUSH", b'{"queue":"q","data":"\\ud800"}', "invalid"),
        ("PUSH", b'{"queue":"q","data":1,"priority":' + b"9" * 100_000 + b"}", "invalid"),
        ("PUSH", b"", "invalid"),
        ("KVMSET", b'{"entries":[{"key":"a"}]}', "value"),
    ],
)
def test_a_refusal_names_what_was_wrong(cmd: str, frame: bytes, says: str):
    with pytest.raises(InvalidRequest, match=says):
        decode(frame, "json", cmd)


def test_deep_msgpack_is_refused():
    frame = b"\x82\xa5queue\xa1q\xa4data" + b"\x91" * 100_000 + b"\x01"
    with pytest.raises(InvalidRequest, match="nested"):
        decode(frame, "msgpack", "PUSH")


def test_an_unknown_command_is_refused():
    with pytest.raises(InvalidRequest, match="NOSUCH"):
        decode(b"{}", "json", "NOSUCH")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("item", [{"data": 1}, {"data": 1, "priority": 3}, {"data": 1, "jobId": "x"}, {"x": 1}])
def test_an_oversize_batch_is_refused_with_the_limit_in_the_text(codec: Codec, item: Any):
    """F2: such a batch used to be dropped with an ok. A large frame is refused before it has become objects."""
    limits = Limits(batch_jobs_max=10)
    size = COUNTED_BYTES // 6
    with pytest.raises(LimitExceeded, match="limit of 10"):
        decode(MODULES[codec].encode({"queue": "q", "jobs": [item] * size}), codec, "PUSHB", limits)


def test_a_frame_of_many_lines_is_stored_as_one():
    request = decode(b'{\n "queue": "q",\n "data": {"a": [1,\n 2]}\n}', "json", "PUSH")
    assert isinstance(request, q.PlainPush)
    assert bytes(request.data) == b'{"a":[1,2]}'


@pytest.mark.parametrize("codec", CODECS)
@drawing(40)
@given(value=values)
def test_data_passes_through_untouched(codec: Codec, value: Any):
    module = MODULES[codec]
    request = decode(module.encode({"cmd": "PUSH", "queue": "q", "data": value}), codec, "PUSH")
    assert bytes(request.data) == module.encode(value)  # type: ignore[union-attr]


def test_every_command_of_the_protocol_is_there():
    words = """
        PUSH PUSHB PULL PULLB ACK ACKB FAIL GETRESULT GETJOB GETSTATE GETJOBBYCUSTOMID GETJOBSBATCH GETJOBS GETJOBCOUNTS
        COUNT ISPAUSED WAITJOB CANCEL HEARTBEAT PROMOTE DISCARD PROGRESS GETPROGRESS UPDATEJOB UPDATE CHANGEPRIORITY
        MOVETODELAYED LOG GETLOGS PARTIAL FLOW GETCHILDREN DLQ RETRYDLQ PURGEDLQ CRON CRONDELETE CRONLIST RATELIMIT
        RATELIMITCLEAR SETCONCURRENCY CLEARCONCURRENCY PAUSE RESUME DRAIN OBLITERATE CLEAN LISTQUEUES SUBSCRIBE
        UNSUBSCRIBE STATS METRICS KVSET KVGET KVDEL KVMGET KVMSET KVEXISTS KVEXPIRE KVTTL KVKEYS KVINCR AUTH HELLO
        RELEASE WHY STORY QUEUE SETPOLICY PING
        """
    assert set(words.split()) <= set(BY_NAME)


def test_every_request_says_what_it_is_for():
    for row in ROWS.values():
        assert row.summary.endswith("."), row.name
        assert row.name.isupper()
        assert len({row.name, *row.aliases}) == 1 + len(row.aliases)


def test_permissions_come_from_the_commands():
    """GETCHILDREN reads with a command that only workers may send; the others have no command."""
    assert {row.name for row in ROWS.values() if row.own_permission} == {"GETCHILDREN", "SUBSCRIBE", "UNSUBSCRIBE"}
    assert {row.name for row in ROWS.values() if row.permission is None} == {"PING", "AUTH", "HELLO"}


def test_a_derived_request_has_the_types_and_defaults_of_its_command():
    for row in ROWS.values():
        own = {field.name: field for field in msgspec.structs.fields(row.command)} if row.command else {}
        for field in msgspec.structs.fields(row.request):
            if field.name in own and field.name in row.fields and field.type == own[field.name].type:
                assert field.default == own[field.name].default or row.name in ("CRONLIST", "OBLITERATE", "CLEAN")
    assert ROWS["MOVETODELAYED"].request.__struct_fields__ == ("cmd", "reqId", "tenant", "id", "delay", "token")


@pytest.mark.parametrize("said", [{"delay": "delay_m"}, {"delay": Field("delay_m")}, {"tokn": Fixed(None)}])
def test_a_misspelt_name_in_a_row_is_noticed(said: Said):
    with pytest.raises(TypeError, match="has no field"):
        fields_of(c.MoveToDelayed, said)


def test_fields_that_a_command_does_not_have_are_read_by_a_function_of_the_row():
    for row in ROWS.values():
        if any(not field.to for field in row.fields.values()):
            assert row.steps is not None or (row.build is not None and row.build.__name__ != "build"), row.name
