"""Workflows over REST."""

from typing import Any

from tests.http.support import HttpServer

NIGHTLY = {
    "name": "nightly",
    "steps": [
        {"key": "list", "queue": "pages", "jobs": [{"data": "index"}]},
        {"key": "fetch", "queue": "pages", "after": ["list"], "open": True, "max_attempts": 1},
        {"key": "report", "queue": "reports", "jobs": [{"data": None}], "after": [{"step": 1, "onFailure": "fail"}]},
    ],
}


def pull(server: HttpServer, queue: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = server.post(f"/queues/{queue}/pull?count=10").json["data"]
    return jobs


def test_the_life_of_a_workflow(server: HttpServer):
    made = server.post("/workflows", NIGHTLY).json["data"]
    assert [(step["key"], len(step["ids"])) for step in made["steps"]] == [("list", 1), ("fetch", 0), ("report", 1)]
    (job,) = pull(server, "pages")
    fetch = {"step": "fetch", "jobs": [{"data": "a"}, {"data": "b"}], "token": job["token"]}
    assert server.post(f"/jobs/{job['id']}/fill", fetch).json["data"]["count"] == 2
    server.post(f"/jobs/{job['id']}/ack", {"token": job["token"], "result": ["a", "b"]})
    good, bad = pull(server, "pages")
    (read,) = server.get(f"/jobs/{good['id']}/inputs").json["data"]
    assert (read["id"], read["state"], read["result"]) == (job["id"], "completed", ["a", "b"])
    server.post(f"/jobs/{good['id']}/ack", {"token": good["token"]})
    server.post(f"/jobs/{bad['id']}/fail", {"token": bad["token"], "error": "gone"})
    shown = server.get(f"/workflows/{made['id']}").json["data"]
    assert (shown["state"], shown["total"], shown["failed"]) == ("failed", 4, 2)
    assert [step["state"] for step in shown["steps"]] == ["completed", "failed", "failed"]
    assert server.post(f"/workflows/{made['id']}/retry").json["data"]["state"] == "running"
    assert server.post(f"/workflows/{made['id']}/cancel").json["data"]["state"] == "cancelled"
    (listed,) = server.get("/workflows?state=cancelled&name=nightly").json["data"]
    assert (listed["id"], listed["steps"]) == (made["id"], 3)
    assert len(server.get(f"/jobs?workflow={made['id']}").json["data"]["jobs"]) == 4


def test_a_graph_that_cannot_be_is_refused_whole_and_says_where(server: HttpServer):
    for steps, status, named in (
        ([], 400, "step"),
        ([{"queue": "q"}], 400, "step 0"),
        ([{"queue": "q", "jobs": [{"data": 1}], "after": ["nobody"]}], 422, "'nobody'"),
        ([{"queue": "q", "jobs": [{"data": 1}], "after": [7]}], 422, "7"),
        ([{"queue": "q", "jobs": [{"data": 1}], "key": "a", "after": ["a"]}], 422, "a"),
        ([{"queue": "q", "jobs": [{"data": 1}], "after": [{"step": 0, "on_failure": "cry"}]}], 400, "on_failure"),
        ([{"queue": "no queue", "jobs": [{"data": 1}]}], 400, "no queue"),
        ([{"queue": "q", "jobs": [{"data": 1}], "unique_key": "k"}], 400, "unique_key"),
    ):
        refused = server.post("/workflows", {"steps": steps})
        assert (refused.status, named in refused.json["error"]) == (status, True), refused.json
    assert server.get("/workflows").json["data"] == []


def test_a_workflow_is_pushed_once_with_a_request_key_and_listed_in_pages(server: HttpServer):
    body = {"steps": [{"queue": "q", "jobs": [{"data": 1}]}], "requestKey": "once"}
    first, again = (server.post("/workflows", body).json["data"] for _ in range(2))
    assert (again["id"], again["created"]) == (first["id"], False)
    server.post("/workflows", {"steps": body["steps"]})
    page = server.get("/workflows?limit=1").json
    rest = server.get(f"/workflows?after={page['next_after']}").json
    assert [one["id"] for one in rest["data"]] == [first["id"]]


def test_what_is_not_there_is_not_found(server: HttpServer):
    for method, path in (
        ("GET", "/workflows/6400"),
        ("POST", "/workflows/6400/cancel"),
        ("POST", "/workflows/6400/retry"),
        ("GET", "/jobs/6400/inputs"),
    ):
        assert server.ask(method, path).status == 404
