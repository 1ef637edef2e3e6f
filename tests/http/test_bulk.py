"""Many jobs in one request, one a line."""

import http.client
from collections.abc import Callable, Iterator

import pytest

from stoker.model import commands as c
from stoker.model.limits import Limits
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.config.tree import ServerLimits
from tests.http.support import HttpServer

Serve = Callable[..., HttpServer]
PATH = "/queues/a/jobs/bulk"


def payloads(server: HttpServer) -> list[bytes]:
    return list(server.execute(c.Pull(["a"], 10_000)).payloads)


def test_each_line_becomes_a_job(server: HttpServer):
    lines = [b'{"n": %d}' % number for number in range(1_000)]
    answer = server.post(PATH, b"\n".join(lines) + b"\n")
    assert answer.status == 200
    assert (answer.json["success"], answer.json["data"]["created"]) == (True, 1_000)
    assert payloads(server) == lines


def test_a_batch_is_never_larger_than_the_limit(serve: Serve):
    server = serve(limits=Limits(batch_jobs_max=10))
    answer = server.post(PATH, b"1\n" * 25, accept="application/x-ndjson")
    *batches, summary = answer.lines
    assert [(one["line"], one["lines"]) for one in batches] == [(0, 10), (10, 10), (20, 5)]
    assert summary["data"]["created"] == 25


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\n\n"])
def test_lines_may_end_as_they_like(server: HttpServer, ending: bytes):
    assert server.post(PATH, b"\n1\r\n\n2" + ending).json["data"]["created"] == 2
    assert payloads(server) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("body", "refused", "taken"),
    [
        (b"1\nnope\n3", [1], [b"1", b"3"]),
        (b"1,2\n3", [0], [b"3"]),
        (b"1,2\n[3\n4]", [0, 1, 2], []),
        (b"1],[2\n3", [0], [b"3"]),
        (b'"\xff"\n3', [0], [b"3"]),
        (b"[" * 5_000 + b"\n3", [0], [b"3"]),
        (b" 1 \n\t2", [], [b"1", b"2"]),
    ],
)
def test_a_line_that_is_no_json_is_refused_alone(
    server: HttpServer, body: bytes, refused: list[int], taken: list[bytes]
):
    answer = server.post(PATH, body)
    assert answer.status == 200
    assert [one["line"] for one in answer.json["data"]["refusals"]] == refused
    assert answer.json["success"] is not refused or not refused
    assert payloads(server) == taken


def test_options_for_all_lines_stand_in_the_query(server: HttpServer):
    assert server.post(f"{PATH}?priority=7&maxAttempts=1&tags=x,y", b"1\n2").status == 200
    options = server.execute(c.Pull(["a"], 1)).runs[0].options
    assert (options.priority, options.max_attempts, options.tags) == (7, 1, ("x", "y"))
    assert server.post(f"{PATH}?priority=high", b"1").status == 400
    assert server.post(f"{PATH}?nonsense=1", b"1").status == 400


def test_lines_may_be_jobs_with_options_of_their_own(server: HttpServer):
    body = b'{"data":1,"priority":4}\n{"data":2,"customId":"mine"}\n{"nope":3}\n{"data":4,"delay":"x"}'
    data = server.post(f"{PATH}?lines=jobs", body).json["data"]
    assert data["created"] == 2
    assert [one["line"] for one in data["refusals"]] == [2, 3]
    assert payloads(server) == [b"1", b"2"]
    assert server.execute(c.FindJob("mine")).payload == b"2"


def test_the_engines_refusals_name_the_line(serve: Serve):
    server = serve(limits=Limits(payload_bytes_max=10))
    data = server.post(PATH, b"1\nnope\n" + b"1" * 11 + b"\n4").json["data"]
    assert [(one["line"], one["code"]) for one in data["refusals"]] == [(1, "invalid"), (2, "limit_exceeded")]
    assert payloads(server) == [b"1", b"4"]


def test_sent_again_with_its_key_it_makes_no_second_job(serve: Serve):
    server = serve(limits=Limits(batch_jobs_max=10))
    for _ in range(2):
        assert server.post(f"{PATH}?request_key=k", b"1\n" * 25).json["data"]["lines"] == 25
    assert len(payloads(server)) == 25


def test_lines_arrive_in_any_pieces(server: HttpServer):
    def pieces() -> Iterator[bytes]:
        text = b"".join(b'{"n":%d}\n' % number for number in range(200))
        for at in range(0, len(text), 7):
            yield text[at : at + 7]

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", PATH, pieces(), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert payloads(server) == [b'{"n":%d}' % number for number in range(200)]


def test_jobs_are_there_before_the_last_line_has_come(server: HttpServer):
    with server.socket() as connected:
        connected.sendall(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n1\n" % PATH.encode())
        assert server.execute(c.Pull(["a"], wait_ms=15_000)).payloads == [b"1"]
        connected.sendall(b"2\n")
        assert server.execute(c.Pull(["a"], wait_ms=15_000)).payloads == [b"2"]


def test_a_line_without_end_is_cut_off(serve: Serve):
    server = serve(server=ServerLimits(http_line_bytes_max=1_000, http_body_bytes_max=1_000))
    answer = server.post(PATH, b"1\n" + b"2" * 3_000_000)
    assert (answer.status, answer.json["code"]) == (413, "limit_exceeded")


def test_a_quota_that_runs_out_says_what_was_pushed_before(serve: Serve):
    quotas = AuthSettings(tokens=("secret",), tenants={"default": Quotas(waiting_jobs=15)})
    server = serve(limits=Limits(batch_jobs_max=10), auth=quotas)
    answer = server.post(f"{PATH}?request_key=k", b"1\n" * 25, authorization="Bearer secret")
    assert (answer.status, answer.json["code"]) == (429, "quota_exceeded")
    assert answer.json["data"]["created"] == 10
