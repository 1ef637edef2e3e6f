"""Health, numbers, workers, hooks and the description of the API."""

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoker.model import commands as c
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from stoker.server.config.tree import MetricsSettings
from stoker.server.dashboard.routes import ROUTES
from stoker.server.http.examples import EXAMPLES
from stoker.server.http.metrics import METRICS, QUEUES_MAX
from stoker.server.http.openapi import describe
from stoker.server.http.paths import describe as described
from stoker.server.http.router import HttpRouter
from stoker.wire.native_commands import ROWS
from stoker.worker.worker import Worker
from tests.http.support import TIMEOUT_S, HttpServer
from tests.worker.running import Beside, handler

Serve = Callable[..., HttpServer]


def test_health_is_open_to_everybody(serve: Serve):
    server = serve(auth=AuthSettings(tokens=("secret",)))
    for path in ("/health", "/ready"):
        assert server.get(path).json["ok"] is True
    assert server.get("/health", host="load-balancer.example").status == 200


def test_only_clients_that_are_known_read_why_a_server_is_not_ready(serve: Serve):
    server = serve(auth=AuthSettings(tokens=("secret",)))
    server.run(server.server.dispatcher.stop_dispatching())
    assert "reason" not in server.get("/ready").json
    assert "reason" not in server.get("/ready", authorization="Bearer wrong").json
    assert "shutting down" in server.get("/ready", authorization="Bearer secret").json["reason"]


def test_a_server_that_stops_is_not_ready(server: HttpServer):
    server.run(server.server.dispatcher.stop_dispatching())
    answer = server.get("/ready")
    assert (answer.status, answer.json["stopping"], answer.headers["retry-after"]) == (503, True, "5")
    assert "shutting down" in answer.json["reason"]
    assert server.get("/health").status == 200
    pull = server.post("/queues/a/pull")
    assert (pull.status, pull.json["code"]) == (503, "shutting_down")


# --- numbers -----------------------------------------------------------------------------------------


def families(server: HttpServer, **headers: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    answer = server.get("/metrics", **headers)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(answer.body.decode())
    }


def test_the_metrics_are_those_that_are_documented(server: HttpServer):
    server.post("/queues/a/jobs", {"data": 1})
    found = families(server)
    assert set(found) == {metric.name.removesuffix("_total") for metric in METRICS}
    for metric in METRICS:
        for labels, _ in found[metric.name.removesuffix("_total")]:
            assert set(labels) - {"le"} == set(metric.labels), metric.name


def test_the_metrics_tell_what_has_happened(server: HttpServer):
    server.post("/queues/a/jobs", {"data": 1})
    server.get("/jobs/640")
    found = families(server)
    assert ({"queue": "a", "state": "waiting"}, 1.0) in found["stoker_queue_jobs"]
    assert ({"queue": "a"}, 1.0) in found["stoker_queue_backlog"]
    assert ({"step": "pushed"}, 1.0) in found["stoker_job_steps"]
    assert ({"command": "push", "outcome": "ok"}, 1.0) in found["stoker_commands"]
    assert ({"command": "get_job", "outcome": "not_found"}, 1.0) in found["stoker_commands"]
    assert ({"status": "404"}, 1.0) in found["stoker_http_requests"]
    assert ({"transport": "http"}, 1.0) in found["stoker_connections"]


def test_openmetrics_is_there_for_whoever_prefers_it(server: HttpServer):
    answer = server.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


def test_series_are_bounded(server: HttpServer):
    for number in range(QUEUES_MAX + 20):
        server.execute(c.Push(f"q{number}", b""))
    queues = {labels["queue"] for labels, _ in families(server)["stoker_queue_jobs"]}
    assert len(queues) == QUEUES_MAX


def test_tenants_are_labels_only_on_request(serve: Serve):
    quiet, telling = serve(), serve(metrics=MetricsSettings(tenant_labels=True))
    for server in (quiet, telling):
        server.execute(c.Push("a", b""), "secret-tenant")
    assert "secret-tenant" not in quiet.get("/metrics").body.decode()
    assert ({"tenant": "secret-tenant", "queue": "a", "state": "waiting"}, 1.0) in families(telling)[
        "stoker_queue_jobs"
    ]


def test_numbers_over_all_tenants_are_for_the_operator(serve: Serve, tmp_path):
    tokens = tmp_path / "tokens"
    tenants = create_token(tokens, name="t", tenant="t", now=1.0).text
    operators = create_token(tokens, name="o", tenant="*", now=1.0).text
    server = serve(auth=AuthSettings(tokens_file=str(tokens)))
    for path in ("/metrics", "/metrics/prometheus", "/metrics/history"):
        assert server.get(path).status == 401
        assert server.get(path, authorization=f"Bearer {tenants}").status == 403
        assert server.get(path, authorization=f"Bearer {operators}").status == 200


def test_the_history_has_points(server: HttpServer):
    point = server.get("/metrics/history").json["data"][0]
    assert point["total_pushed"] == 0
    assert point["timestamp"] > 0


# --- workers and hooks -------------------------------------------------------------------------------


def test_a_worker_is_shown_with_its_real_concurrency(server: HttpServer):
    """It writes what it can do into the key-value store; the list has shown 0."""

    async def run() -> None:
        pass

    worker = Worker(f"http://{server.where}", [handler(run)], queues=["a", "b"], concurrency=7, id="seven")
    with Beside(worker):
        shown: dict[str, Any] = {}
        until = time.monotonic() + TIMEOUT_S
        while not shown.get("concurrency") or not shown["pulls"]:
            assert time.monotonic() < until, shown
            shown = next((one for one in server.get("/workers").json["data"] if one["id"] == "seven"), {})
    assert (shown["concurrency"], sorted(shown["queues"])) == (7, ["a", "b"])
    assert shown["pulls"] > 0
    assert server.get("/workers", stoker_tenant="t").json["data"] == []


def test_workers_are_known_by_their_pulls_and_by_what_they_say(server: HttpServer):
    server.post("/queues/a/pull", {"worker": "puller"})
    server.post("/workers/talker/heartbeat", {"queues": ["a", "b"], "concurrency": 4})
    server.post("/workers/elsewhere/heartbeat", stoker_tenant="t")
    workers = {one["id"]: one for one in server.get("/workers").json["data"]}
    assert set(workers) == {"puller", "talker"}
    assert (workers["puller"]["pulls"], workers["puller"]["queues"]) == (1, ["a"])
    assert (workers["talker"]["concurrency"], workers["talker"]["queues"]) == (4, ["a", "b"])
    assert server.post(f"/workers/{'w' * 300}/heartbeat").status == 400
    assert server.post("/workers/w/heartbeat", b"[]").status == 400


def test_what_another_service_posts_becomes_a_job(server: HttpServer):
    job = server.post("/webhooks/incoming/hooks", b'{"event": "paid"}').json["data"]["id"]
    assert server.get(f"/jobs/{job}").json["data"]["job"]["data"] == {"event": "paid"}
    text = server.post("/webhooks/incoming/hooks", b"a=1&b=2").json["data"]["id"]
    assert server.execute(c.GetJob(text)).payload == b"a=1&b=2"


def test_a_hook_that_is_sent_twice_makes_one_job(server: HttpServer):
    ids = {server.post("/webhooks/incoming/a", b"1", idempotency_key="k").json["data"]["id"] for _ in range(2)}
    assert len(ids) == 1


def test_a_hook_needs_a_token_that_may_produce(serve: Serve):
    server = serve(auth=AuthSettings(tokens=("secret",)))
    assert server.post("/webhooks/incoming/a", b"1").status == 401
    assert server.post("/webhooks/incoming/a", b"1", authorization="Bearer secret").status == 200
    basic = "Basic OnNlY3JldA=="  # the password of a URL: https://:secret@queue.example/
    assert server.post("/webhooks/incoming/a", b"1", authorization=basic).status == 200


# --- the description ---------------------------------------------------------------------------------


def test_the_description_is_served(server: HttpServer):
    answer = server.get("/openapi.json")
    assert answer.json["openapi"] == "3.1.0"
    assert answer.json["paths"]["/api/call/push"]["post"]["operationId"] == "call_push"


def test_every_path_is_described(server: HttpServer):
    (listener,) = server.server._listeners
    front: HttpRouter = listener._door.config.app  # type: ignore[attr-defined]
    pages = {(route.method, route.path) for route in ROUTES}  # for people: the dashboard
    served = {f"{method} {path}" for method, path in described(front.paths) if (method, path) not in pages}
    paths = describe()["paths"]
    told = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    about = {"GET /openapi.json", "GET /docs", "GET /docs/style.css"}
    assert served - told == about | {"POST /api/call/{name}"}
    assert told - served == {
        *(f"POST /api/call/{name}" for name in ROWS),
        *(f"GET {path}" for path in ("/events", "/events/{queue}", "/events/job/{id}")),
    }


def test_every_reference_of_the_description_leads_somewhere():
    text = msgspec.json.encode(describe()).decode()
    schemas = describe()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= schemas.keys()
    names = [operation["operationId"] for methods in describe()["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("place", EXAMPLES, ids=" ".join)
def test_an_example_is_true(server: HttpServer, place: tuple[str, str]):
    method, path = place
    server.post("/queues/mail/jobs/batch", {"jobs": [{"data": 1}, {"data": 2}]})
    (job,) = server.get("/queues/mail/jobs").json["data"]
    answer = server.ask(
        method, path.replace("{queue}", "mail").replace("{id}", str(job["id"])), EXAMPLES[place].get("body")
    )
    assert answer.status == 200, answer.body
    assert set(EXAMPLES[place].get("answer", {})) <= set(answer.json)
