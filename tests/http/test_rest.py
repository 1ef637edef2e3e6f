"""flashQ's routes and commands over HTTP, as its SDKs use them."""

import threading
from collections.abc import Callable

import pytest

from stoker.model import commands as c
from stoker.server.config.tree import ServerLimits
from stoker.server.http.routes import ROUTES, Route
from tests.http.support import HttpServer


def push(server: HttpServer, queue: str = "a", **job: object) -> int:
    answer = server.post(f"/queues/{queue}/jobs", {"data": {"x": 1}, **job})
    assert answer.status == 200, answer.body
    return int(answer.json["data"]["id"])


def test_a_job_goes_its_way(server: HttpServer):
    job = push(server, priority=5, tags=["t"])
    assert server.get(f"/jobs/{job}/state").json["data"]["state"] == "waiting"
    (pulled,) = server.get("/queues/a/jobs?count=5").json["data"]
    assert (pulled["id"], pulled["data"], pulled["priority"]) == (job, {"x": 1}, 5)
    assert server.post(f"/jobs/{job}/progress", {"progress": 40, "message": "on it"}).status == 200
    assert server.get(f"/jobs/{job}/progress").json["data"] == {"id": job, "progress": 40, "message": "on it"}
    assert server.post(f"/jobs/{job}/logs", {"message": "line"}).status == 200
    assert server.get(f"/jobs/{job}/logs").json["data"][0]["message"] == "line"
    assert server.post(f"/jobs/{job}/ack", {"result": {"y": 2}}).json["ok"]
    assert server.get(f"/jobs/{job}/result").json["data"] == {"y": 2}
    found = server.get(f"/jobs/{job}").json["data"]
    assert (found["state"], found["job"]["result"]) == ("completed", {"y": 2})
    assert server.get(f"/jobs/{job}/wait?timeout=100").json["data"] == {"y": 2}
    again = server.post(f"/jobs/{job}/ack", {})
    assert (again.status, again.json["ok"]) == (409, False)


def test_what_flashqs_typescript_client_reads(server: HttpServer):
    """It looks at `ok` and `data`, and in some answers beside them; never at the status."""
    ids = server.post("/queues/q/jobs/batch", {"jobs": [{"data": 1}, {"data": 2}, {"data": 3}]}).json["data"]
    assert len(ids) == 3
    assert [queue["name"] for queue in server.get("/queues").json["data"]] == ["q"]
    assert server.get("/queues/q/count").json["data"] == 3
    assert server.get("/queues/q/counts").json["data"]["waiting"] == 3
    assert server.get("/queues/q/paused").json["data"]["paused"] is False
    jobs = server.get("/jobs?queue=q&state=waiting&limit=2").json["data"]
    assert (len(jobs["jobs"]), jobs["total"]) == (2, 3)
    assert server.get("/stats").json["data"]["queued"] == 3
    assert server.get("/metrics", content_type="application/json").json["data"]["total_pushed"] == 3
    assert len(server.get("/queues/q/jobs?count=2").json["data"]) == 2
    assert server.post("/jobs/ack/batch", {"ids": ids[:2]}).json["count"] == 2
    assert server.post("/queues/q/drain").json["count"] == 1
    assert server.get("/queues/q/dlq?count=100").json["data"] == []
    assert server.get("/crons").json["data"] == []
    flow = server.post("/flows", {"queue": "q", "parent_data": 0, "children": [{"queue": "q", "data": 1}]}).json
    assert flow["data"]["parent_id"]
    assert len(flow["data"]["children_ids"]) == 1
    assert len(server.get(f"/jobs/{flow['id']}/children").json["data"]) == 1
    assert server.ask("PATCH", f"/jobs/{flow['id']}", {"data": "new"}).json["ok"]
    custom = push(server, "q", job_id="mine")
    assert server.get("/jobs/custom/mine").json["data"]["job"]["id"] == custom


MAY_FIND_NOTHING = ("GETJOB", "GETSTATE", "GETJOBBYCUSTOMID")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_served(server: HttpServer, route: Route):
    """Whatever it says to an empty request: somebody answers, in the envelope."""
    path = route.path.replace("{queue}", "a").replace("{id}", "64").replace("{name}", "n").replace("{job_id}", "j")
    answer = server.ask(route.method, path, {} if route.has_body else None)
    assert answer.status in (200, 400, 404, 409), answer.body
    assert answer.json["ok"] is (answer.status == 200 or route.cmd in MAY_FIND_NOTHING)
    assert ("data" if answer.json["ok"] else "error") in answer.json


def test_what_is_not_there_is_a_404(server: HttpServer):
    for path in ("/nothing", "/queues/a/nothing", "/jobs/640/result", "/jobs/640/logs"):
        answer = server.get(path)
        assert (answer.status, answer.json["ok"], answer.json["code"]) == (404, False, "not_found"), path
    for path in ("/jobs/640", "/jobs/640/state", "/jobs/custom/none"):  # flashQ's clients expect to find nothing here
        answer = server.get(path)
        assert (answer.status, answer.json["ok"], answer.json["code"]) == (404, True, "not_found"), path
        assert answer.json["data"]["state"] == "unknown"
        assert answer.json["data"].get("job") is None
    wrong = server.ask("PUT", "/queues/a/jobs")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?limit=x",
        "/jobs?limit=1&limit=2",
        "/jobs?state=nonsense",
        "/jobs/none",
        "/jobs?%ff=1",
        "/queues/a%20b/count",
    ],
)
def test_a_parameter_that_means_nothing_is_a_400(server: HttpServer, path: str):
    assert server.get(path).status == 400


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{", b'{"data": 1', b'{"data": 1}}', b'{"data": "\xff"}', b"{}"]
)
def test_a_body_that_is_no_job_makes_none(server: HttpServer, body: bytes):
    assert server.post("/queues/a/jobs", body).status == 400
    assert server.get("/queues").json["data"] == []


def test_the_path_wins_over_the_body(server: HttpServer):
    assert server.post("/queues/a/jobs", {"data": 1, "queue": "b"}).status == 200
    assert server.execute(c.ListQueues()).names == ["a"]


def test_a_waiting_pull_brings_what_comes(server: HttpServer):
    found = []
    puller = threading.Thread(
        target=lambda: found.append(server.post("/queues/a/pull", {"count": 1, "timeout": 15_000}))
    )
    puller.start()
    job = push(server)
    puller.join(60)
    assert [one["id"] for one in found[0].json["data"]] == [job]


def test_jobs_come_one_a_line_if_wanted(server: HttpServer):
    ids = [push(server), push(server)]
    answer = server.post("/queues/a/pull?count=10", accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [job["id"] for job in answer.lines] == ids
    assert server.post("/queues/a/pull?count=10", accept="application/x-ndjson").body == b""


def test_the_python_sdk_posts_commands(server: HttpServer):
    pushed = server.post("/api/command", {"cmd": "PUSH", "queue": "a", "data": [1], "reqId": "r-1"})
    assert (pushed.status, pushed.json["ok"], pushed.json["reqId"]) == (200, True, "r-1")
    pulled = server.post("/api/command", {"cmd": "PULL", "queue": "a", "timeout": 0}).json["job"]
    assert pulled["data"] == [1]
    assert server.post("/api/command", {"cmd": "ACK", "id": pulled["id"]}).json["ok"]
    missing = server.post("/api/command", {"cmd": "ACK", "id": 6400})
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    assert "job not found" in missing.json["error"].lower()
    assert server.post("/api/command", {"cmd": "PING"}).json["pong"]
    assert server.post("/api/command", {"cmd": "HELLO"}).json["server"] == "stoker"
    assert server.post("/api/command", {"cmd": "SUBSCRIBE", "queue": "a"}).status == 400
    assert server.post("/api/command", {"cmd": "list_queues"}).json["body"]["names"] == ["a"]
    assert server.post("/api/command", {"cmd": "NONSENSE"}).status == 400
    assert server.post("/api/command", {"cmd": "KVSET", "key": "k", "value": 7}).json["ok"]
    assert server.post("/api/command", {"cmd": "KVGET", "key": "k"}).json["value"] == 7


def test_a_duplicate_is_a_conflict(server: HttpServer):
    push(server, unique_key="k")
    second = server.post("/queues/a/jobs", {"data": 1, "unique_key": "k"})
    assert (second.status, second.json["code"]) == (409, "duplicate")


def test_another_tenant_is_named_in_a_header(server: HttpServer):
    assert server.post("/queues/a/jobs", {"data": 1}, stoker_tenant="t").status == 200
    assert server.get("/queues").json["data"] == []
    assert server.execute(c.ListQueues(), "t").names == ["a"]


def test_a_job_carries_the_trace_of_the_request_that_pushed_it(server: HttpServer):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ids = [
        server.post("/queues/a/jobs", {"data": 1}, traceparent=trace).json["id"],
        server.post("/webhooks/incoming/a", b"1", traceparent=trace).json["data"]["id"],
    ]
    ids += server.post("/queues/a/jobs/batch", {"jobs": [{"data": 1}]}, traceparent=trace).json["data"]
    server.post("/queues/b/jobs/bulk", b"1", traceparent=trace)
    ids.append(server.execute(c.Pull(["b"])).ids[0])
    assert [server.execute(c.GetJob(job)).options.trace for job in ids] == [trace] * 4
    own = server.post("/queues/a/jobs", {"data": 1, "trace": "mine"}, traceparent=trace).json["id"]
    assert server.execute(c.GetJob(own)).options.trace == "mine"
    none = server.post("/queues/a/jobs", {"data": 1}, traceparent='nonsense","queue":"b').json["id"]
    assert server.execute(c.GetJob(none)).options.trace is None


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/queues/a/jobs", {"data": 1, "prioriti": 5}, "unknown field 'prioriti'; did you mean 'priority'?"),
        ("/queues/a/jobs", {"data": 1, "backoff": {"bas_ms": 5}}, "unknown field 'bas_ms' in backoff"),
        ("/queues/a/pull", {"cuont": 5}, "unknown field 'cuont'; did you mean 'count'?"),
        ("/queues/a/pull?cuont=5", {}, "unknown parameter 'cuont'; did you mean 'count'?"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_name_that_was_meant(
    server: HttpServer, path: str, body: object, told: str
):
    answer = server.post(path, body)
    assert (answer.status, answer.json["code"]) == (400, "invalid")
    assert told in answer.json["error"]
    assert server.get("/queues").json["data"] == [], "and nothing was pushed"


def test_a_command_of_flashqs_dialect_warns_of_a_misspelt_field(server: HttpServer):
    answer = server.post("/api/command", {"cmd": "PUSH", "queue": "a", "data": 1, "prioriti\n": 5})
    expected = "ignored unknown field 'prioriti\\n'; did you mean 'priority'?"
    assert (answer.status, answer.json["warnings"]) == (200, [expected])
    assert answer.headers["stoker-warnings"] == expected


def test_a_server_can_refuse_what_flashqs_dialect_does_not_know(serve: Callable[..., HttpServer]):
    server = serve(server=ServerLimits(unknown_fields="refuse"))
    answer = server.post("/api/command", {"cmd": "PUSH", "queue": "a", "data": 1, "prioriti": 5})
    assert (answer.status, answer.json["code"]) == (400, "invalid")
