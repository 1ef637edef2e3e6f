"""A driver that may be killed at any moment: it fills a lake, writes to queues and works jobs off, until all is done.

`python -m tests.spark_cluster.random_work FOLDER SEED`, in a process of its own. What it has to do is in a file there.
It keeps nothing but what the lake, the checkpoints and the queue keep: whoever comes after it begins everything again.
What fails because something else was killed is tried again here. It ends with 0 when there is nothing left to do.
"""

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import stoker
import stoker.spark
from stoker.brokers.remote.settings import RemoteSettings
from stoker.model.errors import Unavailable, Unknown
from stoker.spark.fleet.rounds import RoundFailed
from stoker.spark.lake import running
from stoker.spark.lake.compaction import compact
from stoker.spark.lake.layout import Lake
from tests.spark_cluster.cluster import INSTALLED, SETTINGS

log = logging.getLogger(__name__)

LOCAL = "local[2,8]"
"""A task whose process was killed is tried again, as on a cluster."""
ROWS = 60
"""Of each DataFrame that is written."""
AT_ONCE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Rows are few: to compile classes for them takes longer than they do."""
LEASE = "6s"
"""So long jobs are in the hand of the dead."""
EXPECTED = (PySparkException, Py4JJavaError, RoundFailed, Unavailable, Unknown)
"""What a driver is told when one of its processes was killed, or the server."""
TRIES_MAX = 40
"""Nothing fails so often because of kills."""
DEAD, SURPRISED = 3, 4
"""How a driver ends that has lost its JVM, and one to which something happened that no kill explains."""
PLAN = "plan.json"


class Plan(msgspec.Struct, frozen=True):
    """What drivers have to do."""

    url: str
    since: int
    """The lake tells of what happened in this millisecond or later."""
    subjects: tuple[str, ...]
    master: str = LOCAL
    at_once: int = 400
    """Records in a batch."""
    versions: int = 2
    """So many DataFrames are written, one after another."""
    turns: int = 1
    """So often something is done to the lake while the others work."""


@dataclass(frozen=True)
class Work:
    """The same for one driver, and with what it does it."""

    spark: SparkSession
    folder: Path
    plan: Plan
    chance: random.Random
    others: int
    """So much is done besides the lake, which ends after all of it, and tells of it."""
    done: list[str]

    @property
    def lake(self) -> str:
        return f"file://{self.folder}/lake"


def up(folder: Path, pid: int) -> Path:
    """The file that says that a driver works now, with the name of its application."""
    return folder / f"up-{pid}"


# --- subjects ----------------------------------------------------------------------------------------


def fill(work: Work) -> None:
    """Take what happens into the lake, in one way or another; at last everything."""
    for _ in range(work.plan.turns):
        work.chance.choice((take_in, follow, tidy) if is_begun(work) else (take_in,))(work)
    while len(work.done) < work.others:
        time.sleep(0.1)
    take_in(work)
    tidy(work)


def options(work: Work) -> dict[str, str]:
    return {"url": work.plan.url, "maxRecordsPerTrigger": str(work.plan.at_once)}


def take_in(work: Work) -> None:
    """As `stoker pipeline backfill` does, or `run` where the lake is begun."""
    since = datetime.fromtimestamp(work.plan.since / 1000, UTC)
    try:
        running.backfill(work.spark, work.lake, options(work), since)
    except running.LakeBegun:
        running.run(work.spark, work.lake, options(work))


def follow(work: Work) -> None:
    """As `stoker pipeline stream` does, for a moment; meanwhile the lake is compacted."""
    trigger = {"processingTime": "200 milliseconds"}
    query = running.start(work.spark, Lake(work.spark, work.lake), options(work), trigger)
    try:
        tidy(work)
        query.awaitTermination(work.chance.randrange(1, 4))
    finally:
        query.stop()


def tidy(work: Work) -> None:
    """As `stoker pipeline compact` does."""
    compact(Lake(work.spark, work.lake, make=False))


def is_begun(work: Work) -> bool:
    return any((work.folder / "lake" / "_checkpoint" / "offsets").glob("[0-9]*"))


def copy(work: Work) -> None:
    """A job in `copies` for each job that was pushed to `orders`: its payload is the number of that."""
    about = {"queues": "orders", "events": "pushed", "startingOffsets": "earliest"}
    pushed = work.spark.readStream.format("stoker").options(**options(work), **about).load()
    writer = pushed.selectExpr("cast(job as string) as payload").writeStream.format("stoker")
    writer = writer.options(url=work.plan.url, queue="copies", checkpointLocation=f"file://{work.folder}/copied")
    ended(writer.trigger(availableNow=True).start())


def write(work: Work) -> None:
    """DataFrames, each in a transaction of its own, into three queues. Those of before are written again."""
    for version in range(work.plan.versions):
        rows = work.spark.range(version * ROWS, (version + 1) * ROWS, numPartitions=2)
        named = rows.selectExpr("cast(id as string) as payload", "concat('rows-', cast(id % 3 as string)) as queue")
        writer = named.write.format("stoker").mode("append").options(url=work.plan.url)
        writer.options(txnAppId="random", txnVersion=str(version)).save()


def process(work: Work) -> None:
    """The jobs of `numbers`, to their doubles."""
    while not worked_off(work, "numbers"):
        stoker.spark.process(
            work.spark, "numbers", doubled, url=work.plan.url, batch=10, slots=2, lease=LEASE, wait="500ms"
        )


def process_stream(work: Work) -> None:
    """The same for `figures`, as a stream."""
    while not worked_off(work, "figures"):
        at = f"file://{work.folder}/figures"
        ended(
            stoker.spark.process_stream(
                work.spark,
                "figures",
                doubled,
                url=work.plan.url,
                checkpoint=at,
                max_in_flight=20,
                lease=LEASE,
                available_now=True,
            )
        )


def doubled(numbers: list[int]) -> Sequence[int]:
    time.sleep(0.05)  # which a handler may take: so that jobs are in hand when something dies
    return [2 * number for number in numbers]


def worked_off(work: Work, queue: str) -> bool:
    with stoker.connect(work.plan.url, settings=RemoteSettings(retry_s=60)) as client:  # its server may be dead
        counts = client.get_counts(queue)
    return counts.waiting + counts.delayed + counts.active == 0


def ended(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    finally:
        query.stop()


SUBJECTS: dict[str, Callable[[Work], None]] = {
    "lake": fill,
    "copies": copy,
    "rows": write,
    "numbers": process,
    "figures": process_stream,
}


# --- the driver --------------------------------------------------------------------------------------


def until_done(work: Work, subject: Callable[[Work], None]) -> None:
    """Again and again, whatever was killed meanwhile; if it was the JVM, nothing can be done here any more."""
    jvm = work.spark._jvm
    assert jvm is not None
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(work.spark._jsparkSession)  # else a thread has none
    for _ in range(TRIES_MAX):
        try:
            subject(work)
            work.done.append(subject.__name__)
            return
        except Exception as error:
            log.warning("%s: %s: %s", subject.__name__, type(error).__name__, str(error)[:1000])
            if not is_alive(work.spark):
                os._exit(DEAD)
            if not isinstance(error, EXPECTED):
                os._exit(SURPRISED)
    os._exit(SURPRISED)


def is_alive(spark: SparkSession) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def main(place: str, seed: str) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s")
    folder = Path(place)
    plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=Plan)
    settings = {"spark.sql.shuffle.partitions": "1", **AT_ONCE}
    if plan.master != LOCAL:
        settings |= SETTINGS | {"spark.executorEnv.PYTHONPATH": INSTALLED}
    spark = stoker.spark.session(plan.master, name="to be killed", settings=settings)
    subjects = [SUBJECTS[name] for name in plan.subjects]
    others = len(subjects) - (fill in subjects)
    work = Work(spark, folder, plan, random.Random(seed), others, [])
    beside = folder / f".{os.getpid()}"
    beside.write_text(spark.sparkContext.applicationId)
    beside.rename(up(folder, os.getpid()))
    threads = [threading.Thread(target=until_done, args=(work, subject)) for subject in subjects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # all is done: Java need not take its leave


if __name__ == "__main__":
    main(*sys.argv[1:])
