"""`stoker.spark.process`: works through a queue in rounds, each a Spark job.

The driver makes the claims of a round, one for each task, and so knows its jobs; tasks ask for them again by name. When
Spark has finished the round, the driver settles it. Several rounds are under way at once, so that neither the queue nor
the executors wait while the others start a Spark job.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest, StokerError
from stoker.model.units import Duration, duration_ms
from stoker.spark.arrow_bytes import unpacked
from stoker.spark.connecting import connect
from stoker.spark.fleet.leases import Leases
from stoker.spark.fleet.settling import Ends, SettleOutcome, check_columns, read_ends, settle
from stoker.spark.fleet.work import ENDS_SCHEMA, JOBS, Applied, Claiming, Handler, Pulled, Worked
from stoker.spark.options import QueueConnection, check_name

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

ERRORS = 10
"""Errors that are kept to look at."""

Transformation = Callable[["DataFrame"], "DataFrame"]


class RoundFailed(StokerError):
    """Spark could not finish a round. Its jobs wait again, as if they had never been taken."""

    code = "round_failed"


@dataclass
class Round:
    """The outcomes of a fleet's jobs so far."""

    rounds: int = 0
    taken: int = 0
    completed: int = 0
    failed: int = 0
    snoozed: int = 0
    """Put off by a `Snooze`: they come again later."""
    released: int = 0
    """Left out by the transformation: they wait again."""
    lost: int = 0
    """Settled too late: their leases had ended, and another worker has them."""
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
    ahead: int = 2,
    lease: Duration = "60s",
    rounds: int | None = None,
    wait: Duration = 0,
) -> Round:
    """Work through a queue with Spark: until it is empty, or for a number of `rounds`.

    `function` takes a list of decoded payloads and returns a result, or an exception, for each. `transform` takes a
    DataFrame of jobs (`id`, `payload`, ...) and returns one with `id` and perhaps `result` (bytes or text), `codec` and
    `error`; jobs that it leaves out go back to their queue, and a round of which it leaves out everything is the last.
    Each of the `slots` tasks of a round gets `batch` jobs, and `ahead` rounds are under way at once: there are never
    more jobs in hand than that. `wait` is how long to wait for jobs in an empty queue.

    If Spark fails (a task that failed too often, an invalid transformation), the jobs are released at once and
    `RoundFailed` is raised: no attempt is lost.
    """
    check_work(function, transform)
    counts = {"batch": batch, "ahead": ahead, "slots": 1 if slots is None else slots}
    for name, number in (counts | {"rounds": 1 if rounds is None else rounds}).items():
        if type(number) is not int or number < 1:
            raise InvalidRequest(f"{name} = {number!r}: expected a whole number of at least 1")
    lease_ms, wait_ms = milliseconds("lease", lease), milliseconds("wait", wait)
    claiming = Claiming(QueueConnection(url, token, tenant), names_of(queue), batch, lease_ms)
    work = Transformed(spark, transform) if transform is not None else Handled(spark, function)
    fleet = Fleet(spark, claiming, work, slots or parallelism(spark), wait_ms, rounds)
    fleet.run(ahead)
    return fleet.done


def check_work(function: Any, transform: Any) -> None:
    """Checked before any job is taken: a mistake here would cost all of them an attempt."""
    if (function is None) == (transform is None):
        raise InvalidRequest("give either a function or a transformation of DataFrames")
    name, given = ("function", function) if function is not None else ("transform", transform)
    if not callable(given):
        raise InvalidRequest(f"{name} = {given!r:.80}: expected something callable")


def names_of(queue: str | Sequence[str]) -> tuple[str, ...]:
    queues = (queue,) if isinstance(queue, str) else tuple(queue)
    if not queues:
        raise InvalidRequest("no queues: name at least one")
    for name in queues:
        check_name("queue", name)
    return queues


def milliseconds(name: str, given: Duration) -> int:
    try:
        return duration_ms(given)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"{name} = {given!r}: {error}") from None


def parallelism(spark: "SparkSession") -> int:
    context = context_of(spark)
    if context is None:
        raise InvalidRequest("this session does not say how many tasks run at once: set slots")
    return int(context.defaultParallelism)


def context_of(spark: "SparkSession") -> "SparkContext | None":
    """None for a session of Spark Connect, which has no context."""
    try:
        return spark.sparkContext
    except AttributeError:
        return None


class Handled:
    """A function as the work of a round."""

    def __init__(self, spark: "SparkSession", function: Handler | None) -> None:
        assert function is not None
        self._spark, self._applied = spark, Applied(function)

    def __call__(self, pulled: Pulled, claims: int) -> pa.Table:
        worked = Worked(pulled, self._applied)
        context = context_of(self._spark)
        if context is not None:  # a plain RDD needs no planning, which would take longer than such a round
            told: list[bytes] = context.parallelize(range(claims), claims).mapPartitions(worked.ends).collect()
        else:
            told = numbers(self._spark, claims).mapInArrow(worked, "ends binary").toArrow().column("ends").to_pylist()
        ends = unpacked(told)
        return ends if ends is not None else ENDS_SCHEMA.empty_table()


class Transformed:
    """A transformation as the work of a round. It is called by one thread at a time."""

    def __init__(self, spark: "SparkSession", transform: Transformation) -> None:
        self._spark, self._transform = spark, transform
        self._lock = threading.Lock()

    def __call__(self, pulled: Pulled, claims: int) -> pa.Table:
        from stoker.spark.schemas import arrow_schema

        with self._lock:
            ends = self._transform(numbers(self._spark, claims).mapInArrow(pulled, JOBS))
        return ends.select(*check_columns(arrow_schema(ends.schema, ENDS_SCHEMA.names), ("id",))).toArrow()


def numbers(spark: "SparkSession", claims: int) -> "DataFrame":
    """A task for each claim, with its number: nothing to send and nothing to shuffle."""
    return spark.range(0, claims, 1, claims)


class Fleet:
    """Runs rounds, each in its own thread."""

    def __init__(
        self,
        spark: "SparkSession",
        claiming: Claiming,
        work: Callable[[Pulled, int], pa.Table],
        slots: int,
        wait_ms: int,
        rounds: int | None,
    ) -> None:
        self.done = Round()
        self._spark, self._claiming, self._work = spark, claiming, work
        self._slots, self._wait_ms, self._rounds = slots, wait_ms, rounds
        self._changed = threading.Condition()
        self._names = (f"spark:{run}:{number}" for run in [uuid4().hex[:12]] for number in count())
        """Names of rounds. None is used twice, because its claims would bring the jobs of the earlier one."""
        self._begun = 0
        self._under_way = 0
        self._nothing_there = False
        """Whether the last look found nothing; a round that ends may change it."""
        self._stopped = False

    def run(self, ahead: int) -> None:
        from pyspark import inheritable_thread_target

        with ThreadPoolExecutor(ahead, "stoker-fleet") as pool:
            lanes = [pool.submit(inheritable_thread_target(self._spark)(self._lane)) for _ in range(ahead)]
            try:
                for lane in lanes:
                    lane.result()
            finally:
                self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _lane(self) -> None:
        try:
            with connect(self._claiming.connection) as client:
                while (name := self._begin()) is not None:
                    worked = False
                    try:
                        worked = self._round(client, name)
                    finally:
                        self._end(worked)
        except BaseException:
            self._stop()
            raise

    def _begin(self) -> str | None:
        """The name of the next round; None if there is none. An empty queue may still get jobs from rounds under
        way.
        """
        with self._changed:
            while not self._stopped and self._nothing_there and self._under_way:
                self._changed.wait()
            if self._stopped or self._nothing_there or self._begun == self._rounds:
                return None
            self._begun += 1
            self._under_way += 1
            return next(self._names)

    def _end(self, worked: bool) -> None:
        with self._changed:
            self._under_way -= 1
            self._begun -= not worked and self._rounds is not None
            self._nothing_there = not worked
            self._changed.notify_all()

    def _round(self, client: Client, name: str) -> bool:
        """Returns whether anything was done: if not, the queue is empty, or the transformation leaves all of it out."""
        claims: dict[str, FleetClaim] = {}
        with Leases(self._claiming.connection, self._claiming.lease_ms) as leases:
            try:
                self._claim(client, name, claims)
                if not claims:
                    return False
                leases.hold(*claims)
                table = self._work(Pulled(self._claiming, tuple(claims)), len(claims))
                return self._settle(client, claims, shared_out(claims, read_ends(table)))
            except BaseException as error:
                release(client, claims)
                if isinstance(error, StokerError) or not isinstance(error, Exception):
                    raise
                jobs = sum(len(claim.ids) for claim in claims.values())
                raise RoundFailed(f"Spark could not finish a round; its {jobs} jobs wait again: {error}") from error

    def _claim(self, client: Client, name: str, claims: "dict[str, FleetClaim]") -> None:
        """Make the claims of a round. Only the first one waits: if it finds nothing, the queue is empty."""
        for slot in range(self._slots):
            claim = f"{name}:{slot}"
            delivery = self._claiming.pull(client, claim, 0 if claims else self._wait_ms)
            if not len(delivery):
                return
            claims[claim] = FleetClaim(delivery.token, delivery.ids)

    def _settle(self, client: Client, claims: "dict[str, FleetClaim]", ends: "dict[str, Ends]") -> bool:
        taken = released = 0
        outcome = SettleOutcome()
        for name, claim in claims.items():
            settled = settle(client, claim.token, ends[name], claim.ids)
            outcome.completed += settled.completed
            outcome.failed += settled.failed
            outcome.snoozed += settled.snoozed
            outcome.errors += settled.errors
            taken += len(claim.ids)
            if len(ends[name].ids) < len(claim.ids):
                released += client.release_claim(name).count  # jobs that the transformation left out
        with self._changed:
            done = self.done
            done.rounds += 1
            done.taken += taken
            done.completed += outcome.completed
            done.failed += outcome.failed
            done.snoozed += outcome.snoozed
            done.released += released
            done.lost += taken - outcome.completed - outcome.failed - outcome.snoozed - released
            done.errors = [*done.errors, *outcome.errors][:ERRORS]
        return released == 0 or bool(outcome.completed or outcome.failed or outcome.snoozed)


@dataclass(frozen=True)
class FleetClaim:
    """What the driver knows of a claim."""

    token: int
    ids: Sequence[int]


def shared_out(claims: dict[str, FleetClaim], ends: Ends) -> dict[str, Ends]:
    """Split the outcomes by claim. Raises `InvalidRequest` for a job that is not in this round."""
    own = list(chain.from_iterable(claim.ids for claim in claims.values()))
    found: dict[str, Ends] = {}
    if ends.ids == own:  # the usual case: functions, and most transformations
        start = 0
        for name, claim in claims.items():
            found[name] = ends.between(start, start + len(claim.ids))
            start += len(claim.ids)
        return found
    places = {job: place for place, job in enumerate(ends.ids)}
    strange = places.keys() - set(own)
    if strange:
        raise InvalidRequest(f"the transformation returned job {min(strange)}, which is not in this round")
    for name, claim in claims.items():
        found[name] = ends.at([places[job] for job in claim.ids if job in places])
    return found


def release(client: Client, claims: dict[str, Any]) -> None:
    """Release the claims. If the queue cannot be reached, their leases end by themselves."""
    for claim in claims:
        with suppress(StokerError):
            client.release_claim(claim)
