"""Events over HTTP: as they happen, from where a reader was, and for as long as it may read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from stoker.brokers.local import LocalSettings
from stoker.model import commands as c
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from stoker.server.config.tree import ServerLimits
from tests.http.support import HttpServer, wait_until

Serve = Callable[..., HttpServer]


def test_events_come_as_they_happen(server: HttpServer):
    reader = server.events("/events")
    first = server.execute(c.Push("a", b"")).id
    second = server.execute(c.Push("b", b"")).id
    assert sorted(reader.take(2)) == sorted([("pushed", first), ("pushed", second)])
    server.execute(c.Pull(["a"]))
    name, event = reader.next()
    assert (name, event["event_type"], event["job_id"], event["queue"]) == ("started", "started", first, "a")
    reader.close()


def test_a_reader_sees_only_what_it_asked_for(server: HttpServer):
    by_queue, by_kind = server.events("/events/b"), server.events("/events?events=started,completed")
    other, job = server.execute(c.Push("a", b"")).id, server.execute(c.Push("b", b"")).id
    by_job = server.events(f"/events/job/{job}?from=beginning")
    server.execute(c.Pull(["b"]))
    server.execute(c.Ack([job]))
    assert by_queue.take(3) == [("pushed", job), ("started", job), ("completed", job)]
    assert by_kind.take(2) == [("started", job), ("completed", job)]
    assert by_job.take(3) == [("pushed", job), ("started", job), ("completed", job)]
    assert other
    for reader in (by_queue, by_kind, by_job):
        reader.close()


def test_a_reader_goes_on_where_it_was(server: HttpServer):
    """Exactly: also in the middle of a record, which holds the events of a whole batch."""
    reader = server.events("/events")
    ids = list(server.execute(c.PushBatch("a", [b""] * 5)).ids)
    assert reader.take(2) == [("pushed", job) for job in ids[:2]]
    reader.close()
    more = server.execute(c.Push("a", b"")).id
    again = server.events("/events", last_event_id=reader.last_id)
    assert again.take(4) == [("pushed", job) for job in (*ids[2:], more)]
    again.close()
    by_parameter = server.events(f"/events?after={again.last_id}")
    last = server.execute(c.Push("b", b"")).id
    assert by_parameter.take(1) == [("pushed", last)]
    by_parameter.close()


def test_every_position_is_one_to_go_on_from(server: HttpServer):
    for queue in ("a", "b", "c"):
        server.execute(c.PushBatch(queue, [b""] * 3))
    reader = server.events("/events?from=beginning")
    told: list[tuple[str, Any]] = []
    for _ in range(9):
        _, event = reader.next()
        told.append((reader.last_id, event["job_id"]))
    reader.close()
    for place, (position, _) in enumerate(told[:-1]):
        again = server.events("/events", last_event_id=position)
        rest = {job for _, job in again.take(8 - place)}
        assert rest == {job for _, job in told[place + 1 :]}
        again.close()


def test_what_is_no_longer_kept_is_told(serve: Serve):
    server = serve(settings=LocalSettings(shards=1, events_bytes_max=2_000))
    server.execute(c.Push("a", b""))
    for _ in range(200):
        server.execute(c.Push("a", b"x" * 100))
    reader = server.events("/events", last_event_id="1")
    reader.close()
    with server.socket() as connected:
        connected.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 1\r\n\r\n")
        got = b""
        while b"event: pushed" not in got:
            got += connected.recv(65536)
    text = got.decode()
    assert text.index("event: missed") < text.index("event: pushed")
    missed = json.loads(text.partition("event: missed\ndata: ")[2].partition("\n")[0])
    assert missed["after"] == 1 < missed["lowest"]


@pytest.mark.parametrize("position", ["x", "1.2.3", "-1", "1.2-9-0", "9" * 30])
def test_a_position_that_is_none_is_refused(server: HttpServer, position: str):
    assert server.get("/events", last_event_id=position).status == 400


def test_unknown_kinds_are_refused(server: HttpServer):
    assert server.get("/events?events=nonsense").status == 400
    assert server.get("/events/job/none").status == 400


def test_a_reader_needs_the_right_to_read(serve: Serve, tmp_path):
    tokens = tmp_path / "tokens"
    reader = create_token(tokens, name="r", permissions=("read",), tenant="t", now=1.0).text
    producer = create_token(tokens, name="p", permissions=("produce",), tenant="t", now=1.0).text
    server = serve(auth=AuthSettings(tokens_file=str(tokens)))
    assert server.get("/events").status == 401
    assert server.get(f"/events?token={producer}").status == 403
    stream = server.events(f"/events?token={reader}")
    server.execute(c.Push("a", b""), "other")
    job = server.execute(c.Push("a", b""), "t").id
    assert stream.take(1) == [("pushed", job)]
    stream.close()


def test_a_stream_ends_with_the_rights_of_its_reader(serve: Serve, tmp_path):
    tokens = tmp_path / "tokens"
    made = create_token(tokens, name="r", now=1.0)
    server = serve(auth=AuthSettings(tokens_file=str(tokens)))
    stream = server.events("/events", authorization=f"Bearer {made.text}")
    with connect(f"ws://127.0.0.1:{server.port}/ws?token={made.text}") as socket:
        tokens.write_bytes(b"")
        server.server.gate.reload()
        server.execute(c.Push("a", b""))
        name, event = stream.next()
        assert (name, event["code"]) == ("error", "unauthenticated")
        assert stream.has_ended
        assert json.loads(socket.recv(15))["code"] == "unauthenticated"
        with pytest.raises(ConnectionClosed):
            socket.recv(15)
    stream.close()


def test_a_token_in_the_query_opens_nothing_but_streams(serve: Serve):
    server = serve(auth=AuthSettings(tokens=("secret",)))
    assert server.get("/queues?token=secret").status == 401
    assert server.get("/queues", authorization="Bearer secret").status == 200


def test_there_are_only_so_many_streams(serve: Serve):
    server = serve(server=ServerLimits(streams_max=1))
    stream = server.events("/events")
    refused = server.get("/events")
    assert (refused.status, refused.json["code"]) == (429, "busy")
    stream.close()


def test_a_websocket_brings_the_same(server: HttpServer):
    with connect(f"ws://127.0.0.1:{server.port}/ws/a?events=pushed,completed") as socket:
        settle(server)
        server.execute(c.Push("b", b""))
        job = server.execute(c.Push("a", b"")).id
        server.execute(c.Pull(["a"]))
        server.execute(c.Ack([job]))
        events = [json.loads(socket.recv(15)) for _ in range(2)]
    assert [(one["event_type"], one["job_id"]) for one in events] == [("pushed", job), ("completed", job)]
    with connect(f"ws://127.0.0.1:{server.port}/ws?after={events[0]['cursor']}") as again:
        kinds = [json.loads(again.recv(15))["event_type"] for _ in range(2)]
    assert kinds == ["started", "completed"]


def settle(server: HttpServer) -> None:
    """Until the stream has taken its position: it asks the dispatcher for events then."""
    wait_until(server, lambda: server.server.dispatcher.is_waiting)


def test_a_websocket_of_another_site_is_refused(server: HttpServer):
    address = f"ws://127.0.0.1:{server.port}/ws"
    with pytest.raises(InvalidStatus) as refused, connect(address, origin=Origin("http://elsewhere.example")):
        pass
    assert refused.value.response.status_code == 403


def test_a_reader_that_does_not_read_holds_little(server: HttpServer):
    """It falls behind in the log: what waits for it in memory is a page and a socket's buffer."""
    with server.socket() as connected:
        connected.sendall(b"GET /events?from=beginning HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(30):
            server.execute(c.PushBatch("a", [b""] * 1_000))
        (connection,) = [one for one in server.run(connections(server)) if one.cycle is not None]
        assert connection.transport.get_write_buffer_size() < 8_000_000
        got = connected.recv(100)
        assert got.startswith(b"HTTP/1.1 200")


async def connections(server: HttpServer) -> list[Any]:
    (listener,) = server.server._listeners
    return list(listener._door.open)  # type: ignore[attr-defined]
