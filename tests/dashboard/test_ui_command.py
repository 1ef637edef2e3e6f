"""`stoker ui` over a data directory and over a remote server, and the address that servers print."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import stoker
from stoker.server.dashboard.routes import ROUTES
from tests.dashboard.conftest import Tokens
from tests.dashboard.visitor import Listener, Visitor
from tests.http.support import TIMEOUT_S


@contextmanager
def started(folder: Path, *arguments: str, **environment: str) -> Iterator[dict[str, str]]:
    """The lines that a command of the command line prints up to the address of its dashboard, by their first word."""
    command = [sys.executable, "-m", "stoker.cli.main", *arguments]
    names = {"PATH": "/usr/bin:/bin", **environment}
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=names)
    try:
        assert process.stdout is not None
        lines: dict[str, str] = {}
        for line in process.stdout:
            lines[line.split()[0]] = line.split()[1]
            if "ui" in lines:
                yield lines
                break
        else:
            raise AssertionError(f"{arguments} ended with {process.wait()} and named no dashboard")
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """The address of the dashboard that a command of the command line serves."""
    with started(folder, *arguments, **environment) as lines:
        yield lines["ui"]


def seen(address: str, path: str) -> tuple[int, str]:
    host = re.match(r"http://([^/]+)", address)
    assert host is not None
    connection = HTTPConnection(host[1], timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def register(address: str, token: str) -> None:
    """Have a server post events to a site that is not there."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_S)
    try:
        body = json.dumps({"url": "https://example.com/hook", "events": ["failed"]})
        connection.request("POST", "/webhooks", body, {"authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 201
    finally:
        connection.close()


EVERY_PAGE = [route.path for route in ROUTES if route.method == "GET" and "{" not in route.path]
MENU = re.compile(r'<a href="(/ui/[a-z]*)"')


def check_pages(address: str, missing: set[str]) -> None:
    """Every page answers, those that are missing say so, and the menu has the others only."""
    statuses = {path: seen(address, path)[0] for path in EVERY_PAGE if path != "/ui/live"}
    assert {path for path, status in statuses.items() if status == 501} == missing
    assert [path for path, status in statuses.items() if status >= 500 and path not in missing] == []
    menu = set(MENU.findall(seen(address, "/ui/")[1]))
    assert menu & missing == set()
    assert {path: seen(address, path)[0] for path in menu} == dict.fromkeys(menu, 200)


def test_a_data_directory_has_a_dashboard(tmp_path: Path):
    with stoker.connect(f"sqlite:///{tmp_path}/data") as client:
        job = client.push("mail", b'{"to": "ada"}').id
    with running(tmp_path, "ui", "--url", "sqlite:///data", "--port", "0") as address:
        overview = seen(address, "/ui/")[1]
        assert "No worker pulls from mail" in overview
        assert "ada" in seen(address, f"/ui/jobs/{job}")[1]
        assert f"/ui/jobs/{job}" in seen(address, "/ui/events?queue=mail&kind=pushed")[1]
        check_pages(address, {"/ui/webhooks", "/ui/tenants", "/ui/server"})
        connection = seen(address, "/ui/connection")[1]
        assert "sqlite:///data" in connection
        assert "a server posts them" in connection


def test_a_remote_server_has_a_dashboard_with_the_rights_of_the_token(tmp_path: Path, tokens: Tokens):
    token = tokens.make(tenant="acme", permissions={"read", "produce"})
    off = ("--grpc", "off", "--http", "127.0.0.1:0", "--tokens-file", str(tokens.path))
    served = ("serve", "--data", "served", "--unix", "q.sock", "--tcp", "off", *off)
    with running(tmp_path, *served):
        url = f"unix:///{tmp_path}/q.sock"
        with stoker.connect(url, tenant="acme", settings=stoker.RemoteSettings(token=token)) as client:
            for number in range(6):
                client.push(f"mail-{number}", b"")
        names = {"STOKER_TOKEN": token}
        with running(tmp_path, "ui", "--url", url, "--port", "0", **names) as address:
            assert "mail-0" in seen(address, "/ui/queues")[1]
            for number in range(6):  # each in the shard that its tenant and name say
                assert f"mail-{number}</a>" in seen(address, f"/ui/events?queue=mail-{number}")[1]
            assert "Pause" not in seen(address, "/ui/queue?name=mail-0")[1]
            assert seen(address, "/ui/webhooks")[0] == 403
            connection = seen(address, "/ui/connection")[1]
            assert "produce, read" in connection
            assert "this token may not admin" in connection
            assert "acme" in connection
            assert token not in connection


@pytest.mark.parametrize("transport", ["http", "tcp", "grpc"])
def test_the_webhooks_of_a_remote_server_are_shown_and_changed(transport: str, tmp_path: Path, tokens: Tokens):
    token = tokens.make()
    listeners = [word for name in ("tcp", "http", "grpc") for word in (f"--{name}", "127.0.0.1:0")]
    with started(tmp_path, "serve", *listeners, "--tokens-file", str(tokens.path)) as lines:
        url = f"{transport}://" + lines[transport].removeprefix("http://")
        register(lines["ui"], token)
        with running(tmp_path, "ui", "--url", url, "--port", "0", STOKER_TOKEN=token) as address:
            visitor = Visitor(Listener(urlsplit(address).port or 0))
            assert "example.com/hook" in visitor.get("/ui/webhooks").text
            found = re.search(r"webhook-delete\?id=([^\"]+)", visitor.get("/ui/webhooks").text)
            assert found is not None
            assert visitor.post("/ui/act/webhook-delete", {"id": found[1]}).status == 303
            assert "No webhooks" in visitor.get("/ui/webhooks").words
            check_pages(address, {"/ui/tenants", "/ui/server"})


def test_a_read_only_dashboard_of_a_remote_server_shows_all_pages(tmp_path: Path):
    with (
        running(tmp_path, "serve", "--tcp", "off", "--grpc", "off", "--http", "127.0.0.1:0") as served,
        running(tmp_path, "ui", "--read-only", "--url", served.removesuffix("/ui/"), "--port", "0") as address,
    ):
        check_pages(address, {"/ui/tenants", "/ui/server"})
        assert served in seen(address, "/ui/connection")[1]


def test_a_server_that_goes_away_is_a_page_and_not_a_crash(tmp_path: Path):
    with ExitStack() as stack:
        with running(tmp_path, "serve", "--tcp", "off", "--grpc", "off", "--http", "127.0.0.1:0") as served:
            url = f"{served.removesuffix('/ui/')}?retry_s=0"
            address = stack.enter_context(running(tmp_path, "ui", "--url", url, "--port", "0"))
        for path in ("/ui/", "/ui/events", "/ui/webhooks"):
            status, text = seen(address, path)
            assert (status, "answer" in text) == (503, True)
        assert seen(address, "/ui/connection")[0] == 200
