"""An S3 server for the tests: moto, in a process of its own on loopback, that does one thing at a time.

moto's own threads check whether an object exists and write it later, so two conditional writes at once can both win.
Behind a lock one wins, as in S3. With `--careless` the server ignores the condition, as older stores do. With `--lossy`
the answer to a conditional write gets lost: the object is written, and the client is told of an error of the server.
With `--paired` the first version of the table `jobs` waits until two writers want to make it: then both have seen that
it is not there.

`python -m tests.s3_server` prints the endpoint, and ends when its input does.
"""

import http.client
import os
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

START_S = 60
CARELESS, LOSSY, PAIRED = "--careless", "--lossy", "--paired"
CONTENDED = "/jobs/_delta_log/00000000000000000001.json"
CREDENTIAL = "Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"


class S3Server:
    """A server that runs until the context ends."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self.endpoint = ""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.s3_server", *self._flags]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, **pipes)
        deadline = threading.Timer(START_S, self._process.kill)
        deadline.start()
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        deadline.cancel()
        assert self.endpoint, f"the S3 server has not started within {START_S} s, or ended: see its error output"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def options(self) -> dict[str, str]:
        """The storage options with which it is reached."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """One request as it is, without the client that is tested."""
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=START_S)
        signed = {"Authorization": f"AWS4-HMAC-SHA256 {CREDENTIAL}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, signed | named)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def new_bucket(self) -> str:
        name = f"lake-{uuid.uuid4().hex}"
        status, said = self.request("PUT", f"/{name}")
        assert status == 200, said
        return name


Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def one_by_one(application: Application, flags: list[str]) -> Application:
    lock = threading.Lock()
    lost: set[str] = set()
    pair = threading.Barrier(2, timeout=START_S)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        is_conditional = "HTTP_IF_NONE_MATCH" in environ
        if CARELESS in flags:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if PAIRED in flags and is_conditional and environ["PATH_INFO"].endswith(CONTENDED):
            pair.wait()
        with lock:
            if LOSSY in flags and is_conditional and environ["PATH_INFO"] not in lost:
                lost.add(environ["PATH_INFO"])
                b"".join(application(environ, lambda *_: None))
                start("500 Internal Server Error", [("Content-Length", "0")])
                return []
            return [b"".join(application(environ, start))]

    return answer


def serve() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others deprecate is not ours to fix
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            pass

    moto: Any = DomainDispatcherApplication(create_backend_app)
    app = one_by_one(moto, sys.argv)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201 (the parent reads it)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
