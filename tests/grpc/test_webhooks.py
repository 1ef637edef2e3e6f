"""Webhooks are set, listed, tried and deleted over gRPC, too: `Call` takes what a server's other listeners take."""

import json
from typing import Any

from stoker.proto import stoker_pb2 as pb
from stoker.server.config.tree import WebhookSettings
from tests.grpc.conftest import Serve
from tests.grpc.support import Served, with_changes

ALLOWED = with_changes(webhooks=WebhookSettings(allow=("127.0.0.0/8",)))
METADATA = (("stoker-tenant", "t"),)


def call(queue: Any, cmd: str, metadata: Any = (), **body: Any) -> Any:
    frame = pb.Frame(body=json.dumps({"cmd": cmd, "reqId": 1, "body": body}).encode())
    answer = json.loads(queue.Call(frame, metadata=metadata).body)
    assert answer.pop("reqId") == 1
    return answer


def test_a_webhook_is_set_listed_tried_and_deleted(serve: Serve):
    queue = serve(ALLOWED).queue()
    made = call(queue, "set_webhook", url="http://127.0.0.1:9/hook", events=["completed"])
    assert made["ok"], made
    name = made["body"]["id"]
    (seen,) = call(queue, "list_webhooks")["body"]["webhooks"]
    assert (seen["id"], seen["url"], seen["events"]) == (name, "http://127.0.0.1:9/hook", ["completed"])
    assert call(queue, "delete_webhook", id=name)["body"] == {"count": 1}
    assert call(queue, "test_webhook", id=name)["code"] == "not_found"
    assert call(queue, "list_webhooks")["body"]["webhooks"] == []


def test_the_tenant_of_the_call_is_the_tenant_of_the_webhook(serve: Serve):
    queue = serve(ALLOWED).queue()
    assert call(queue, "set_webhook", METADATA, url="http://127.0.0.1:9/hook", events=["failed"])["ok"]
    assert call(queue, "list_webhooks")["body"]["webhooks"] == []
    assert len(call(queue, "list_webhooks", METADATA)["body"]["webhooks"]) == 1


def test_commands_of_flashqs_dialect_are_for_the_tenant_of_the_call(served: Served):
    queue = served.queue()
    frame = pb.Frame(body=b'{"cmd":"PUSH","queue":"a","data":1}')
    assert json.loads(queue.Call(frame, metadata=METADATA).body)["ok"]
    assert call(queue, "list_queues")["body"]["names"] == []
    assert call(queue, "list_queues", METADATA)["body"]["names"] == ["a"]
