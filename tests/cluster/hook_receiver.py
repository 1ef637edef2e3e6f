"""A receiver of webhooks on loopback that is not reliable: some events it refuses, some it takes without an answer."""

import http.server
import json
import threading
from collections import defaultdict
from typing import Any

FAILS_EVERY, IS_SILENT_EVERY = 7, 11

Happening = tuple[str, int, int, int]
"""What a webhook tells of: the kind of event, the job, its attempt, and when."""


class HookReceiver:
    """Notes the ids under which it was told of each event."""

    def __init__(self) -> None:
        self.told: dict[Happening, set[str]] = defaultdict(set)
        """The ids of each event, also of those that were not confirmed."""
        self.confirmed: set[Happening] = set()
        """Events that were answered with 200."""
        self.happenings: dict[str, set[Happening]] = defaultdict(set)
        """The events of each id."""
        self.posts = 0
        self._lock = threading.Lock()
        noted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = noted.note(self.headers["x-stoker-delivery"], json.loads(body))
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def note(self, delivery: str, body: dict[str, Any]) -> int | None:
        """The status to answer with; None for no answer."""
        assert body["id"] == delivery
        happening = (body["event"], body["job_id"], body["attempt"], body["timestamp"])
        with self._lock:
            self.posts += 1
            self.told[happening].add(delivery)
            self.happenings[delivery].add(happening)
            if self.posts % FAILS_EVERY == 0:
                return 500
            if self.posts % IS_SILENT_EVERY == 0:
                return None
            self.confirmed.add(happening)
            return 200

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
