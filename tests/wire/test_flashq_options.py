"""Every option of a job can be asked for in this dialect, one job at a time and in a batch, in both spellings."""

import re
from typing import Any

import msgspec
import pytest

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.options import DEFAULT_OPTIONS, Backoff, Dependency, Options
from stoker.wire.flashq import RequestContext, UnknownField, decode, row_of
from stoker.wire.flashq.decoding import Codec
from stoker.wire.flashq.option_mapping import REFUSED
from stoker.wire.flashq.requests import MixedPushBatch
from stoker.wire.flashq.spelling import WARNINGS_MAX

MODULES: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}
CODECS: tuple[Codec, ...] = ("json", "msgpack")

ASKED: dict[str, tuple[dict[str, Any], Any]] = {
    "priority": ({"priority": -5}, -5),
    "delay_ms": ({"delay": 7}, 7),
    "run_at": ({"run_at": 7}, 7),
    "ttl_ms": ({"ttl": 7}, 7),
    "timeout_ms": ({"timeout": 7}, 7),
    "lease_ms": ({"stall_timeout": 7}, 7),
    "max_attempts": ({"max_attempts": 0}, 0),
    "max_crashes": ({"max_crashes": 9}, 9),
    "backoff": ({"backoff": 0}, Backoff(base_ms=0)),
    "unique_key": ({"unique_key": "k"}, "k"),
    "unique_ttl_ms": ({"unique_ttl_ms": 7}, 7),
    "on_conflict": ({"on_conflict": "replace"}, "replace"),
    "custom_id": ({"job_id": "mine"}, "mine"),
    "custom_id_ttl_ms": ({"custom_id_ttl_ms": 0}, 0),
    "debounce_id": ({"debounce_id": "d"}, "d"),
    "debounce_ms": ({"debounce_ttl": 7}, 7),
    "depends_on": ({"depends_on": [64, {"id": 128, "on_failure": "continue"}]}, None),
    "group_id": ({"group_id": "g"}, "g"),
    "lifo": ({"lifo": True}, True),
    "tags": ({"tags": ["a", "b"]}, ("a", "b")),
    "remove_on_complete": ({"remove_on_complete": True}, True),
    "remove_on_fail": ({"remove_on_fail": True}, True),
    "keep_completed_age_ms": ({"keep_completed_age": 7}, 7),
    "keep_completed_count": ({"keep_completed_count": 7}, 7),
    "trace": ({"trace": "t"}, "t"),
    "parent_id": ({"parent_id": 64}, 64),
    "codec": ({"codec": "bytes", "data": {"$bytes": "aGk="}}, "bytes"),
    "name": ({"name": "welcome"}, "welcome"),
    "workflow": ({"workflow": 64}, 64),
    "log_lines_max": ({"keep_logs": 0}, 0),
    "stack_lines_max": ({"stack_trace_limit": 7}, 7),
}
"""By option: how it is asked for, and what the queue is told."""

ASKED["depends_on"] = (ASKED["depends_on"][0], (Dependency(64), Dependency(128, "continue")))


def camel(sent: dict[str, Any]) -> dict[str, Any]:
    return {re.sub(r"_([a-z])", lambda found: found[1].upper(), name): value for name, value in sent.items()}


def command_of(cmd: str, codec: Codec, sent: dict[str, Any]) -> Any:
    request = decode(MODULES[codec].encode({"cmd": cmd, "queue": "q", **sent}), codec, cmd)
    return next(row_of(cmd).plan(request, RequestContext(codec)))


def test_no_option_is_forgotten_here():
    assert set(ASKED) == set(Options.__struct_fields__) - {"schedule", "slot"}, "those are filled in, not asked for"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("option", sorted(ASKED))
@pytest.mark.parametrize("spelt", ["snake", "camel"])
def test_push_takes_it(option: str, codec: Codec, spelt: str):
    sent, expected = ASKED[option]
    command = command_of("PUSH", codec, {"data": 1, **(sent if spelt == "snake" else camel(sent))})
    assert isinstance(command, c.Push)
    wanted = msgspec.structs.replace(DEFAULT_OPTIONS, **{"codec": codec, option: expected})
    assert command.options == wanted


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("option", sorted(ASKED))
@pytest.mark.parametrize("spelt", ["snake", "camel"])
def test_an_item_of_a_batch_takes_it(option: str, codec: Codec, spelt: str):
    sent, expected = ASKED[option]
    item = {"data": 1, **(sent if spelt == "snake" else camel(sent))}
    command = command_of("PUSHB", codec, {"jobs": [{"data": 0}, item]})
    assert isinstance(command, c.PushBatch)
    assert command.each is not None
    wanted = msgspec.structs.replace(DEFAULT_OPTIONS, **{"codec": codec, option: expected})
    assert list(command.each) == [msgspec.structs.replace(DEFAULT_OPTIONS, codec=codec), wanted]


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_asked_for_is_the_default(codec: Codec):
    wanted = msgspec.structs.replace(DEFAULT_OPTIONS, codec=codec)
    assert command_of("PUSH", codec, {"data": 1}).options == wanted
    assert command_of("PUSH", codec, {"data": 1, "priority": 0, "max_attempts": 3, "backoff": 1000}).options == wanted


@pytest.mark.parametrize("name", ["stall_timeout", "keep_completed_age", "keep_completed_count"])
def test_zero_is_how_flashq_says_the_default(name: str):
    assert command_of("PUSH", "json", {"data": 1, name: 0}).options == msgspec.structs.replace(
        DEFAULT_OPTIONS, codec="json"
    )


def test_ended_jobs_can_be_forgotten_at_once():
    options = command_of("PUSH", "json", {"data": 1, "keepCompletedAgeMs": 0}).options
    assert options.keep_completed_age_ms == 0


def test_a_whole_backoff_can_be_asked_for():
    sent = {"kind": "linear", "baseMs": 5, "cap_ms": 50, "jitter": "none"}
    assert command_of("PUSH", "json", {"data": 1, "backoff": sent}).options.backoff == Backoff("linear", 5, 50, "none")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sent", [{}, {"priority": 3}, {"maxAttempts": 7, "tags": ["a"]}])
def test_a_uniform_batch_is_one_set_of_options(sent: dict[str, Any], codec: Codec):
    command = command_of("PUSHB", codec, {"jobs": [{"data": number, **sent} for number in range(5)]})
    assert command.each is None
    assert len(command.payloads) == 5
    assert command.options.codec == codec


@pytest.mark.parametrize("codec", CODECS)
def test_payloads_are_stored_as_they_came(codec: Codec):
    value = {"a": [1, 2.5, None, "é"]}
    module = MODULES[codec]
    assert command_of("PUSH", codec, {"data": value}).payload == module.encode(value)
    assert command_of("PUSHB", codec, {"jobs": [{"data": value}] * 2}).payloads == [module.encode(value)] * 2


def test_a_payload_can_be_stored_in_another_codec():
    assert command_of("PUSH", "json", {"data": [1], "codec": "msgpack"}).payload == b"\x91\x01"
    assert command_of("PUSH", "msgpack", {"data": b"hi", "codec": "bytes"}).payload == b"hi"
    assert command_of("PUSH", "json", {"data": {"$bytes": "aGk="}, "codec": "bytes"}).payload == b"hi"


def test_a_request_key_makes_a_push_a_batch_of_one():
    command = command_of("PUSH", "json", {"data": 1, "idempotency_key": "k", "durability": "fsync"})
    assert command == c.PushBatch(
        "q",
        [b"1"],
        msgspec.structs.replace(DEFAULT_OPTIONS, codec="json"),
        atomic=True,
        request_key="k",
        durability="fsync",
    )


def test_a_pull_takes_everything_that_the_contract_has():
    sent = {"queue": ["q", "p"], "count": 7, "timeout": 5, "worker": "w", "leaseMs": 9, "claim": "c"}
    assert command_of("PULLB", "json", sent) == c.Pull(["q", "p"], 7, 5, "w", 9, "c")
    assert command_of("PULL", "json", {}) == c.Pull(["q"], 1, 60_000)


@pytest.mark.parametrize("codec", CODECS)
def test_a_backoff_in_bullmqs_words_keeps_its_numbers(codec: Codec):
    sent = {"type": "fixed", "delay": 5, "maxDelay": 50}
    assert command_of("PUSH", codec, {"data": 1, "backoff": sent}).options.backoff == Backoff("fixed", 5, 50)


@pytest.mark.parametrize("cmd", ["PUSH", "PUSHB", "FLOW"])
def test_a_durable_push_is_flushed_before_its_answer(cmd: str):
    sent = {"jobs": [{"data": 1, "priority": 2}]} if cmd == "PUSHB" else {"data": 1}
    assert command_of(cmd, "json", {**sent, "durable": True}).durability == "fsync"
    assert command_of(cmd, "json", {**sent, "durable": False}).durability is None
    assert command_of(cmd, "json", {**sent, "durable": True, "durability": "memory"}).durability == "memory"


def test_a_payload_over_the_jobs_own_limit_is_refused():
    with pytest.raises(InvalidRequest, match="12 bytes are over this job's size_limit of 11"):
        command_of("PUSH", "json", {"data": "0123456789", "sizeLimit": 11})
    command_of("PUSH", "json", {"data": "0123456789", "sizeLimit": 12})
    command = command_of("PUSHB", "json", {"jobs": [{"data": 1}, {"data": "0123456789", "sizeLimit": 11}]})
    assert command.each[1] == REFUSED, "an item over its limit is refused alone"


def test_unknown_fields_are_told_with_the_name_that_was_meant():
    unknown = UnknownField()
    frame = b'{"queue":"q","data":1,"prioriti":5,"maxAttempt":1,"zzz":1,"backoff":{"kindd":"fixed"}}'
    decode(frame, "json", "PUSH", unknown=unknown)
    assert unknown.warnings == [
        "ignored unknown field 'prioriti'; did you mean 'priority'?",
        "ignored unknown field 'maxAttempt'; did you mean 'max_attempts'?",
        "ignored unknown field 'zzz'",
        "ignored unknown field 'kindd' in backoff; did you mean 'kind'?",
    ]
    with pytest.raises(InvalidRequest, match="unknown field 'prioriti'; did you mean 'priority'"):
        decode(frame, "json", "PUSH", unknown=UnknownField(refuse=True))


def test_an_item_with_an_unknown_field_is_refused_alone():
    frame = b'{"queue":"q","jobs":[{"data":1},{"data":2,"prioriti":5}]}'
    request = decode(frame, "json", "PUSHB", unknown=UnknownField(refuse=True))
    assert isinstance(request, MixedPushBatch)
    assert request.wrong == {1: "unknown field 'prioriti' in jobs[1]; did you mean 'priority'?"}


def test_many_unknown_fields_are_told_in_part():
    unknown = UnknownField()
    decode(
        msgspec.json.encode({"queue": "q", "data": 1, **{f"x{n}": 1 for n in range(50)}}),
        "json",
        "PUSH",
        unknown=unknown,
    )
    assert len(unknown.warnings) == WARNINGS_MAX
