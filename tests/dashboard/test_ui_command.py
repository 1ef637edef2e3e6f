"""`stoker ui` over a data directory and over a remote server, and the address that servers print."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import stoker
from tests.dashboard.conftest import Tokens
from tests.http.support import TIMEOUT_S


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """The address of the dashboard that a command of the command line serves."""
    command = [sys.executable, "-m", "stoker.cli.main", *arguments]
    names = {"PATH": "/usr/bin:/bin", **environment}
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=names)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ui "):
                yield line.split()[1]
                break
        else:
            raise AssertionError(f"{arguments} ended with {process.wait()} and named no dashboard")
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()


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


def test_a_data_directory_has_a_dashboard(tmp_path: Path):
    with stoker.connect(f"sqlite:///{tmp_path}/data") as client:
        job = client.push("mail", b'{"to": "ada"}').id
    with running(tmp_path, "ui", "--url", "sqlite:///data", "--port", "0") as address:
        overview = seen(address, "/ui/")[1]
        assert "No worker pulls from mail" in overview
        assert "/ui/events" not in overview
        assert "in the server's own dashboard" in overview
        assert "ada" in seen(address, f"/ui/jobs/{job}")[1]
        assert seen(address, "/ui/events")[0] == 501


def test_a_remote_server_has_a_dashboard_with_the_rights_of_the_token(tmp_path: Path, tokens: Tokens):
    token = tokens.make(tenant="acme", permissions={"read", "produce"})
    off = ("--grpc", "off", "--http", "127.0.0.1:0", "--tokens-file", str(tokens.path))
    served = ("serve", "--data", "served", "--unix", "q.sock", "--tcp", "off", *off)
    with running(tmp_path, *served):
        url = f"unix:///{tmp_path}/q.sock"
        with stoker.connect(url, tenant="acme", settings=stoker.RemoteSettings(token=token)) as client:
            client.push("mail", b"")
        names = {"STOKER_TOKEN": token}
        with running(tmp_path, "ui", "--url", url, "--tenant", "acme", "--port", "0", **names) as address:
            assert "mail" in seen(address, "/ui/queues")[1]
