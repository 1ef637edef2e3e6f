"""The dashboard of a server in two processes: a login in one is a login in both, and so is a logout."""

from pathlib import Path
from urllib.parse import urlsplit

import stoker
from tests.dashboard.conftest import Tokens
from tests.dashboard.test_ui_command import running
from tests.dashboard.visitor import Listener, Visitor

CONNECTIONS = 16
"""The system chooses a process for each connection: so many reach both."""


def test_a_session_and_its_changes_hold_in_all_processes(tmp_path: Path, tokens: Tokens):
    token = tokens.make()
    off = ("--tcp", "off", "--grpc", "off", "--http", "127.0.0.1:0")
    with running(
        tmp_path, "serve", "--data", "d", "--processes", "2", *off, "--tokens-file", str(tokens.path)
    ) as where:
        port = urlsplit(where).port
        assert port is not None
        queues = [f"queue-{number}" for number in range(6)]  # in shards of both processes
        with stoker.connect(f"http://127.0.0.1:{port}", settings=stoker.RemoteSettings(token=token)) as client:
            for queue in queues:
                client.push(queue, b"")
        visitor = Visitor(Listener(port))
        assert visitor.login(token).status == 303
        for number in range(CONNECTIONS):
            queue = queues[number % len(queues)]
            assert visitor.get("/ui/").status == 200
            assert visitor.post("/ui/act/pause", {"queue": queue}).status == 303
            page = visitor.get("/ui/queues").words
            assert [name for name in queues if name in page] == queues
            assert f"{queue} paused" in page
        stolen = dict(visitor.cookies)
        assert visitor.post("/ui/logout").status == 303
        visitor.cookies = stolen
        assert [visitor.get("/ui/").status for _ in range(CONNECTIONS)] == [303] * CONNECTIONS
