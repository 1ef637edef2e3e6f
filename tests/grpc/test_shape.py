"""Messages that would grow when they are unpacked are refused while they are still small."""

from typing import Any

import pytest

from stoker.model.errors import LimitExceeded
from stoker.proto import stoker_pb2 as pb
from stoker.server.grpc.size_check import FIELDS_MAX, SMALL_BYTES, check_size, count
from tests.grpc.support import Served, code_of, failure

MANY = FIELDS_MAX + 1
EMPTY_PAYLOAD, EMPTY_OPTIONS = b"\x12\x00", b"\x22\x00"


def sized(tag: bytes, body: bytes) -> bytes:
    """A field with something in it."""
    size, rest = len(body), bytearray()
    while size > 0x7F:
        rest.append(size & 0x7F | 0x80)
        size >>= 7
    return tag + bytes((*rest, size)) + body


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (pb.PushBatchRequest, EMPTY_PAYLOAD * MANY),
        (pb.PushBatchRequest, EMPTY_OPTIONS * MANY),
        (pb.PushRequest, sized(b"\x1a", b"\x8a\x01\x00" * MANY)),  # options.depends_on
        (pb.PushRequest, sized(b"\x1a", b"\xa2\x01\x00" * MANY)),  # options.tags
        (pb.AckBatchRequest, sized(b"\x0a", b"\x0a\x00" * MANY)),  # ids.ranges
        (pb.ProcessJobsRequest, sized(b"\x1a", sized(b"\x0a", b"\x0a\x00" * MANY))),  # acks.ids.ranges
    ],
)
def test_too_many_values_are_refused_at_any_depth(kind: Any, sent: bytes):
    with pytest.raises(LimitExceeded, match="too many values"):
        check_size(kind.DESCRIPTOR, sent)


@pytest.mark.parametrize(
    "message",
    [
        pb.PushBatchRequest(queue="q", payloads=[bytes(100)] * 10_000),
        pb.PushBatchRequest(
            queue="q", payloads=[b"x"] * 10_000, each=[pb.Options(priority=9, tags=["a"] * 20)] * 10_000
        ),
        pb.PushRequest(queue="q", payload=bytes(10_000_000)),
        pb.AckBatchRequest(ids=pb.Ids(list=range(2**40, 2**40 + 100_000)), results=[bytes(1_000)] * 10_000),
    ],
    ids=["payloads", "options", "large", "ids"],
)
def test_what_is_allowed_is_not_too_much(message: Any):
    sent = message.SerializeToString()
    assert len(sent) > SMALL_BYTES
    check_size(message.DESCRIPTOR, sent)


def test_every_value_is_counted_once():
    message = pb.PushBatchRequest(queue="q", payloads=[b"1", b"2"], each=[pb.Options(tags=["a", "b"], priority=1)] * 2)
    sent = message.SerializeToString()
    assert count(message.DESCRIPTOR, sent, 0, len(sent), 0) == 1 + 2 + 2 * (1 + 3)


@pytest.mark.parametrize("sent", [b"\xff" * 300_000, b"\x12", b"\x12\xff\xff\xff\xff\x7f" * 60_000, b"\x0b" * 300_000])
def test_what_is_no_message_is_left_to_protobuf(sent: bytes):
    check_size(pb.PushBatchRequest.DESCRIPTOR, sent)


def test_the_server_refuses_them_and_serves_the_next(served: Served):
    call = served.channel().unary_unary("/stoker.v1.Queue/PushBatch")
    for sent in (EMPTY_OPTIONS * 2_000_000, EMPTY_PAYLOAD * 2_000_000):
        assert code_of(failure(lambda sent=sent: call(sent))) == "limit_exceeded"  # type: ignore[misc]
    assert served.queue().Push(pb.PushRequest(queue="q", payload=b"x")).created
