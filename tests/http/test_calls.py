"""Native requests, one a call: `POST /api/call` and `POST /api/call/{name}`."""

from collections.abc import Callable

import msgspec
import pytest

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from stoker.server.http.responses import STATUS
from stoker.wire import native
from tests.http.support import HttpServer, wait_until

Serve = Callable[..., HttpServer]


def test_a_call_in_json_is_answered_in_json(server: HttpServer):
    pushed = server.post("/api/call", {"cmd": "push", "reqId": 7, "body": {"queue": "a", "payload": "aGk="}})
    assert pushed.status == 200
    assert pushed.headers["content-type"] == "application/json"
    assert pushed.json["reqId"] == 7
    assert server.execute(c.GetJob(pushed.json["body"]["id"])).payload == b"hi"


def test_a_call_in_messagepack_is_answered_in_messagepack(server: HttpServer):
    body = native.request(c.PushBatch("a", [b"1", b"2"]), 1, None, "msgpack")
    answer = server.post("/api/call", body, content_type="application/msgpack")
    assert answer.headers["content-type"] == "application/msgpack"
    reply = native.reply(native.open_head(answer.body, "msgpack"), c.PushBatch, "msgpack")
    assert isinstance(reply, r.PushedBatch)
    assert len(reply.ids) == 2


def test_a_call_pushes_into_the_trace_that_its_headers_name(server: HttpServer):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    own = {"payload": "MQ==", "options": {"trace": "mine"}}
    calls: list[tuple[str, dict[str, object]]] = [
        ("/api/call", {"cmd": "push", "body": {"queue": "a", "payload": "MQ=="}}),
        ("/api/call/push_batch", {"queue": "a", "payloads": ["MQ=="], "each": [{"priority": 1}]}),
        ("/api/command", {"cmd": "PUSH", "queue": "a", "data": 1}),
        ("/api/command", {"cmd": "PUSHB", "queue": "a", "jobs": [{"data": 1}]}),
        ("/api/call/push", {"queue": "a", **own}),
    ]
    for path, body in calls:
        assert server.post(path, body, traceparent=trace).status == 200
    jobs = server.execute(c.Browse(ascending=True)).jobs
    assert [job.options.trace for job in jobs] == [trace] * 4 + ["mine"]


def test_a_call_may_name_its_tenant_in_a_header(server: HttpServer):
    push = {"cmd": "push", "body": {"queue": "a", "payload": "MQ=="}}
    server.post("/api/call", push, stoker_tenant="t")
    server.post("/api/command", {"cmd": "PUSH", "queue": "b", "data": 1}, stoker_tenant="t")
    server.post("/api/call", {**push, "tenant": "u"}, stoker_tenant="t")
    assert [list(server.execute(c.ListQueues(), tenant).names) for tenant in ("t", "u", "default")] == [
        ["a", "b"],
        ["a"],
        [],
    ]


def test_a_command_can_be_named_in_the_path(server: HttpServer):
    assert server.post("/api/call/push", {"queue": "a", "payload": "MQ=="}).status == 200
    assert server.post("/api/call/list_queues").json["body"]["names"] == ["a"]
    assert server.post("/api/call/nonsense", {}).status == 404


def test_a_greeting_tells_the_limits(server: HttpServer):
    hello = server.post("/api/call", {"cmd": "hello"})
    assert hello.status == 200
    assert hello.json["body"]["limits"]["batch_jobs_max"] == 10_000


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid"),
        (b"[]", 400, "invalid"),
        (b'{"cmd": "nonsense"}', 400, "invalid"),
        (b'{"cmd": "push", "body": {"queue": "a"}}', 400, "invalid"),
        (b'{"cmd": "push", "body": {"queue": "no spaces", "payload": ""}}', 400, "invalid"),
        (b'{"cmd": "get_job", "body": {"id": 640}}', 404, "not_found"),
        (b'{"cmd": "promote", "body": {"id": 640}}', 404, "not_found"),
        (b'{"cmd": "pull", "body": {"queues": ["a"], "count": 100000}}', 422, "limit_exceeded"),
        (b'{"cmd": "publish", "body": {"transaction": "t", "stages": ["s"]}}', 404, "unknown_stage"),
    ],
)
def test_a_refused_call_has_a_status_that_says_why(server: HttpServer, body: bytes, status: int, code: str):
    answer = server.post("/api/call", body)
    assert (answer.status, answer.json["code"], answer.json["ok"]) == (status, code, False)


def test_every_code_has_a_status():
    assert BY_CODE.keys() <= STATUS.keys()


def test_whoever_may_not_is_told_so(serve: Serve, tmp_path):
    token = create_token(tmp_path / "tokens", name="p", permissions=("produce",), tenant="t", now=1.0).text
    server = serve(auth=AuthSettings(tokens_file=str(tmp_path / "tokens")))
    push = {"cmd": "push", "body": {"queue": "a", "payload": ""}}
    nobody = server.post("/api/call", push)
    assert (nobody.status, nobody.headers["www-authenticate"]) == (401, 'Bearer realm="stoker"')
    assert server.post("/api/call", push, authorization="Bearer wrong").status == 401
    assert server.post("/api/call", push, authorization="nonsense").status == 401
    assert server.post("/api/call", push, authorization=f"Bearer {token}").status == 200
    assert server.post("/api/call", {"cmd": "list_queues"}, authorization=f"Bearer {token}").status == 403
    elsewhere = {**push, "tenant": "other"}
    assert server.post("/api/call", elsewhere, authorization=f"Bearer {token}").status == 403
    assert server.execute(c.ListQueues(), "t").names == ["a"]


def test_a_proxys_clients_are_not_on_this_machine(server: HttpServer):
    assert server.post("/api/call", {"cmd": "list_queues"}).status == 200
    assert server.post("/api/call", {"cmd": "list_queues"}, x_forwarded_for="192.0.2.7").status == 401


def test_a_client_that_leaves_gives_its_waiting_pull_up(server: HttpServer):
    pull = msgspec.json.encode({"cmd": "pull", "body": {"queues": ["a"], "wait_ms": 60_000}})
    with server.socket() as connected:
        connected.sendall(
            b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(pull) + pull
        )
        wait_until(server, lambda: server.server.dispatcher.is_waiting)
    wait_until(server, lambda: not server.server.dispatcher.is_waiting)
    pushed = server.execute(c.Push("a", b""))
    assert server.execute(c.GetJob(pushed.id)).state == "waiting"


def test_an_entitlement_brings_quotas_for_its_request(serve: Serve):
    secret = "s" * 32
    server = serve(auth=AuthSettings(tokens=("secret",), entitlement_secrets=(secret,)))
    entitlement = sign(Entitlement(tenant="default", quotas=Quotas(queues=1), expires_at=2**40), secret)
    who = {"authorization": "Bearer secret", "stoker_entitlement": entitlement}
    assert server.post("/queues/a/jobs", {"data": 1}, **who).status == 200
    over = server.post("/queues/b/jobs", {"data": 1}, **who)
    assert (over.status, over.json["code"], over.headers["retry-after"]) == (429, "quota_exceeded", "1")
    assert server.post("/queues/b/jobs", {"data": 1}, **{**who, "stoker_entitlement": "forged.x"}).status == 403
    assert server.post("/queues/b/jobs", {"data": 1}, authorization="Bearer secret").status == 200
