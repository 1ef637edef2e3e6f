"""The speed of the inbox: transactions with one row each, and the time from a commit to the handler.

PostgreSQL is the one that the tests start: from a wheel, on loopback, with flushing on. Its own `pgbench` writes, with
eight connections. The floor is from the same run: the same transactions with bare INSERTs into a table of the same
columns without a reader. The reader is `stoker inbox run` in a process of its own; the queue is a directory.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

import stoker
from benchmarks.measure import PAYLOAD, Row
from benchmarks.sizes import sized
from stoker.inbox import schema
from stoker.worker.worker import loop_factory
from tests.postgres_server import PostgresServer, other_user, programs

WRITERS = 32
SECONDS = sized(5, 1)
BACKLOG = sized(50_000, 200)
SINGLES = sized(100, 3)
TPS = re.compile(r"tps = ([\d.]+)")
BARE = "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text, payload bytea, options json)"
ROW = "INSERT INTO {} (queue, payload, options) VALUES ('mail', '" + PAYLOAD.decode() + '\', \'{{"name": "hello"}}\');'


def transactions(server: PostgresServer, table: str) -> float:
    """Transactions with one row each, a second."""
    script = server.folder / f"{table}.sql"
    script.write_text(ROW.format(table))
    script.chmod(0o644)
    words = [str(programs() / "pgbench"), "-n", "-c", str(WRITERS), "-T", str(SECONDS), "-f", str(script), server.url()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, **other_user())
    found = TPS.search(done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


@contextmanager
def reader(source: str, target: str) -> Iterator[None]:
    words = ["inbox", "run", "--from", source, "--to", target, "--log-level", "error"]
    child = subprocess.Popen([sys.executable, "-m", "stoker", *words])
    try:
        yield
    finally:
        child.terminate()
        child.wait(60)


def drained(server: PostgresServer) -> None:
    with server.connect() as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM stoker_inbox)").fetchone() != (False,):
            time.sleep(0.01)


def throughput(server: PostgresServer, folder: str) -> Iterator[Row]:
    bare = transactions(server, "bare")
    written = transactions(server, "stoker_inbox")
    yield Row("bare INSERTs", bare, unit="transactions/s", note=f"{WRITERS} connections")
    yield Row("inbox, no reader", written, bare, "transactions/s")
    with server.connect() as connection:
        connection.execute("TRUNCATE stoker_inbox")
    target = f"sqlite:///{folder}/written"
    with reader(server.url(), target):
        wait_for_reader(server)
        began = time.perf_counter()
        read = transactions(server, "stoker_inbox")
        drained(server)
        took = time.perf_counter() - began
    with stoker.connect(target) as client:
        pushed = client.get_stats("mail").totals.pushed
    yield Row("inbox and a reader", read, bare, "transactions/s", note="as long as they are written")
    yield Row("... until the last is a job", pushed / took, bare, "transactions/s", note=f"{pushed:,} jobs")
    with server.connect() as connection:
        connection.execute(
            "INSERT INTO stoker_inbox (queue, payload) SELECT 'mail', %s FROM generate_series(1, %s)",
            (PAYLOAD, BACKLOG),
        )
        with reader(server.url(), f"sqlite:///{folder}/backlog"):
            while connection.execute("SELECT count(*) FROM stoker_inbox").fetchone() == (BACKLOG,):
                time.sleep(0.005)
            began = time.perf_counter()
            drained(server)
            yield Row("a backlog, one reader", BACKLOG / (time.perf_counter() - began), unit="rows/s")


def wait_for_reader(server: PostgresServer) -> None:
    """Until it has pushed a row."""
    with server.connect() as connection:
        connection.execute("INSERT INTO stoker_inbox (queue, payload) VALUES ('other', '')")
    drained(server)


def latency(server: PostgresServer, folder: str) -> Iterator[Row]:
    """From the commit to the handler, one row at a time, at moments that have nothing to do with the polls."""
    url = f"sqlite:///{folder}/idle"
    app = stoker.App(url)
    came: asyncio.Queue[float] = asyncio.Queue()

    @app.job(queue="mail")
    async def hello() -> None:
        came.put_nowait(time.perf_counter())

    async def measure() -> list[float]:
        worker = app.worker()
        serving = asyncio.create_task(worker.serve())
        found = []
        async with await psycopg.AsyncConnection.connect(server.url()) as connection:
            for number in range(SINGLES + 5):
                await hello.push_in(connection)
                await connection.commit()
                began = time.perf_counter()
                found.append(await came.get() - began)
                await asyncio.sleep(0.05 + 0.013 * (number % 10))
        worker.stop()
        await serving
        return found[5:]

    with reader(server.url(), url), asyncio.Runner(loop_factory=loop_factory()) as runner:
        times = sorted(1_000 * one for one in runner.run(measure()))
    app.close()
    yield Row("commit to handler, p50", statistics.median(times), unit="ms", note="idle; polls every 100 ms")
    yield Row("commit to handler, p95", times[len(times) * 95 // 100], unit="ms")


def all_of_it() -> list[Row]:
    server = PostgresServer()
    schema.init(server.url())
    with server.connect() as connection:
        connection.execute(BARE.encode())
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            return [*latency(server, folder), *throughput(server, folder)]
    finally:
        server.close()
