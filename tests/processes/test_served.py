"""`stoker serve --processes 2` from outside: several processes, one server."""

import http.server
import json
import os
import queue
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.model.errors import QuotaExceeded, ShuttingDown, Unauthenticated
from stoker.model.states import State
from stoker.server.auth.tokens import create_token, revoke_token
from tests.processes.serving import QUEUES, Served, serving, until

OPERATOR = "operator-operator-operator-operator"
ALL_LISTENERS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


@pytest.fixture(scope="module")
def one_for_many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three interpreters start before it serves: whoever does not disturb it shares it."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "stoker.toml").write_text('[webhooks]\nallow = ["127.0.0.0/8"]\n')
    with serving(directory, "--unix", str(directory / "s"), listen=ALL_LISTENERS) as server:
        yield server


@pytest.fixture
def server(one_for_many: Served) -> Served:
    """With nothing in it."""
    with stoker.connect(one_for_many.url) as client:
        for name in client.list_queues():
            client.obliterate(name, force=True)
    return one_for_many


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def test_every_listener_of_any_process_answers_for_all_shards(server: Served):
    urls = [server.url, f"unix://{server.where['unix']}", server.where["http"], f"grpc://{server.where['grpc']}"]
    for url in urls * 4:  # each connection comes to one of the processes, and nobody knows to which
        with stoker.connect(url) as client:
            pushed = {client.push(name, b"a").id for name in QUEUES.values()}
            delivery = client.pull(list(QUEUES.values()), 10)
            assert set(delivery.ids) == pushed
            assert client.ack_batch(delivery.ids, delivery.token).count == 2
            assert set(client.list_queues()) == set(QUEUES.values())


def test_connections_come_to_both_processes_and_one_scrape_tells_of_both(tmp_path: Path):
    with serving(tmp_path, listen=("--http", "127.0.0.1:0", "--grpc", "off")) as server:
        clients = [stoker.connect(server.url) for _ in range(32)]
        for client in clients:
            client.push(QUEUES[0], b"a")
            client.push(QUEUES[1], b"a")
        text = get(f"{server.where['http']}/metrics").decode()
        for client in clients:
            client.close()
    open_by_process = re.findall(r'stoker_connections\{process="(\d)",transport="tcp"\} (\d+)', text)
    assert {process for process, count in open_by_process if float(count) > 0} == {"0", "1"}
    assert sum(int(count) for _, count in open_by_process) >= 32
    pushes = re.findall(r'stoker_commands_total\{command="push[a-z_]*",outcome="ok",process="\d"\} ([\d.]+)', text)
    assert sum(map(float, pushes)) == 64
    assert 'stoker_jobs{state="waiting"} 64.0' in text
    for name in QUEUES.values():
        assert f'stoker_queue_jobs{{queue="{name}",state="waiting"}} 32.0' in text


def test_events_of_all_shards_come_over_any_connection(server: Served):
    for _ in range(4):
        stream = urllib.request.urlopen(f"{server.where['http']}/events?events=pushed", timeout=60)
        with stream, stoker.connect(server.url) as client:
            until_line(stream, b": here")
            ids = {client.push(name, b"a").id for name in QUEUES.values()}
            found = {json.loads(until_line(stream, b"data: ")[6:])["job_id"] for _ in range(2)}
            assert {int(one) for one in found} == ids


def test_a_subscription_brings_events_of_all_shards(server: Served):
    with stoker.connect(server.url) as client:
        host, _, port = server.where["tcp"].rpartition(":")
        for _ in range(8):
            with socket.create_connection((host, int(port)), timeout=60) as peer, peer.makefile("rb") as lines:
                peer.sendall(b'{"cmd": "subscribe", "reqId": 1, "body": {"kinds": ["pushed"]}}\n')
                assert json.loads(lines.readline())["ok"]
                ids = {client.push(name, b"a").id for name in QUEUES.values()}
                assert {json.loads(lines.readline())["event"]["job"] for _ in ids} == ids


def test_a_subscription_continues_exactly_in_shards_of_other_processes(server: Served):
    """It is cut in the middle of a batch, whichever process the connection came to."""
    with stoker.connect(server.url) as client:
        host, _, port = server.where["tcp"].rpartition(":")
        after: dict[str, Any] | None = None
        for _ in range(4):
            ids, seen = set(), []
            for part in range(2):
                with socket.create_connection((host, int(port)), timeout=60) as peer, peer.makefile("rb") as lines:
                    body = {"kinds": ["pushed"]} if after is None else {"kinds": ["pushed"], "after": after}
                    peer.sendall(json.dumps({"cmd": "subscribe", "reqId": 1, "body": body}).encode() + b"\n")
                    after = json.loads(lines.readline())["body"]["after"]
                    if not part:
                        ids = {job for name in QUEUES.values() for job in client.push_many(name, [b""] * 50).ids}
                    for _ in range(len(ids) // 2):
                        event = json.loads(lines.readline())["event"]
                        after[str(event["shard"])] = [event["sequence"], event["index"]]
                        seen.append(event["job"])
            assert len(seen) == len(ids) == len(set(seen))
            assert set(seen) == ids


def test_events_of_all_shards_are_posted_once(server: Served):
    posted: queue.Queue[dict[str, Any]] = queue.Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quietly."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        hook = register(server, f"http://127.0.0.1:{receiver.server_port}/", "pushed")
        with stoker.connect(server.url) as client:
            ids = {client.push(name, b"a").id for name in QUEUES.values()}
        bodies = [posted.get(timeout=60) for _ in ids]
        remove(server, hook)
        receiver.shutdown()
    assert {int(body["job_id"]) for body in bodies} == ids
    assert posted.empty()


def until_line(stream: object, start: bytes) -> bytes:
    return next(line for line in stream if line.startswith(start))  # type: ignore[attr-defined, no-any-return]


def register(server: Served, url: str, event: str) -> str:
    """A webhook; its id."""
    body = json.dumps({"url": url, "events": [event]}).encode()
    request = urllib.request.Request(f"{server.where['http']}/webhooks", body, method="POST")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.loads(answer.read())["data"]["id"])


def remove(server: Served, hook: str) -> None:
    request = urllib.request.Request(f"{server.where['http']}/webhooks/{hook}", method="DELETE")
    urllib.request.urlopen(request, timeout=60).close()


def test_a_webhook_registered_anywhere_is_known_everywhere(server: Served):
    made = {register(server, f"http://example.com/{number}", "completed") for number in range(4)}
    for _ in range(4):
        listed = json.loads(get(f"{server.where['http']}/webhooks"))["data"]
        assert {hook["id"] for hook in listed} == made
    for hook in made:
        remove(server, hook)
    for _ in range(4):
        assert json.loads(get(f"{server.where['http']}/webhooks"))["data"] == []


def test_sigterm_waits_for_running_jobs_of_all_processes(tmp_path: Path):
    with serving(tmp_path) as server, stoker.connect(f"{server.url}?retry_s=0") as client:
        for name in QUEUES.values():
            client.push(name, b"a")
        jobs = [*client.pull(QUEUES[0]), *client.pull(QUEUES[1])]
        server.signal(signal.SIGTERM)
        for job in jobs:
            client.ack(job.id, job.token)
        code, errors = server.ended()
    assert code == 0
    assert "Traceback" not in errors
    with stoker.connect(f"sqlite:///{tmp_path}/data") as client:
        assert {client.get_job(job.id).state for job in jobs} == {State.COMPLETED}


def is_stopping(client: stoker.Client) -> bool:
    try:
        client.pull(list(QUEUES.values()))
    except ShuttingDown:
        return True
    return False


def test_a_second_signal_hands_running_jobs_of_all_processes_back(tmp_path: Path):
    with serving(tmp_path) as server, stoker.connect(f"{server.url}?retry_s=0") as client:
        ids = [client.push(name, b"a").id for name in QUEUES.values()]
        assert len(client.pull(list(QUEUES.values()), 10)) == 2
        server.signal(signal.SIGTERM)
        until(lambda: is_stopping(client), "the first signal")  # a second one before that would be the first
        server.signal(signal.SIGTERM)
        code, _ = server.ended()
    assert code == 0
    with stoker.connect(f"sqlite:///{tmp_path}/data") as client:
        for job in ids:
            found = client.get_job(job)
            assert (found.state, found.attempts) == (State.WAITING, 0)


def test_sighup_reaches_all_processes(tmp_path: Path):
    tokens = tmp_path / "tokens.json"
    token = create_token(tokens, name="worker", now=0)
    with serving(tmp_path, "--tokens-file", str(tokens)) as server:
        for _ in range(8):
            with stoker.connect(f"{server.url}?retry_s=0&token={token.text}") as client:
                client.list_queues()
        revoke_token(tokens, token.record.id)
        server.signal(signal.SIGHUP)
        server.said("read tokens, keys, quotas and limits again")
        server.said("read tokens, keys, quotas and limits again")
        for _ in range(8):
            with pytest.raises(Unauthenticated), stoker.connect(f"{server.url}?retry_s=0&token={token.text}") as client:
                client.list_queues()


def test_the_number_of_processes_may_change_between_two_starts(tmp_path: Path):
    pushed: dict[int, bytes] = {}
    for round, processes in enumerate((2, 3, 1)):
        with serving(tmp_path, processes=processes) as server, stoker.connect(server.url) as client:
            for job, payload in pushed.items():
                assert client.get_job(job).payload == payload
            for number in range(20):
                payload = b"%d-%d" % (round, number)
                pushed[client.push(f"queue-{number}", payload).id] = payload
            server.signal(signal.SIGTERM)
            assert server.ended()[0] == 0
    with stoker.connect(f"sqlite:///{tmp_path}/data") as client:
        delivery = client.pull([f"queue-{number}" for number in range(20)], 1_000)
        assert {job.id: bytes(job.payload) for job in delivery} == pushed


def test_a_directory_that_is_damaged_is_refused_with_a_clear_message(tmp_path: Path):
    with serving(tmp_path) as server:
        server.signal(signal.SIGTERM)
        assert server.ended()[0] == 0
    (manifest,) = tmp_path.glob("data/deal-*/process-1/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:-10])
    with serving(tmp_path) as server:
        code, errors = server.ended()
    assert code == 1
    assert "manifest.json" in errors
    assert "(damaged)" in errors
    assert "Traceback" not in errors


def test_a_process_that_cannot_come_back_ends_the_server_with_a_clear_message(tmp_path: Path):
    with serving(tmp_path) as server:
        (manifest,) = tmp_path.glob("data/deal-*/process-1/manifest.json")
        manifest.write_bytes(manifest.read_bytes()[:-10])
        os.kill(server.child(1), signal.SIGKILL)
        code, errors = server.ended()
    assert code == 1
    assert "was killed by SIGKILL: it is being restarted" in errors
    assert "manifest.json" in errors
    assert "(damaged)" in errors
    assert "Traceback" not in errors


def test_a_port_that_is_in_use_is_refused(tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with serving(tmp_path / "one") as server, serving(tmp_path / "two", "--tcp", server.where["tcp"]) as second:
        code, errors = second.ended()
    assert code != 0
    assert "cannot listen" in errors


def test_without_a_data_directory_there_is_nothing_to_share(tmp_path: Path):
    command = [sys.executable, "-m", "stoker", "serve", "--processes", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert ended.returncode == 2
    assert "set data (--data DIR)" in ended.stderr


def test_no_secret_is_in_the_arguments_or_the_environment_of_a_process(tmp_path: Path):
    secret = "a-secret-that-nobody-may-read-0123456789"
    (tmp_path / "stoker.toml").write_text(f'[auth]\ntokens = ["{secret}"]\n')
    with serving(tmp_path) as server:
        for pid in server.children:
            assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        for name in ("peer-0", "peer-1"):
            assert (tmp_path / "data" / name).stat().st_mode & 0o077 == 0
        with stoker.connect(f"{server.url}?token={secret}") as client:
            client.list_queues()


def test_a_quota_counts_the_jobs_of_all_processes(tmp_path: Path):
    (tmp_path / "stoker.toml").write_text(
        f'[auth]\ntokens = ["{OPERATOR}"]\n[auth.tenants.default]\nwaiting_jobs = 10\n'
    )
    with serving(tmp_path) as server:
        taken = 0
        for number in range(60):
            with stoker.connect(f"{server.url}?retry_s=0&token={OPERATOR}") as client:
                try:
                    client.push(QUEUES[number % 2], b"a")
                    taken += 1
                except QuotaExceeded:
                    pass
        assert 10 <= taken < 30


def test_each_log_file_belongs_to_one_process(tmp_path: Path):
    with serving(tmp_path) as server, stoker.connect(server.url) as client:
        for number in range(100):
            client.push(f"queue-{number}", b"a")
    rows: Counter[str] = Counter()
    for file in tmp_path.glob("data/deal-*/process-*/log-*.db"):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as log:  # which is locked while it is written to
            rows[file.parent.name] += log.execute("SELECT count(*) FROM log").fetchone()[0]
    assert set(rows) == {"process-0", "process-1"}
    assert min(rows.values()) > 10


def test_the_history_of_all_processes_is_one_and_outlives_them(tmp_path: Path):
    """Each process stores what it has of a minute when it stops."""
    with serving(tmp_path) as server, stoker.connect(server.url) as client:
        for name in QUEUES.values():
            client.push_batch(name, [b""] * 5)
    with serving(tmp_path) as server, stoker.connect(server.url) as client:
        assert sum(point.pushed for point in client.get_history()) == 10
        for name in QUEUES.values():
            pushed = [point.pushed for point in client.get_history(name)]
            assert [number for number in pushed if number] == [5]  # a minute that ended meanwhile is a point, too
