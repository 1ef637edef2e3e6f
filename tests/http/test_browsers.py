"""A page of another site cannot make a browser change anything here."""

from collections.abc import Callable

import pytest

from stoker.model import commands as c
from stoker.server.auth.settings import AuthSettings
from stoker.server.http.routes import ROUTES, Route
from tests.http.support import HttpServer

Serve = Callable[..., HttpServer]
CHANGING = [route for route in ROUTES if route.method != "GET"]
WEBSOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: %b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
OTHERS = (
    "/api/call",
    "/api/call/push",
    "/api/command",
    "/queues/a/jobs/bulk",
    "/webhooks/incoming/a",
    "/workers/w/heartbeat",
)


@pytest.mark.parametrize("route", CHANGING, ids=lambda route: f"{route.method} {route.path}")
def test_a_cross_site_request_changes_nothing(server: HttpServer, route: Route):
    path = route.path.replace("{queue}", "a").replace("{id}", "64").replace("{name}", "n")
    body = {"data": 1} if route.has_body else None
    for headers in (
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
    ):
        answer = server.ask(route.method, path, body, **headers)
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), headers
    assert server.execute(c.ListQueues()).names == []


@pytest.mark.parametrize("path", OTHERS)
def test_nor_do_the_paths_that_are_in_no_table(server: HttpServer, path: str):
    assert server.post(path, {}, origin="null").status == 403
    assert server.post(path, {}, sec_fetch_site="cross-site").status == 403
    assert server.execute(c.ListQueues()).names == []


def test_the_servers_own_pages_and_programs_may(server: HttpServer):
    own = f"http://127.0.0.1:{server.port}"
    assert server.post("/queues/a/jobs", {"data": 1}, origin=own, sec_fetch_site="same-origin").status == 200
    assert server.post("/queues/a/jobs", {"data": 1}, sec_fetch_site="none").status == 200
    assert server.post("/queues/a/jobs", {"data": 1}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "none", "sec_fetch_mode": "navigate"},
        {"sec_fetch_mode": "no-cors"},
        {"sec_purpose": "prefetch"},
        {"accept": "text/html,application/xhtml+xml"},
        {"accept": "image/avif,image/webp"},
        {"origin": "http://evil.example"},
    ],
)
def test_a_browser_that_loads_a_page_pulls_no_jobs(server: HttpServer, headers: dict[str, str]):
    job = server.execute(c.Push("a", b"")).id
    assert server.get("/queues/a/jobs", **headers).status == 403
    assert server.execute(c.GetJob(job)).state == "waiting"


def test_asking_for_a_head_pulls_nothing(server: HttpServer):
    job = server.execute(c.Push("a", b"")).id
    assert server.ask("HEAD", "/queues/a/jobs").status == 405
    assert server.execute(c.GetJob(job)).state == "waiting"
    assert server.ask("HEAD", "/health").status == 200


def test_a_method_is_what_it_is(server: HttpServer):
    server.execute(c.Push("a", b""))
    for name in ("x_http_method_override", "x_method_override", "x_http_method"):
        assert server.get("/queues/a/count", **{name: "DELETE"}).json["data"] == 1
    assert server.get("/queues/a/obliterate?_method=DELETE").status == 405
    assert server.execute(c.ListQueues()).names == ["a"]


def test_a_name_that_leads_here_from_elsewhere_is_not_ours(server: HttpServer):
    """DNS rebinding: a page's own name is made to mean this machine, and its requests look same-origin."""
    assert server.get("/queues", host="evil.example").status == 403
    assert server.post("/queues/a/jobs", {"data": 1}, host="evil.example", origin="http://evil.example").status == 403
    for host in ("localhost", f"localhost:{server.port}", f"[::1]:{server.port}", "127.0.0.1"):
        assert server.get("/queues", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "127.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80.evil.example",
        "127.",
        "localhost.evil.example",
        "localhost@evil.example",
        "[::1].evil.example",
        "[::1",
        "::1",
        "::ffff:127.0.0.1.evil.example",
        "10.0.0.1",
        "",
    ],
)
def test_a_name_that_begins_like_an_address_of_this_machine_is_not_one(server: HttpServer, host: str):
    """Anybody can have the name `127.evil.example` lead here: an address is parsed, and never known by its prefix."""
    for path in ("/queues", "/events"):
        assert server.get(path, host=host).status == 403
    assert server.post("/queues/a/jobs", {"data": 1}, host=host, origin=f"http://{host}").status == 403
    got = server.raw(WEBSOCKET % host.encode())
    assert got.startswith(b"HTTP/1.1 403")
    assert server.execute(c.ListQueues()).names == []


@pytest.mark.parametrize("host", ["127.0.0.2:80", "LOCALHOST", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]:6790"])
def test_every_way_to_write_this_machine_is(server: HttpServer, host: str):
    assert server.get("/queues", host=host).status == 200


def test_with_tokens_any_name_will_do(serve: Serve):
    server = serve(auth=AuthSettings(tokens=("secret",)))
    assert server.get("/queues", host="queue.example", authorization="Bearer secret").status == 200


def test_cors_is_off(server: HttpServer):
    answer = server.ask("OPTIONS", "/queues", origin="https://dash.example", access_control_request_method="GET")
    assert answer.status == 405
    assert "access-control-allow-origin" not in server.get("/queues", origin="https://dash.example").headers


def test_a_named_origin_may_use_the_api(serve: Serve):
    server = serve(origins=("https://dash.example",))
    asked = server.ask("OPTIONS", "/queues/a/jobs", origin="https://dash.example")
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "https://dash.example")
    pushed = server.post("/queues/a/jobs", {"data": 1}, origin="https://dash.example", sec_fetch_site="cross-site")
    assert (pushed.status, pushed.headers["access-control-allow-origin"]) == (200, "https://dash.example")
    other = server.post("/queues/a/jobs", {"data": 1}, origin="https://evil.example")
    assert other.status == 403
    assert "access-control-allow-origin" not in other.headers


def test_the_documentation_runs_nothing_and_is_framed_by_nobody(server: HttpServer):
    page = server.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    text = page.body.decode()
    assert "<script" not in text
    assert "style=" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert server.get("/docs/style.css").headers["content-type"].startswith("text/css")
