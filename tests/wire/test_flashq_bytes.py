"""Byte examples of flashQ's dialect: what each request asks of the engine, and the answer that its client reads.

The file was written by the server before its requests were derived from the commands; run this module to add to it.
"""

import base64
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model.errors import StokerError
from stoker.model.steps import carry_out
from stoker.testing import FakeClock
from stoker.wire import native
from stoker.wire.flashq import RequestContext, decode, failure, row_of
from stoker.wire.flashq.decoding import Codec
from tools.wire_page import LIFE

FILE = Path(__file__).with_name("flashq_bytes.json")
SETTINGS: list[tuple[Codec, bool]] = [("json", False), ("json", True), ("msgpack", False)]

MORE: list[dict[str, Any]] = [
    {"cmd": "PUSH", "queue": "more", "data": [1], "maxAttempts": 5, "backoff": {"delay": 5, "maxDelay": 50}},
    {"cmd": "PUSH", "queue": "more", "data": {"$bytes": "AAE="}, "codec": "bytes", "request_key": "once"},
    {"cmd": "PUSH", "queue": "more", "data": 1, "uniqueKey": "k", "durable": True},
    {"cmd": "PUSH", "queue": "more", "data": 1, "uniqueKey": "k"},
    {"cmd": "PUSHBATCH", "queue": "more", "jobs": [{"payload": 1}, {"data": 2, "lifo": True}, {"data": 3, "ttl": "x"}]},
    {"cmd": "PULLBATCH", "queue": ["none", "more"], "count": 5, "timeoutMs": 0, "workerId": "w", "lease": 900},
    {"cmd": "FAIL", "id": 832, "error": "x", "errorClass": "E", "stack": ["a", "b"], "unrecoverable": True},
    {"cmd": "FAIL", "id": 896, "error": "x", "delay": 70, "token": 7},
    {"cmd": "EXTEND", "ids": [960, 1024], "leaseMs": 5_000},
    {"cmd": "HEARTBEAT", "id": 6},
    {"cmd": "RELEASE", "ids": [960, 6], "delay": 10, "tokens": 7},
    {"cmd": "RELEASE"},
    {"cmd": "PROGRESS", "jobId": 1024, "percent": 12.7, "message": None},
    {"cmd": "ADDLOG", "id": 1024, "message": "m", "level": "warn"},
    {"cmd": "PARTIAL", "id": 1024, "data": {"$bytes": "AAE="}, "codec": "bytes", "index": 3},
    {"cmd": "ACK", "id": 1024, "result": None},
    {"cmd": "ACK", "id": 1024},
    {"cmd": "ACKBATCH", "ids": []},
    {"cmd": "ACKB", "ids": [6], "results": [1], "codec": "msgpack"},
    {"cmd": "FINISHED", "id": 1024, "timeout": 0},
    {"cmd": "WAITJOB", "id": 6},
    {"cmd": "GETJOB", "id": 6},
    {"cmd": "GETSTATE", "id": 6},
    {"cmd": "GETRESULT", "id": 6},
    {"cmd": "GETJOBBYCUSTOMID", "customId": "none", "queue": "more"},
    {"cmd": "GETJOBSBATCH", "ids": []},
    {"cmd": "GETJOBS", "state": "waiting-children", "limit": 0},
    {"cmd": "GETJOBS", "state": "odd"},
    {"cmd": "GETJOBCOUNTS"},
    {"cmd": "COUNT", "queue": "none"},
    {"cmd": "ISPAUSED", "queue": "none"},
    {"cmd": "GETDLQ", "queue": "more", "count": 0, "reason": None},
    {"cmd": "UPDATE", "id": 768, "data": {"$bytes": "AAE="}, "codec": "bytes"},
    {"cmd": "MOVETODELAYED", "id": 768, "delayMs": 50},
    {"cmd": "MOVETODELAYED", "id": 768},
    {"cmd": "CHANGEPRIORITY", "id": 768, "priority": "high"},
    {"cmd": "SETRATELIMIT", "queue": "more", "limit": 5, "duration": 50, "burst": 2},
    {"cmd": "RATELIMIT", "queue": "more", "limit": 0},
    {"cmd": "CLEARRATELIMIT", "queue": "more"},
    {"cmd": "CONCURRENCY", "queue": "more", "limit": 2},
    {"cmd": "CONCURRENCYCLEAR", "queue": "more"},
    {
        "cmd": "SETPOLICY",
        "queue": "more",
        "groupOnRetry": "skip",
        "deadLetters": {"entriesMax": 5},
        "rateLimit": {"count": 3, "perMs": 50},
        "concurrency": 4,
    },
    {"cmd": "DRAIN", "queue": "more", "delayed": True},
    {"cmd": "CLEAN", "queue": "more", "grace": 0, "state": "failed", "limit": 1},
    {"cmd": "CLEAN", "queue": "more", "ageMs": 5, "state": "odd"},
    {"cmd": "RETRYDLQ", "queue": "more", "id": 6},
    {"cmd": "RETRYDLQ", "queue": "more", "ids": [6], "limit": 3},
    {"cmd": "PURGEDLQ", "queue": "more", "ids": [832], "reason": "explicit_fail"},
    {"cmd": "OBLITERATE", "queue": "more", "force": False},
    {"cmd": "ADDCRON", "name": "n", "queue": "more", "schedule": "*/5", "maxLimit": 3, "immediately": True},
    {"cmd": "CRON", "name": "n", "queue": "other", "every": 5_000, "options": {"priority": 2, "name": "kind"}},
    {"cmd": "LISTCRONS", "name": "n", "limit": 5},
    {"cmd": "GETCRON", "name": "n", "queue": "other"},
    {"cmd": "CRONPAUSE", "name": "none"},
    {"cmd": "DELETECRON", "name": "none", "queue": "other"},
    {"cmd": "LISTWORKFLOWS", "state": "failed", "limit": 5_000},
    {"cmd": "GETWORKFLOW", "id": 6},
    {"cmd": "GETINPUTS", "id": 6, "limit": 3},
    {"cmd": "KVSET", "key": "b", "value": {"$bytes": "AAE="}, "codec": "bytes"},
    {"cmd": "KVMSET", "entries": []},
    {"cmd": "KVMSET", "entries": [{"key": "b", "value": [1], "ttlMs": 50, "codec": "msgpack"}]},
    {"cmd": "KVGET", "key": "none"},
    {"cmd": "KVMGET", "keys": []},
    {"cmd": "KVDEL"},
    {"cmd": "KVDEL", "key": "b", "keys": ["none"]},
    {"cmd": "KVEXISTS", "key": "b"},
    {"cmd": "KVEXPIRE", "key": "none", "ttl": 5},
    {"cmd": "KVTTL", "key": "none"},
    {"cmd": "KVKEYS", "pattern": "n*", "after": "a", "limit": 2},
    {"cmd": "KVINCR", "key": "count", "by": -3},
]
"""Second names, spellings, nulls, empty lists and refusals, after the life that the reference shows."""


def carried_out() -> list[list[str]]:
    return [line for codec, hello in SETTINGS for line in a_life(codec, hello)]


def a_life(codec: Codec, hello: bool) -> list[list[str]]:
    """Of each request: its frame, the commands that it became, its answer."""
    with closing(LocalBroker(LocalSettings(shards=1), FakeClock())) as broker:
        return [exchange(broker, codec, hello, request) for request in (*LIFE, *MORE)]


def exchange(broker: LocalBroker, codec: Codec, hello: bool, request: dict[str, Any]) -> list[str]:
    frame, asked = getattr(msgspec, codec).encode(request), []

    def execute(command: Any) -> Any:
        asked.append(written(command))
        return broker.execute("default", command)

    try:
        context = RequestContext(codec, hello, now=broker.now())
        answer = carry_out(row_of(request["cmd"]).plan(decode(frame, codec, request["cmd"]), context), execute)
    except StokerError as error:
        answer = failure(error)
    encoded = native.FORMATS[codec].encode(without_texts(answer))
    return [readable(frame, codec), "; ".join(asked), readable(encoded, codec)]


def without_texts(value: Any) -> Any:
    """The words of an error may change; that there is one may not."""
    if isinstance(value, dict):
        return {name: "..." if name == "error" and one else without_texts(one) for name, one in value.items()}
    return [without_texts(one) for one in value] if isinstance(value, list) else value


def written(command: Any) -> str:
    """A command with what it says besides its defaults."""
    fields = msgspec.structs.fields(type(command))
    said = {one.name: getattr(command, one.name) for one in fields if getattr(command, one.name) != one.default}
    return f"{native.name_of(type(command))} {native.FORMATS['json'].encode(said).decode()}"


def readable(frame: bytes, codec: Codec) -> str:
    return frame.decode() if codec == "json" else base64.b64encode(frame).decode()


@pytest.mark.parametrize(("codec", "hello"), SETTINGS)
def test_requests_and_answers_are_the_bytes_that_they_were(codec: Codec, hello: bool):
    size = len(LIFE) + len(MORE)
    first = SETTINGS.index((codec, hello)) * size
    expected = msgspec.json.decode(FILE.read_bytes(), type=list[list[str]])[first : first + size]
    for found, line in zip(a_life(codec, hello), expected, strict=True):
        assert found == line


if __name__ == "__main__":
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(carried_out()), indent=1) + b"\n")
