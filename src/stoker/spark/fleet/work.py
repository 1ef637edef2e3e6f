"""Code for executors: the jobs of a claim as rows, and a function over them.

Nothing here settles a job: Spark may run all of it again, or twice at once. A payload that cannot be decoded, or a
result that cannot be encoded, costs its own job an attempt, and no other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
import pyarrow as pa

from stoker.client.sync import Client
from stoker.model.replies import Delivery
from stoker.spark.arrow_bytes import packed
from stoker.spark.connecting import connect
from stoker.spark.options import QueueConnection
from stoker.worker.outcomes import Failure, Outcome, VerdictKind

JOBS_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("token", pa.int64()),
        ("claim", pa.string()),
        ("queue", pa.string()),
        ("name", pa.string()),
        ("payload", pa.binary()),
        ("codec", pa.string()),
        ("attempt", pa.int32()),
        ("pushed_at", pa.int64()),
    ]
)
JOBS = (
    "id bigint, token bigint, claim string, queue string, name string, payload binary, codec string, attempt int,"
    " pushed_at bigint"
)
"""The rows that a transformation gets."""
ENDS_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("token", pa.int64()),
        ("result", pa.binary()),
        ("codec", pa.string()),
        ("error", pa.string()),
        ("error_class", pa.string()),
        ("stack", pa.string()),
        ("verdict", pa.string()),
        ("after_ms", pa.int64()),
    ]
)
ENDS = (
    "id bigint, token bigint, result binary, codec string, error string, error_class string, stack string,"
    " verdict string, after_ms bigint"
)
"""The rows that a function produces, and that a transformation may return."""
VERDICTS: tuple[VerdictKind, ...] = get_args(VerdictKind)
"""Values of `verdict`, the same as those of the outcomes that handlers raise."""

Handler = Callable[[list[Any]], Sequence[Any]]
"""Takes payloads; returns a result or an exception for each."""


@dataclass(frozen=True)
class Claiming:
    """What a claim asks for."""

    connection: QueueConnection
    queues: tuple[str, ...]
    batch: int
    lease_ms: int

    def pull(self, client: Client, claim: str, wait_ms: int = 0) -> Delivery:
        return client.pull(
            self.queues, self.batch, wait_ms=wait_ms, worker="spark", lease_ms=self.lease_ms, claim=claim
        )

    def jobs(self, claim: str) -> Delivery:
        """The jobs of a claim, by its name."""
        with connect(self.connection) as client:
            return self.pull(client, claim)


def as_rows(claim: str, delivery: Delivery) -> pa.RecordBatch:
    """One batch, even if each job has its own options: a thousand batches of one job would take seconds."""
    columns: dict[str, list[Any]] = {name: [] for name in JOBS_SCHEMA.names}
    for run in delivery.runs:
        count = len(run.ids)
        columns["id"] += run.ids
        columns["queue"] += [run.queue] * count
        columns["name"] += [run.options.name] * count
        columns["payload"] += run.payloads
        columns["codec"] += [run.options.codec] * count
        columns["attempt"] += [run.attempt] * count
        columns["pushed_at"] += [run.pushed_at] * count
    count = len(columns["id"])
    columns["token"], columns["claim"] = [delivery.token] * count, [claim] * count
    return pa.RecordBatch.from_pydict(columns, schema=JOBS_SCHEMA)


class Pulled:
    """Reads the jobs of claims: a row with 0 stands for the first claim, and so on."""

    def __init__(self, claiming: Claiming, claims: tuple[str, ...]) -> None:
        self._claiming, self._claims = claiming, claims

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield as_rows(self._claims[number], self.delivery(number))

    def delivery(self, number: int) -> Delivery:
        return self._claiming.jobs(self._claims[number])


class Worked:
    """Reads the jobs of claims and applies a function in one step; the outcomes of a claim are one value."""

    def __init__(self, pulled: Pulled, applied: "Applied") -> None:
        self._pulled, self._applied = pulled, applied

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for ends in self.ends(batch.column(0).to_pylist()):
                yield pa.RecordBatch.from_pydict({"ends": [ends]})

    def ends(self, numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            delivery = self._pulled.delivery(number)
            if len(delivery):
                yield packed([self._applied.delivered(delivery)])


class Applied:
    """A function over the payloads of each batch of jobs."""

    def __init__(self, function: Handler) -> None:
        self._function = function

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                codecs = batch.column("codec").to_pylist()
                pairs = zip(batch.column("payload").to_pylist(), codecs, strict=True)
                payloads = [payload for one, codec in pairs for payload in decoded([one], codec)]
                yield self._ends(batch.column("id"), batch.column("token"), payloads)

    def delivered(self, delivery: Delivery) -> pa.RecordBatch:
        ids = pa.array(list(delivery.ids), pa.int64())
        payloads = [payload for run in delivery.runs for payload in decoded(run.payloads, run.options.codec)]
        return self._ends(ids, pa.array([delivery.token] * len(ids), pa.int64()), payloads)

    def _ends(self, ids: pa.Array, tokens: pa.Array, payloads: list[Any]) -> pa.RecordBatch:
        results = iter(self._results([payload for payload in payloads if type(payload) is not UnreadablePayload]))
        ends = [payload.error if type(payload) is UnreadablePayload else next(results) for payload in payloads]
        told = [as_end(end) if end is not None else NOTHING for end in ends]
        columns = dict(zip(ENDS_SCHEMA.names, (ids, tokens, *map(list, zip(*told, strict=True))), strict=True))
        return pa.RecordBatch.from_pydict(columns, schema=ENDS_SCHEMA)

    def _results(self, payloads: list[Any]) -> list[Any]:
        if not payloads:
            return []
        try:
            given: Any = self._function(payloads)
            if given is None or isinstance(given, str | bytes | Mapping):
                raise TypeError(
                    f"the function returned {type(given).__name__}: return a list with one result for each job"
                )
            results = list(given)
            if len(results) != len(payloads):
                raise ValueError(f"{len(results)} results for {len(payloads)} jobs: return one for each")
        except Exception as error:
            return [error] * len(payloads)
        return results


class UnreadablePayload:
    """Stands for a payload that cannot be decoded with its codec."""

    def __init__(self, error: Exception) -> None:
        self.error = error


DECODE: dict[str, Callable[[bytes], Any]] = {"msgpack": msgspec.msgpack.decode, "json": msgspec.json.decode}


def decoded(payloads: Sequence[bytes], codec: str) -> Sequence[Any]:
    decode = DECODE.get(codec)
    return payloads if decode is None else [opened(payload, decode) for payload in payloads]


def opened(payload: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        return decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return UnreadablePayload(error)


End = tuple[bytes | None, str | None, str | None, str | None, str | None, str | None, int | None]
"""Result, codec, error, class of the error, stack, verdict, delay."""
NOTHING: End = (None, None, None, None, None, None, None)
"""Completed, without a result."""


def as_end(end: Any) -> End:
    """What a function returned for a job, as columns."""
    if not isinstance(end, BaseException):
        try:
            found, codec = (end, "bytes") if type(end) is bytes else (pack(end), "msgpack")
            return found, codec, None, None, None, None, None
        except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
            end = error
    told = end.verdict if isinstance(end, Outcome) else None
    failure = Failure.of(end, with_stack=told is None)
    why = failure.error, failure.error_class, failure.stack
    return (None, None, *why, None, None) if told is None else (None, None, *why, told.kind, told.after_ms)


def plain(value: Any) -> Any:
    """Converts numpy numbers and arrays, and other values that can convert themselves."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"a result of type {type(value).__name__} cannot be encoded: return text, numbers, lists or maps")


pack = msgspec.msgpack.Encoder(enc_hook=plain).encode
