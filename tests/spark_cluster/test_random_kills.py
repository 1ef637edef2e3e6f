"""kill -9 at random points: of drivers, of one of their two processes, of Spark's Python processes and executors, of
the server. In the end every event, every row and every job of a fleet is there exactly once, by its id, and nobody
who reads the files of the lake ever sees a batch in part.

One seed makes one schedule: `STOKER_SEED=7 make test ARGS=tests/spark_cluster/test_random_kills.py`.
"""

import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stoker
from stoker.brokers.remote.settings import RemoteSettings
from stoker.client.sync import Client
from stoker.model.events import Event, EventKind
from stoker.model.options import Options
from tests.ports import kept_port
from tests.spark.story import live
from tests.spark_cluster.cluster import Cluster
from tests.spark_cluster.plain_lake import LAYERS, Watcher, all_contents, by_batch, expected
from tests.spark_cluster.random_kills import Kill, Killing, Server, schedule
from tests.spark_cluster.random_work import LOCAL, PLAN, ROWS, Plan

log = logging.getLogger(__name__)

SOAK = os.environ.get("STOKER_SOAK") == "1"
SEED = int(os.environ.get("STOKER_SEED", "1"))
ROUNDS = 20
ROUNDS_S = 150.0
"""No round is begun later than this: four tests take ten minutes in all."""
NUMBERS = 40
ORDERS = 12


@dataclass(frozen=True)
class Past:
    """What there was before the first driver."""

    since: int
    """The lake tells of what happened then or later."""
    numbers: list[int]
    figures: list[int]
    orders: list[int]


def make_past(client: Client) -> Past:
    """Something of everything; what is older than the lake, all but the last of it, is in a queue of its own."""
    first = since = client.get_job(client.push("before", b"").id).pushed_at
    while since == first:  # until the clock of the queue has moved
        since = client.get_job(client.push("before", b"").id).pushed_at
    payloads = [msgspec.msgpack.encode(number) for number in range(NUMBERS)]
    endless = Options(codec="msgpack", max_attempts=0, max_crashes=0)
    numbers, figures = (list(client.push_batch(name, payloads, endless).ids) for name in ("numbers", "figures"))
    orders: list[int] = []
    for number in range(ORDERS):
        live(client, seed=number, rounds=1)
        orders.append(client.push("orders", b"").id)
    return Past(since, numbers, figures, orders)


def all_events(client: Client) -> list[Event]:
    found: list[Event] = []
    for shard in range(client.read_records(0, after=2**52, bytes_max=1).shards):
        after, page = 0, client.read_events(shard)
        while page.next_after > after:
            found += page.events
            after = page.next_after
            page = client.read_events(shard, after)
    return found


@dataclass(frozen=True)
class Round:
    """Kills, and what is there after them."""

    seed: int
    hits: Sequence[str]
    client: Client
    past: Past
    plan: Plan
    lake: Path
    watcher: Watcher

    def told(self, what: object) -> str:
        return f"STOKER_SEED={self.seed}, killed {', '.join(self.hits) or 'nobody'}: {what}"

    def events(self) -> list[Event]:
        """Of which the lake tells."""
        return [event for event in all_events(self.client) if event.at >= self.past.since]

    def jobs(self, queue: str) -> list[int]:
        """The payloads of a queue, which are numbers, in the order of the ids of its jobs."""
        found: dict[int, int] = {}
        page = self.client.browse(queue, limit=1_000)
        while True:
            found |= {job.id: int(job.payload) for job in page.jobs}
            if page.next_after is None:
                return [found[job] for job in sorted(found)]
            page = self.client.browse(queue, after=page.next_after, limit=1_000)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    with kept_port() as port:
        server = Server(folder, port)
        try:
            yield server
        finally:
            server.end()


@contextmanager
def played(folder: Path, seed: int, kills: Sequence[Kill], **planned: Any) -> Iterator[Round]:
    """One round. Its log tells of it, which pytest shows if something is wrong."""
    folder.mkdir()
    log.warning("STOKER_SEED=%s %s, to be killed: %s", seed, planned, kills)
    patient = RemoteSettings(retry_s=60)
    with served(folder) as server, stoker.connect(server.url, settings=patient) as client:
        past = make_past(client)
        plan = Plan(server.url, past.since, **planned)
        (folder / PLAN).write_bytes(msgspec.json.encode(plan))
        killing = Killing(folder, server, seed, kills)
        with Watcher(folder / "lake") as watcher:
            killing.run()
        log.warning("hit: %s; the lake was looked at %s times", killing.hits, watcher.looks)
        yield Round(seed, killing.hits, client, past, plan, folder / "lake", watcher)


@pytest.fixture(scope="module")
def round(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Round]:
    """Several subjects at once: to start Spark costs more than what it does for one of them."""
    folder = tmp_path_factory.mktemp("random") / "round"
    with played(folder, SEED, schedule(SEED, drivers=1, others=3), subjects=("lake", "rows", "numbers")) as one:
        yield one


def test_every_event_is_in_bronze_once(round: Round):
    check_layer(round, "bronze")


def test_silver_has_every_attempt_and_every_job_that_ended_once(round: Round):
    check_layer(round, "attempts")
    check_layer(round, "jobs")


def test_gold_adds_up_to_the_counters_of_the_queue(round: Round):
    check_gold(round)


def test_no_batch_was_ever_seen_in_part(round: Round):
    check_watcher(round)


def test_every_row_of_a_dataframe_is_one_job(round: Round):
    check_rows(round)


def test_every_job_of_a_fleet_was_completed_once(round: Round):
    check_numbers(round)


def check_layer(round: Round, layer: str) -> None:
    found, wanted = all_contents(round.lake, layer), expected(layer, round.events())
    assert found == wanted, round.told(f"{layer}: {found - wanted} too much, {wanted - found} missing")


def check_gold(round: Round) -> None:
    check_layer(round, "minutes")
    found = all_contents(round.lake, "minutes")
    for queue in set(round.client.list_queues()) - {"before"}:
        totals = round.client.get_stats(queue).totals
        sums = {kind: found[queue, kind] for kind in ("pushed", "started", "completed", "failed", "cancelled")}
        assert sums == {kind: getattr(totals, kind) for kind in sums}, round.told(queue)
        assert found[queue, "retrying"] == totals.retried, round.told(queue)


def check_watcher(round: Round) -> None:
    assert {layer for layer, _ in round.watcher.seen} == set(LAYERS), round.told("nothing was to be seen")
    wrong = round.watcher.partial(by_batch(round.lake, round.events()))
    assert not wrong, round.told(wrong)


def check_lake(round: Round) -> None:
    for layer in ("bronze", "attempts", "jobs"):
        check_layer(round, layer)
    check_gold(round)
    check_watcher(round)


def check_copies(round: Round) -> None:
    assert sorted(round.jobs("copies")) == sorted(round.past.orders), round.told("copies")


def check_rows(round: Round) -> None:
    for part in range(3):
        rows = round.jobs(f"rows-{part}")
        assert sorted(rows) == list(range(part, round.plan.versions * ROWS, 3)), round.told(f"rows-{part}")
        versions = [row // ROWS for row in rows]
        assert versions == sorted(versions), round.told(f"rows-{part}: not one DataFrame after another")


def check_numbers(round: Round) -> None:
    check_fleet(round, "numbers", round.past.numbers)


def check_figures(round: Round) -> None:
    check_fleet(round, "figures", round.past.figures)


def check_fleet(round: Round, queue: str, ids: list[int]) -> None:
    totals = round.client.get_stats(queue).totals
    assert (totals.pushed, totals.completed, totals.failed) == (NUMBERS, NUMBERS, 0), round.told(queue)
    completed = Counter(event.job for event in all_events(round.client) if event.kind == EventKind.COMPLETED)
    assert {job: completed[job] for job in ids} == dict.fromkeys(ids, 1), round.told(queue)
    results = [msgspec.msgpack.decode(round.client.get_job(job).result or b"") for job in ids]
    assert results == [2 * number for number in range(NUMBERS)], round.told(queue)


CHECKS: dict[str, Callable[[Round], None]] = {
    "lake": check_lake,
    "copies": check_copies,
    "rows": check_rows,
    "numbers": check_numbers,
    "figures": check_figures,
}

if SOAK:

    @pytest.mark.parametrize("subjects", [("lake",), ("copies", "rows"), ("numbers", "figures")], ids="-".join)
    def test_rounds(subjects: tuple[str, ...], tmp_path: Path):
        rounds(tmp_path, subjects, LOCAL)

    def test_rounds_on_a_cluster(cluster: Cluster, tmp_path: Path):
        rounds(tmp_path, tuple(CHECKS), cluster.url)


def rounds(folder: Path, subjects: tuple[str, ...], master: str) -> None:
    """One seed after another, for a while."""
    give_up = time.monotonic() + ROUNDS_S
    for seed in range(SEED, SEED + ROUNDS):
        if time.monotonic() > give_up:
            return
        chance = random.Random(seed)
        kills = schedule(seed, drivers=chance.randrange(1, 4), others=chance.randrange(1, 6))
        planned = {"subjects": subjects, "master": master, "at_once": 50, "versions": 6, "turns": 4}
        with played(folder / str(seed), seed, kills, **planned) as one:
            for subject in subjects:
                CHECKS[subject](one)
