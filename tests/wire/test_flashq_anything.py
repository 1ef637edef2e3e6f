"""Whatever is asked for in a well-formed request, a real broker answers or refuses: no other error comes out."""

from functools import cache
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire.flashq import ROWS
from stoker.wire.flashq.decoding import Codec
from tests.soaking import drawing
from tests.wire.flashq_peer import MODULES, Peer

ASKED = sorted(name for name, row in ROWS.items() if row.kind != "server")

numbers = st.sampled_from([0, 1, -1, 2, 64, 128, 100, 101, 1_001, 2**31, 2**53 - 1, 2**53, 2**63, 2**64 - 1, -(2**63)])
texts = st.sampled_from(["", "q", "p", "k", "a b", "\0", "*", "é", "x" * 300, "x" * 2_000, "completed", "waiting"])
anything = st.recursive(numbers | texts | st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)


DEPTH = 2
"""Of children that have children."""


def value_for(hint: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of the right type, mostly; what they may be is for the queue to judge."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is int:
        return numbers
    if hint is str:
        return texts
    if hint is bool:
        return st.booleans()
    if hint is float:
        return st.floats()
    if origin in (list, tuple):
        return st.lists(value_for(inside[0], depth), max_size=3) if depth <= DEPTH else st.just([])
    if origin is dict:
        return st.just({})
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return request_for(hint, depth + 1)
    if inside and all(isinstance(choice, str) for choice in inside):
        return st.sampled_from(inside)
    return (
        st.one_of(*[value_for(one, depth) for one in inside])
        if inside
        else st.none()
        if hint is type(None)
        else anything
    )


@cache
def request_for(kind: type, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in ("cmd", "reqId", "tenant")]
    values = {
        field.name: st.sampled_from([0, -1]) if field.name == "timeout" else value_for(field.type, depth)
        for field in fields
    }
    waits = {"timeout": values.pop("timeout")} if "timeout" in values else {}  # nobody waits here
    needed = {field.name: values.pop(field.name) for field in fields if field.required}
    return st.fixed_dictionaries({**needed, **waits}, optional=values)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@drawing(40)
@given(data=st.data())
def test_any_requests_in_any_order_are_answered_or_refused(codec: Codec, data: st.DataObject):
    peer = Peer(codec)
    peer("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2, "unique_key": "k"}])
    for cmd in data.draw(st.lists(st.sampled_from(ASKED), min_size=1, max_size=5)):
        sent = data.draw(request_for(ROWS[cmd].request), cmd)
        answer = peer.send(cmd, MODULES[codec].encode(sent))
        assert answer["ok"] or answer["code"]
    peer.broker.close()


@pytest.mark.parametrize("cmd", ASKED)
@drawing(6)
@given(data=st.data())
def test_each_command_is_answered_or_refused(cmd: str, data: st.DataObject):
    peer = Peer("msgpack")
    peer("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2, "unique_key": "k"}, {"data": 3}])
    peer("PULL", queue="q", timeout=0)
    answer = peer.send(cmd, msgspec.msgpack.encode(data.draw(request_for(ROWS[cmd].request))))
    assert answer["ok"] or answer["code"]
    peer.broker.close()
