"""`stoker serve --broker redis://...` as people start it: processes that know nothing of each other."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import stoker
from stoker.brokers.remote.settings import RemoteSettings
from stoker.client.sync import Client
from tests.redis.servers import RedisServer

SOON_S = 60.0
TRANSPORTS = ("tcp", "unix", "http", "grpc")
PATIENT = "?retry_s=60"
QUICK = "?retry_s=0&connect_timeout_s=60"
"""For clients that hear at once what a server says, however busy the machine is."""
NET = "net_ms=600000"
"""The net of waiting calls is ten minutes: nothing may depend on it."""


class Node:
    """One server, with every transport."""

    def __init__(self, folder: Path, server: RedisServer, *words: str, url: str = "", **settings: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        environment |= {"STOKER_WEBHOOKS__ALLOW": "127.0.0.0/8"}
        environment |= {"STOKER_" + name.upper(): value for name, value in settings.items()}
        listen = [word for name in ("tcp", "http", "grpc") for word in (f"--{name}", "127.0.0.1:0")]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stoker", "serve", "--broker", url or f"{server.url}?{NET}", *listen,
                 "--unix", str(folder / "node.sock"), *words],
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder, env=environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline() for _ in range(5)]
        assert all(self.lines), self.log
        where = {line.split()[0]: line.split()[1].removeprefix("http://") for line in self.lines}
        self.urls = {name: f"{name}://{where[name]}" for name in TRANSPORTS}
        self.port = int(where["http"].rpartition(":")[2])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def connect(self, transport: str = "tcp", tenant: str = "default", token: str = "", query: str = PATIENT) -> Client:
        url = self.urls[transport] + query
        return stoker.connect(url, tenant=tenant, settings=RemoteSettings(token=token or None))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status of HTTP, and the answer: JSON, or text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON_S)
        try:
            sent = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, sent, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            text = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, msgspec.json.decode(text) if is_json else text.decode()
        finally:
            connection.close()

    def terminate(self) -> int:
        """With SIGTERM: its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SOON_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(holds: Callable[[], Any]) -> Any:
    """What a condition gives, once it gives something."""
    end = time.monotonic() + SOON_S
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return found
