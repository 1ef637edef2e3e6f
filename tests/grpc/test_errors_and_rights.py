"""What fails says why in three ways that agree, and the same gate stands before gRPC as before everything else."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from stoker.model.errors import BY_CODE, Busy, NotFound, StokerError
from stoker.proto import stoker_pb2 as pb
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import NewToken, create_token, revoke_token
from stoker.server.config import ServerConfig
from stoker.server.config.tree import ServerLimits
from stoker.server.grpc.caller import is_local
from stoker.server.grpc.errors import STATUS, details_of
from stoker.wire import native
from tests.grpc.conftest import Serve
from tests.grpc.support import Served, code_of, failure, with_changes


def bearer(token: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"), *more)


def token(tokens: Path, **asked: Any) -> NewToken:
    return create_token(tokens, now=time.time(), **asked)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_an_error_says_the_same_in_status_metadata_and_details(served: Served):
    error = failure(lambda: served.queue().GetJob(pb.GetJobRequest(id=123)))
    trailing = dict(error.trailing_metadata())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "not found" in error.details()
    assert (trailing["stoker-code"], trailing["stoker-retryable"]) == ("not_found", "false")
    status = pb.Status.FromString(trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (grpc.StatusCode.NOT_FOUND.value[0], error.details())
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    info = pb.ErrorInfo.FromString(detail.value)
    assert (info.reason, info.domain, dict(info.metadata)) == ("not_found", "stoker", {"retryable": "false"})


def test_details_say_whether_to_try_again():
    info = pb.ErrorInfo.FromString(pb.Status.FromString(details_of(Busy("later"))).details[0].value)
    assert dict(info.metadata) == {"retryable": "true"}


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_code_has_a_status_that_fits(code: str):
    """gRPC's own retries are for UNAVAILABLE alone: what will fail again must not be called that."""
    kind = BY_CODE[code]
    assert STATUS[code] is not grpc.StatusCode.OK
    if STATUS[code] is grpc.StatusCode.UNAVAILABLE:
        assert kind.retryable


def test_bad_input_is_invalid_and_changes_nothing(served: Served):
    queue = served.queue()
    bad = (
        pb.PushRequest(queue="no spaces", payload=b""),
        pb.PushRequest(queue="q", payload=b"", options=pb.Options(on_conflict="perhaps")),
        pb.PushRequest(queue="q", payload=b"", options=pb.Options(priority=2**60)),
        pb.PushRequest(queue="q", payload=b"", durability="granite"),
    )
    for request in bad:
        error = failure(partial(queue.Push, request))
        assert (error.code(), code_of(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid"), request
    assert queue.Stats(pb.StatsRequest()).totals.pushed == 0


def test_a_message_over_the_limit_is_refused(serve: Serve):
    served = serve(with_changes(server=ServerLimits(frame_bytes_max=10_000)))
    queue = served.queue()
    error = failure(lambda: queue.Push(pb.PushRequest(queue="q", payload=bytes(10_001))))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert queue.Push(pb.PushRequest(queue="q", payload=bytes(9_000))).created


def test_bytes_that_are_no_message_are_refused(served: Served):
    call = served.channel().unary_unary("/stoker.v1.Queue/Push")
    error = failure(lambda: call(b"\xff\xff\xff"))
    assert (error.code(), code_of(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid")
    stream = served.channel().stream_stream("/stoker.v1.Queue/ProcessJobs")(iter([b"\xff"]))
    assert code_of(failure(lambda: next(stream))) == "invalid"
    assert served.queue().Stats(pb.StatsRequest()).totals.pushed == 0


@pytest.mark.parametrize("body", [b"", b"{", b"\x81", b"\xc1", b"[1]", b'{"cmd":"no_such"}', b'{"cmd":"push"}'])
def test_a_bad_frame_is_answered_with_an_error(served: Served, body: bytes):
    answer = served.queue().Call(pb.Frame(body=body)).body
    head = native.open_head(answer, "json" if body[:1] == b"{" else "msgpack")
    assert (head.ok, head.code) == (False, "invalid")


# --- who may do what -------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def guarded(tokens: Path) -> ServerConfig:
    return with_changes(auth=AuthSettings(tokens_file=str(tokens)))


def test_without_a_token_nothing_is_answered_where_tokens_are_asked_for(serve: Serve, tokens: Path):
    made = token(tokens, name="a")
    queue = serve(guarded(tokens)).queue()
    for metadata in (None, bearer("stk_wrong"), (("authorization", f"Basic {made.text}"),)):
        error = failure(partial(queue.Stats, pb.StatsRequest(), metadata=metadata))
        assert (error.code(), code_of(error)) == (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")
    assert queue.Stats(pb.StatsRequest(), metadata=bearer(made.text)).counts.waiting == 0


def test_streams_ask_for_a_token_too(serve: Serve, tokens: Path):
    token(tokens, name="a")
    served = serve(guarded(tokens))
    jobs = served.queue().StreamJobs(pb.StreamJobsRequest(queues=["q"], credit=1))
    assert code_of(failure(lambda: next(jobs))) == "unauthenticated"
    work = served.queue().ProcessJobs(iter([pb.ProcessJobsRequest(open=pb.StreamJobsRequest(queues=["q"]))]))
    assert code_of(failure(lambda: next(work))) == "unauthenticated"


def test_a_frame_without_a_token_is_not_even_opened(serve: Serve, tokens: Path):
    made = token(tokens, name="a")
    queue = serve(guarded(tokens)).queue()
    frame = pb.Frame(body=b'{"cmd":"list_queues"}')
    assert code_of(failure(lambda: queue.Call(frame))) == "unauthenticated"
    assert native.open_head(queue.Call(frame, metadata=bearer(made.text)).body, "json").ok


def test_each_call_needs_its_permission(serve: Serve, tokens: Path):
    made = token(tokens, name="a", permissions=("produce",))
    queue = serve(guarded(tokens)).queue()
    mine = bearer(made.text)
    queue.Push(pb.PushRequest(queue="q", payload=b""), metadata=mine)
    refused: tuple[tuple[Any, Any], ...] = (
        (queue.Pull, pb.PullRequest(queues=["q"])),
        (queue.AckBatch, pb.AckBatchRequest(ids=pb.Ids(list=[1]), tokens=[1])),
        (queue.Stats, pb.StatsRequest()),
        (queue.GetJob, pb.GetJobRequest(id=1)),
        (queue.GrantCredit, pb.GrantCreditRequest(stream="s", credit=1)),
    )
    for call, request in refused:
        error = failure(partial(call, request, metadata=mine))
        assert (error.code(), code_of(error)) == (grpc.StatusCode.PERMISSION_DENIED, "forbidden")


def test_a_token_sees_its_own_tenant_only(serve: Serve, tokens: Path):
    ours, theirs = (token(tokens, name=name, tenant=name) for name in ("ours", "theirs"))
    queue = serve(guarded(tokens)).queue()
    job_id = queue.Push(pb.PushRequest(queue="q", payload=b"x"), metadata=bearer(ours.text)).id
    assert (
        code_of(failure(lambda: queue.GetJob(pb.GetJobRequest(id=job_id), metadata=bearer(theirs.text)))) == "not_found"
    )
    as_ours = bearer(theirs.text, ("stoker-tenant", "ours"))
    assert code_of(failure(lambda: queue.GetJob(pb.GetJobRequest(id=job_id), metadata=as_ours))) == "forbidden"
    assert queue.GetJob(pb.GetJobRequest(id=job_id), metadata=bearer(ours.text)).payload == b"x"


def test_a_stream_ends_when_its_token_is_withdrawn(serve: Serve, tokens: Path):
    made, other = token(tokens, name="a"), token(tokens, name="b")
    served = serve(guarded(tokens))
    queue = served.queue()
    stream = queue.StreamJobs(pb.StreamJobsRequest(queues=["q"], credit=5), metadata=bearer(made.text))
    next(stream)
    served.until(lambda server: server.dispatcher.is_waiting)
    revoke_token(tokens, made.text)
    served.server.gate.reload()
    queue.Push(pb.PushRequest(queue="q", payload=b"x"), metadata=bearer(other.text))
    assert code_of(failure(lambda: next(stream))) == "unauthenticated"
    job = queue.Pull(pb.PullRequest(queues=["q"], wait_ms=10_000), metadata=bearer(other.text)).job
    assert (job.payload, job.attempt) == (b"x", 1)


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.0.0.1:4000", True),
        ("ipv4:127.9.9.9:1", True),
        ("ipv6:%5B::1%5D:4000", True),
        ("ipv6:[::1]:4000", True),
        ("unix:/tmp/x", True),
        ("ipv4:10.0.0.1:4000", False),
        ("ipv6:%5B2001:db8::1%5D:4000", False),
        ("ipv6:%5B::1:2%5D:1", False),
        ("ipv4:127.evil.example:4000", False),
        ("ipv6:%5B::ffff:127.0.0.1%5D:1", True),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", False),
        ("", False),
    ],
)
def test_only_this_machine_counts_as_local(peer: str, local: bool):
    assert is_local(peer) is local


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_a_client_behind_a_proxy_on_this_machine_is_not_on_this_machine(served: Served, header: str):
    queue = served.queue()
    queue.Stats(pb.StatsRequest())
    error = failure(lambda: queue.Stats(pb.StatsRequest(), metadata=((header, "192.0.2.7"),)))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


def test_unknown_kinds_of_errors_have_a_status_too():
    assert STATUS[StokerError.code] is grpc.StatusCode.INTERNAL
    assert STATUS[NotFound.code] is grpc.StatusCode.NOT_FOUND


# --- frames ----------------------------------------------------------------------------------------------------------


def test_a_frame_may_be_of_any_dialect_and_codec(served: Served):
    queue = served.queue()
    frames = (b'{"cmd":"PUSH","queue":"q","data":1}', b'{"cmd":"hello","body":{}}', b'{"cmd":"list_queues"}')
    for body in frames:
        assert native.open_head(queue.Call(pb.Frame(body=body)).body, "json").ok, body
    asked = native.encoded(native.NativeRequest("list_queues", {}, 7), "msgpack")
    head = native.open_head(queue.Call(pb.Frame(body=asked)).body, "msgpack")
    assert (head.ok, head.reqId) == (True, 7)


def test_events_need_a_transport_that_can_send_them(served: Served):
    answer = served.queue().Call(pb.Frame(body=b'{"cmd":"subscribe","body":{}}')).body
    assert native.open_head(answer, "json").code == "invalid"
