"""A server that reads an inbox, within the quotas of its tenants, and tells how it stands."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from stoker.model import commands as c
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from stoker.server.config import BadConfig, InboxSettings, load, show
from tests.http.support import HttpServer
from tests.inbox.world import InboxWorld

PATIENCE_S = 60
PUSHED_3 = 'stoker_inbox_outcomes_total{outcome="pushed"} 3.0'


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def serve(world: InboxWorld) -> Iterator[Callable[..., HttpServer]]:
    made: list[HttpServer] = []

    def make(**config: object) -> HttpServer:
        inbox = InboxSettings(url=world.url, tenants=("default", "acme"))
        made.append(HttpServer(inbox=inbox, **config))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for server in made:
        server.close()


def test_a_server_pushes_committed_rows_and_counts_them(world: InboxWorld, serve: Callable[..., HttpServer]):
    world.sql("INSERT INTO stoker_inbox (queue, payload, error) VALUES ('mail', 'x', 'invalid: nonsense')")
    server = serve()
    world.commit(b"1", b"2")
    world.commit(b"3", tenant="acme")
    world.commit(b"4", tenant="stranger")
    until(lambda: world.rows() == len(world.errors()) == 2)
    assert [job.payload for job in server.broker.execute("default", c.Pull(("mail",), 10))] == [b"1", b"2"]
    assert [job.payload for job in server.broker.execute("acme", c.Pull(("mail",), 10))] == [b"3"]
    assert "may not name tenant 'stranger'" in world.errors()[5]
    until(lambda: PUSHED_3 in server.get("/metrics").body.decode())  # counted after the rows are gone
    text = server.get("/metrics").body.decode()
    assert re.search(r'^stoker_inbox_rows\{state="refused"\} [12]\.0$', text, re.MULTILINE)  # as of a full look
    assert 'stoker_inbox_outcomes_total{outcome="refused"} 1.0' in text
    assert "\nstoker_inbox_oldest_seconds " in text


def test_rows_beyond_the_quota_of_a_tenant_wait(world: InboxWorld, serve: Callable[..., HttpServer]):
    server = serve(auth=AuthSettings(tenants={"acme": Quotas(waiting_jobs=2)}))
    world.commit(b"1", tenant="acme")
    world.commit(b"2", tenant="acme")
    until(lambda: world.rows() == 0)
    world.commit(b"3", tenant="acme")
    world.commit(b"4")
    until(lambda: world.rows() == 1)
    assert world.errors() == {}
    assert len(server.broker.execute("acme", c.Pull(("mail",), 10)).ids) == 2


def test_of_a_server_in_several_processes_one_reads_and_all_tell(world: InboxWorld, tmp_path: Path):
    words = ["serve", "--data", str(tmp_path / "data"), "--processes", "2", "--tcp", "off", "--grpc", "off"]
    words += ["--http", "127.0.0.1:0", "--set", f"inbox.url={world.url}"]
    served = subprocess.Popen([sys.executable, "-m", "stoker", *words], stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    where = served.stdout.readline().split()[1]
    world.commit(b"1", b"2")
    world.commit(b"3", queue="bills")
    until(lambda: world.rows() == 0)
    until(lambda: PUSHED_3 in metrics(where))  # counted after the rows are gone
    for _ in range(4):  # whichever of the processes answers
        assert PUSHED_3 in metrics(where)
    served.send_signal(signal.SIGTERM)
    assert served.wait(PATIENCE_S) == 0
    served.stdout.close()


def metrics(where: str) -> str:
    with urlopen(f"{where}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read(), "utf-8")


def test_the_url_of_the_inbox_is_checked_and_its_password_is_not_shown():
    with pytest.raises(BadConfig, match=r"inbox.url.*expected postgresql://USER:PASSWORD@HOST"):
        load({"inbox.url": "mysql://db/shop"}, environ={})
    assert "hidden" not in show(load({"inbox.url": "postgresql://shop:hidden@db/shop"}, environ={}))
