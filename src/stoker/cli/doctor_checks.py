"""What `stoker doctor` checks besides a data directory: this machine, the connection to a server, and its queues.

Every check returns findings: what was checked, what was found, what to do about it. Checks change nothing.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from stoker.cli.formatting import now_ms, plain, wait, when
from stoker.cli.queue_snapshot import QueueFacts, oldest_waiting, take_snapshot
from stoker.cli.wait_reasons import unknown_name
from stoker.maintenance import Finding
from stoker.model.errors import StokerError
from stoker.model.states import State
from stoker.model.version import __version__
from stoker.model.wording import lasting, many, size

if TYPE_CHECKING:
    from stoker import Client
    from stoker.cli.queue_snapshot import QueueSnapshot
    from stoker.model.workers import WorkerView

FILES_LOW = 1_024
"""A server needs one for each connection, and some for its log."""
MEMORY_LOW_BYTES = 256 << 20
CLOCK_BEHIND = 1_767_225_600
"""The first second of 2026: an earlier clock was never set."""
SKEW_MS = 5_000
IDLE_MS = 60_000
"""A job that has waited longer, while no worker finished anything, is suspicious."""
OLD_MS = 3_600_000
RECENT_MS = 3_600_000
PINGS = 10
PING_SLOW_MS = 50.0
STRANGERS_LOOKED_AT = 200
"""How many of the newest delayed and waiting jobs of a queue are checked."""
PACKAGES = ("msgspec", "uvloop", "apsw", "click", "rich")


# --- this machine ------------------------------------------------------------------------------------


def machine() -> list[Finding]:
    return [versions(), open_files(), memory(), clock()]


def versions() -> Finding:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    words = f"stoker {__version__}; {', '.join(found)}"
    if "no uvloop" in found and sys.platform != "win32":
        return Finding("versions", "warning", words, "install uvloop: a server is several times as fast with it")
    return Finding("versions", "ok", words)


def open_files() -> Finding:
    try:
        import resource
    except ImportError:
        return Finding("open files", "ok", "not limited here")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft:,}; a process can raise it to {hard:,}"
    if 0 <= soft < FILES_LOW:
        return Finding("open files", "warning", found, f"each connection needs one: ulimit -n {min(hard, 65_536)}")
    return Finding("open files", "ok", found)


def memory() -> Finding:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            facts = dict(line.split(":", 1) for line in file)
        free = int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return Finding("memory", "ok", "not known here")
    if free < MEMORY_LOW_BYTES:
        return Finding("memory", "warning", f"{size(free)} available", "stop other programs, or add memory")
    return Finding("memory", "ok", f"{size(free)} available")


def clock() -> Finding:
    found = time.strftime("%Y-%m-%d %H:%M:%S %z")
    if time.time() < CLOCK_BEHIND:
        return Finding("clock", "problem", found, "set the clock: delays, leases and schedules go by it")
    return Finding("clock", "ok", found)


# --- the connection ----------------------------------------------------------------------------------


def connection(client: "Client") -> list[Finding]:
    """How long an answer takes, and which server answers."""
    times = []
    try:
        for _ in range(PINGS):
            began = time.perf_counter()
            client.kv_exists(["stoker:doctor"])
            times.append((time.perf_counter() - began) * 1_000)
    except StokerError as error:
        if error.code not in ("forbidden", "unauthenticated"):
            return [Finding("connection", "problem", plain(error.message), "check the server and the URL")]
        return [Finding("connection", "problem", plain(error.message), "give a token with --token or STOKER_TOKEN")]
    times.sort()
    middle = times[len(times) // 2]
    found = f"answers in {middle:.2f} ms, at worst in {times[-1]:.2f} ms, of {PINGS}"
    if middle > PING_SLOW_MS:
        advice = "it is far away or busy: push in batches, and let workers pull many at once"
        return [Finding("connection", "warning", found, advice), *server(client)]
    return [Finding("connection", "ok", found), *server(client)]


def redis(client: "Client") -> Iterator[Finding]:
    """What a Redis server says about itself, and what that means for a queue."""
    broker: Any = client.broker
    said = broker.server(client.tenant)
    yield Finding("redis", "ok", f"version {said.version}, memory {said.eviction or 'without a bound'}")
    lost = {
        "memory": ("what was pushed since its last snapshot, if Redis stops", "set appendonly yes"),
        "commit": ("about a second, two behind a slow disk, if the machine stops", ""),
        "fsync": ("nothing, if the machine stops", ""),
    }[said.level]
    found = f"{said.level}: you can lose {lost[0]}"
    yield Finding("durability", "warning" if said.level == "memory" else "ok", found, lost[1])
    if said.replicas:
        found = f"{many(said.replicas, 'replica')} may lag: a failover can cost changes, and make two leases valid"
        yield Finding("replicas", "warning", found, "make handlers safe to run twice")


def server(client: "Client") -> Iterator[Finding]:
    """What a server says about itself in its greeting."""
    from stoker.brokers.remote.broker import RemoteBroker
    from stoker.brokers.remote.failover import FailoverLinks
    from stoker.brokers.remote.links import LinkLost, greet, read_head
    from stoker.brokers.remote.opening import links_for
    from stoker.wire import native

    broker = client.broker
    if getattr(broker, "name", "") == "redis":
        yield from redis(client)
    if not isinstance(broker, RemoteBroker) or broker.address.scheme.startswith("grpc"):
        return
    try:
        link = FailoverLinks(links_for(broker.address.scheme), broker.address, broker.settings).connect()
        try:
            frame = link.call(greet(broker.settings), broker.settings.timeout_s)
        finally:
            link.close()
        welcome = native.FORMATS[broker.settings.codec].anything(read_head(frame, broker.settings.codec).body)
    except (StokerError, LinkLost, OSError) as error:
        yield Finding("server", "warning", f"did not describe itself: {plain(str(error))}", "is it another release?")
        return
    rights = ", ".join(welcome.get("permissions", ()))
    found = f"stoker {welcome.get('version')}, {welcome.get('shards')} shards; you may {rights or 'do nothing'}"
    if welcome.get("version") != __version__:
        yield Finding("server", "warning", found, f"this is stoker {__version__}: use the same release on both sides")
    else:
        yield Finding("server", "ok", found)


# --- the queues --------------------------------------------------------------------------------------


def queues(client: "Client") -> list[Finding]:
    """What is paused, limited or stuck, and why."""
    now = take_snapshot(client)
    found = [totals(now), *skew(client, now), *workers(now)]
    for queue in now.queues:
        found += about(client, queue, {name for worker in now.workers for name in worker.queues})
        found += strangers(client, queue, now.workers)
    return found


def totals(now: "QueueSnapshot") -> Finding:
    counts, sums = now.stats.counts, now.stats.totals
    live = (
        f"{counts.waiting:,} waiting, {counts.delayed:,} delayed, {counts.blocked:,} blocked, {counts.active:,} active"
    )
    found = f"{many(now.queues_total, 'queue')}; {live}; {many(counts.failed, 'dead letter')}"
    if sums.evicted:
        advice = "dead letters were dropped because there were too many: handle them sooner, or keep more"
        return Finding("jobs", "warning", f"{found}; {sums.evicted:,} evicted", advice)
    return Finding("jobs", "ok", found)


def skew(client: "Client", now: "QueueSnapshot") -> Iterator[Finding]:
    """Whether the queue's clock is ahead of this machine's."""
    newest = next(iter(client.browse(limit=1).jobs), None)
    ahead = max([0, *(one.seen_at - now.at for one in now.workers), newest.pushed_at - now.at if newest else 0])
    if ahead > SKEW_MS:
        advice = "set the clocks by NTP: delays, deadlines and schedules go by the clock of the queue"
        yield Finding("clocks", "warning", f"the queue's clock is {lasting(ahead)} ahead of this machine's", advice)


def workers(now: "QueueSnapshot") -> Iterator[Finding]:
    if not now.workers:
        if now.stats.counts.waiting and not now.stats.completed_last_minute:
            yield Finding("workers", "warning", "none, and jobs wait", "start one: stoker worker module:app")
        else:
            yield Finding("workers", "ok", "none is registered")
        return
    slots, running = sum(one.slots for one in now.workers), sum(one.running for one in now.workers)
    yield Finding("workers", "ok", f"{many(len(now.workers), 'worker')}, {running:,} of {slots:,} slots busy")
    for one in now.workers:
        quiet = one.seen_at - one.polled_at if one.polled_at else 0
        if quiet > IDLE_MS and one.running < one.slots and not one.stopping:
            found = f"{plain(one.id)} has free slots and has not polled for {lasting(quiet)}"
            yield Finding("workers", "warning", found, "look at its log and its health page; restart it")


def about(client: "Client", queue: QueueFacts, worked_on: set[str]) -> Iterator[Finding]:
    """The problems of one queue; a healthy queue has no line."""
    name, counts = f"queue {queue.name}", queue.stats.counts
    yield from waiting(client, queue, worked_on)
    policy = queue.policy
    if policy is not None and counts.failed:
        fresh = client.list_dead(queue.name, entered_from=now_ms() - RECENT_MS, limit=100).jobs
        most = policy.dead_letters.entries_max
        if counts.failed > 0.9 * most:
            advice = f"the oldest leave when there are {most:,}: stoker dlq export {queue.name}, then retry or purge"
            yield Finding(name, "warning", f"{many(counts.failed, 'dead letter')}, nearly full", advice)
        elif fresh:
            more = "at least " if len(fresh) == 100 else ""
            last = plain(fresh[-1].error or fresh[-1].reason)[:100]
            found = f"{more}{many(len(fresh), 'dead letter')} in the last hour; job {fresh[-1].id}: {last}"
            yield Finding(name, "warning", found, f"stoker dlq list {queue.name}; stoker dlq retry {queue.name}")


def waiting(client: "Client", queue: QueueFacts, worked_on: set[str]) -> Iterator[Finding]:
    counts, policy = queue.stats.counts, queue.policy
    if not counts.waiting or policy is None:
        return
    name = f"queue {queue.name}"
    if policy.paused:
        yield Finding(name, "warning", f"paused, and {wait(counts.waiting)}", f"stoker queue resume {queue.name}")
        return
    oldest = oldest_waiting(client, queue.name)
    if oldest is None:
        return
    age = now_ms() - oldest.pushed_at
    found = f"{wait(counts.waiting)}, the oldest since {when(oldest.pushed_at)}"
    why = client.why(oldest.id)
    if why.rate_limited_until or why.no_free_slot:
        found = f"held back by its {'rate limit' if why.rate_limited_until else 'limit on active jobs'}; {found}"
        if age > OLD_MS:
            yield Finding(name, "warning", found, f"raise the limit if you can: stoker queue limit {queue.name}")
        else:
            yield Finding(name, "ok", found)
    elif age > IDLE_MS and not counts.active and not queue.stats.completed_last_minute:
        whom = "its workers take nothing" if queue.name in worked_on else "no worker pulls"
        yield Finding(name, "warning", f"{found}, and {whom}", f"stoker worker module:app --queue {queue.name}")
    elif age > OLD_MS:
        yield Finding(name, "warning", found, "add workers, or slots to each of them")


def strangers(client: "Client", queue: QueueFacts, workers: "Sequence[WorkerView]") -> Iterator[Finding]:
    """Jobs without a handler in any worker of the queue. Workers hand them back, so they are mostly delayed."""
    counts = queue.stats.counts
    if not (counts.delayed or counts.waiting):
        return
    told: set[str] = set()
    for state in (State.DELAYED, State.WAITING):
        for job in client.browse(queue.name, state, limit=STRANGERS_LOOKED_AT).jobs:
            name, unknown = job.options.name or "", unknown_name(job, workers)
            if unknown and name not in told:
                told.add(name)
                advice = f"correct the name where it is pushed, or deploy a worker that has it: stoker job why {job.id}"
                yield Finding(f"queue {queue.name}", "warning", f"job {job.id} cannot run: {unknown}", advice)


def worst(findings: Sequence[Finding]) -> str:
    order = ("ok", "warning", "problem")
    return max((one.status for one in findings), key=order.index, default="ok")
