"""Spark executors as workers: jobs out of a queue, through any DataFrame code, and back as results.

A round claims jobs by name, one claim a task. A claim that is asked for again brings the same jobs, so Spark may run a
task as often as it likes. What the jobs became comes back to the driver, and only there they are acknowledged, with
their results: no task ever settles anything. Claims are extended while the round runs.
"""

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.model.units import Duration, duration_ms
from stoker.spark.logs import connect
from stoker.spark.options import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOBS = "id bigint, claim string, queue string, name string, payload binary, codec string, attempt int, pushed_at bigint"
"""The rows that a transformation gets."""
ENDS = "id bigint, claim string, result binary, error string, error_class string, stack string"

ERRORS = 10
"""Kept to look at."""

Handler = Callable[[list[Any]], Sequence[Any]]
"""Payloads in, a result or an exception for each of them out."""
Transformation = Callable[["DataFrame"], "DataFrame"]


@dataclass
class Round:
    """What became of the jobs of a fleet so far."""

    rounds: int = 0
    taken: int = 0
    completed: int = 0
    failed: int = 0
    released: int = 0
    """Left out by the transformation: they wait again."""
    lost: int = 0
    """Settled too late: their leases had ended, and somebody else has them."""
    errors: list[str] = field(default_factory=list)
    """Some of them."""


def process(
    spark: "SparkSession",
    queue: str | Sequence[str],
    function: Handler | None = None,
    *,
    transform: Transformation | None = None,
    url: str | None = None,
    token: str | None = None,
    tenant: str = "default",
    batch: int = 1_000,
    slots: int | None = None,
    lease: Duration = "60s",
    rounds: int | None = None,
    wait: Duration = 0,
) -> Round:
    """Work a queue off with Spark: until it is empty, or for so many rounds.

    `function` takes a list of decoded payloads and gives a result, or an exception, for each. `transform` takes a
    DataFrame of jobs (`id`, `claim`, `payload`, ...) and gives one with `id`, `claim` and `result` (bytes or text), and
    perhaps `error`; jobs that it leaves out go back to their queue. `batch` jobs go to each of `slots` tasks at a time.
    `wait` is how long an empty queue is waited for.
    """
    if (function is None) == (transform is None):
        raise InvalidRequest("give either a function or a transformation of DataFrames")
    connection = Connection(url, token, tenant)
    queues = (queue,) if isinstance(queue, str) else tuple(queue)
    slots = slots or spark.sparkContext.defaultParallelism
    lease_ms, wait_ms = duration_ms(lease), duration_ms(wait)
    run, done = uuid4().hex[:12], Round()
    with connect(connection) as client:
        while rounds is None or done.rounds < rounds:
            claims = [f"spark:{run}:{done.rounds}:{slot}" for slot in range(slots)]
            tokens = made(client, claims, queues, batch, lease_ms, wait_ms, done)
            if not tokens:
                break
            with Extending(connection, list(tokens), lease_ms):
                jobs = claimed(spark, connection, queues, list(tokens), batch, lease_ms)
                ends = transform(jobs) if transform is not None else jobs.mapInArrow(Applied(function), ENDS)
                settle(client, tokens, ends, done)
            done.rounds += 1
    return done


def made(
    client: Client, claims: list[str], queues: tuple[str, ...], batch: int, lease_ms: int, wait_ms: int, done: Round
) -> dict[str, int]:
    """The claims that brought jobs, with their tokens. Only the first waits: if it finds nothing, there is nothing."""
    found: dict[str, int] = {}
    for claim in claims:
        delivery = client.pull(queues, batch, wait_ms=0 if found else wait_ms, lease_ms=lease_ms, claim=claim)
        if not len(delivery):
            break
        found[claim] = delivery.token
        done.taken += len(delivery)
    return found


def claimed(
    spark: "SparkSession", connection: Connection, queues: tuple[str, ...], claims: list[str], batch: int, lease_ms: int
) -> "DataFrame":
    """The jobs of some claims, a task for each claim."""
    names = spark.createDataFrame([(claim,) for claim in claims], "claim string").repartition(len(claims), "claim")
    return names.mapInArrow(Pulled(connection, queues, batch, lease_ms), JOBS)


class Pulled:
    """In an executor: the jobs of claims, asked for by their names."""

    def __init__(self, connection: Connection, queues: tuple[str, ...], batch: int, lease_ms: int) -> None:
        self._connection, self._queues, self._batch, self._lease_ms = connection, queues, batch, lease_ms

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connect(self._connection) as client:
            for claim in [name for batch in batches for name in batch.column("claim").to_pylist()]:
                yield from self._jobs(client, claim)

    def _jobs(self, client: Client, claim: str) -> Iterator[pa.RecordBatch]:
        delivery = client.pull(self._queues, self._batch, lease_ms=self._lease_ms, claim=claim)
        for run in delivery.runs:
            count = len(run.ids)
            columns = {
                "id": list(run.ids),
                "claim": [claim] * count,
                "queue": [run.queue] * count,
                "name": [run.options.name] * count,
                "payload": list(run.payloads),
                "codec": [run.options.codec] * count,
                "attempt": [run.attempt] * count,
                "pushed_at": [run.pushed_at] * count,
            }
            yield pa.RecordBatch.from_pydict(columns, schema=JOBS_SCHEMA)


JOBS_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("claim", pa.string()),
        ("queue", pa.string()),
        ("name", pa.string()),
        ("payload", pa.binary()),
        ("codec", pa.string()),
        ("attempt", pa.int32()),
        ("pushed_at", pa.int64()),
    ]
)
ENDS_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("claim", pa.string()),
        ("result", pa.binary()),
        ("error", pa.string()),
        ("error_class", pa.string()),
        ("stack", pa.string()),
    ]
)


class Applied:
    """In an executor: a function over the payloads of a batch."""

    def __init__(self, function: Handler | None) -> None:
        assert function is not None
        self._function = function

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._ends(batch)

    def _ends(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        payloads = [
            decoded(payload, codec)
            for payload, codec in zip(
                batch.column("payload").to_pylist(), batch.column("codec").to_pylist(), strict=True
            )
        ]
        try:
            results = list(self._function(payloads))
            if len(results) != len(payloads):
                raise ValueError(f"{len(results)} results for {len(payloads)} jobs: give one for each")
        except Exception as error:
            results = [error] * len(payloads)
        failed = [isinstance(result, BaseException) for result in results]
        pairs = list(zip(results, failed, strict=True))
        columns = {
            "id": batch.column("id"),
            "claim": batch.column("claim"),
            "result": [None if bad or result is None else encoded(result) for result, bad in pairs],
            "error": [str(result) or type(result).__name__ if bad else None for result, bad in pairs],
            "error_class": [type(result).__name__ if bad else None for result, bad in pairs],
            "stack": ["".join(traceback.format_exception(result)) if bad else None for result, bad in pairs],
        }
        return pa.RecordBatch.from_pydict(columns, schema=ENDS_SCHEMA)


def decoded(payload: bytes, codec: str) -> Any:
    if codec == "bytes":
        return payload
    return msgspec.msgpack.decode(payload) if codec == "msgpack" else msgspec.json.decode(payload)


def encoded(result: Any) -> bytes:
    return result if isinstance(result, bytes) else msgspec.msgpack.encode(result)


def settle(client: Client, tokens: dict[str, int], ends: "DataFrame", done: Round) -> None:
    """In the driver, when Spark has the whole round: acknowledge what was done, fail what failed, release the rest."""
    table: Any = ends.select(*[name for name in ENDS_SCHEMA.names if name in ends.columns]).toArrow()
    rows: dict[str, list[dict[str, Any]]] = {claim: [] for claim in tokens}
    for row in table.to_pylist():
        if row["claim"] not in rows:
            raise InvalidRequest(
                f"the transformation gave a job of claim {row['claim']!r}, which this round has not got"
            )
        rows[row["claim"]].append(row)
    for claim, ended in rows.items():
        failed = [row for row in ended if row.get("error") is not None]
        completed = {row["id"]: in_bytes(row.get("result")) for row in ended if row.get("error") is None}
        done.completed += acknowledged(client, completed, tokens[claim])
        done.failed += sum(map(len, fail(client, failed, tokens[claim])))
        done.released += client.release_claim(claim).count  # what the transformation left out
        done.errors = (done.errors + [row["error"] for row in failed])[:ERRORS]
    done.lost = done.taken - done.completed - done.failed - done.released


def acknowledged(client: Client, finished: dict[int, bytes | None], token: int) -> int:
    if not finished:
        return 0
    results = None if all(result is None for result in finished.values()) else list(finished.values())
    return client.ack_batch(list(finished), token, results, codec="msgpack").count


def fail(client: Client, failed: list[dict[str, Any]], token: int) -> Iterator[Sequence[int]]:
    """The ids that could be failed, those with the same error at once."""
    by_error: dict[tuple[str, str, str], list[int]] = {}
    for row in failed:
        by_error.setdefault((row["error"], row.get("error_class") or "", row.get("stack") or ""), []).append(row["id"])
    for (error, error_class, stack), ids in by_error.items():
        reply = client.fail_batch(ids, token, error, error_class=error_class, stack=stack)
        yield [job for job in ids if job not in reply.refused]


def in_bytes(result: Any) -> bytes | None:
    return result.encode() if isinstance(result, str) else result


class Extending:
    """Extends claims while a round runs, from a thread and a connection of its own."""

    def __init__(self, connection: Connection, claims: list[str], lease_ms: int) -> None:
        self._connection, self._claims, self._lease_ms = connection, claims, lease_ms
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stoker-fleet-leases", daemon=True)

    def __enter__(self) -> "Extending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with connect(self._connection) as client:
            while not self._over.wait(self._lease_ms / 3000):
                for claim in self._claims:
                    client.extend_claim(claim)
