"""Requests between processes beyond the commands of the contract: the parts of commands that span processes.

One process executes a part over its own shards, in one turn like any command, and journals it. `process_router.py` says
which parts a command consists of. Clients never send parts.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stoker.engine import dependencies, pulling, shard_messages, transactions, workflow_views
from stoker.engine.parking import Parked, frozen_pull
from stoker.engine.presence import see
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.records import records as rec
from stoker.runtime import routing, usage
from stoker.runtime.shards import Shards

# --- pulls over several processes ------------------------------------------------------------------


class Looked(msgspec.Struct, frozen=True):
    """What a process has for a pull."""

    token: int
    """The highest that any of its shards has given out."""
    ready: list[str]
    """Queues that have something to give now."""
    next_at: int | None
    claimed: r.Delivery | None
    """What the claim holds here, if it is there."""


class Look(c.Command[Looked], frozen=True, gc=False):
    """Changes nothing: tells what there is for a pull over these queues, all of which live here."""

    queues: list[str]
    claim: str | None = None


class TakenJobs(msgspec.Struct, frozen=True):
    """What was given out; `late` if the token was no good any more."""

    delivery: r.Delivery
    late: bool = False


class Take(c.Command[TakenJobs], frozen=True, gc=False):
    """Give out jobs under a token that others use too, unless one as high was given out here meanwhile."""

    pull: c.Pull
    token: int
    again: bool = False
    """The same pull has used the token here already, for queues that come earlier."""


class Await(c.Command[r.Delivery], frozen=True, gc=False):
    """Wait for the first job in those queues of the pull that live here, and for its claim, from any process."""

    pull: c.Pull
    queues: list[str]


def look(shards: Shards, tenant: str, command: Look, now: int) -> Looked:
    for shard in shards:
        shard.advance(now)
    homes = [shards.home(tenant, name) for name in command.queues]
    ready, chances = [], []
    for name, shard in zip(command.queues, homes, strict=True):
        queue = shard.known_queue(tenant, name)
        if queue is not None:
            see(queue, now)
            if pulling.can_deliver(queue, now):
                ready.append(name)
        chances.append(pulling.next_chance(shard, tenant, [name], now))
    claimed = None
    if command.claim is not None:
        found = [pulling.reread_claim(shard, tenant, command.claim) for shard in shards]
        there = [delivery for delivery in found if delivery is not None]
        claimed = routing.joined(there) if there else None
    token = max(shard.token for shard in shards)
    return Looked(token, ready, min((at for at in chances if at is not None), default=None), claimed)


def take(shards: Shards, tenant: str, command: Take, now: int) -> TakenJobs:
    for shard in shards:
        shard.advance(now)
    pull, runs = command.pull, list[r.Run]()
    homes = dict.fromkeys(shards.home(tenant, name) for name in pull.queues)
    if any(shard.token >= command.token + command.again for shard in homes):
        return TakenJobs(pulling.EMPTY, late=True)
    left = pull.count
    for name in pull.queues:
        shard = shards.home(tenant, name)
        shard.token = command.token - 1
        own = msgspec.structs.replace(pull, queues=[name], count=left, wait_ms=0)
        delivery = pulling.dispatch(shard, tenant, own, now)
        if delivery is not None:
            runs += delivery.runs
            left -= len(delivery)
        if not left:
            break
    for shard in shards:
        shard.token = max(shard.token, command.token)  # none of them ever gives it out again
    if runs and pull.claim is not None:
        routing.answer_claim_waiters(shards, tenant, pull.claim)
    return TakenJobs(r.Delivery(command.token, runs) if runs else pulling.EMPTY)


def wait(shards: Shards, tenant: str, command: Await, now: int) -> "Parked | r.Delivery":
    pull = frozen_pull(command.pull)
    if pull.claim is not None:
        found = [pulling.reread_claim(shard, tenant, pull.claim) for shard in shards]
        there = [delivery for delivery in found if delivery is not None]
        if there:
            return routing.joined(there)
    for shard in shards:
        shard.advance(now)
    for name in command.queues:  # a client may have pushed since they were looked at
        own = msgspec.structs.replace(pull, queues=(name,))
        delivery = pulling.dispatch(shards.home(tenant, name), tenant, own, now)
        if delivery is not None:
            if pull.claim is not None:
                routing.answer_claim_waiters(shards, tenant, pull.claim)
            return delivery
    return routing.park(shards, Parked(tenant, pull, now + pull.wait_ms), command.queues)


# --- transactions ----------------------------------------------------------------------------------


class TransactionPart(msgspec.Struct, frozen=True):
    """What a shard knows about a transaction."""

    shard: int
    outcome: r.Transaction | None
    stages: dict[str, int]
    """How many jobs each has here."""
    has_part: bool
    level: r.Level


class FindTransaction(c.Command[list[TransactionPart]], frozen=True, gc=False):
    """What is known about a transaction here, and whether a stage has a part; refused if there is no room for all."""

    transaction: str
    stage: str = ""
    part: int | None = None
    publish: tuple[str, ...] = ()
    durability: r.Level | None = None
    """`fsync` answers when what is staged here is on disk: before the deciding shard publishes it."""


class Decide(c.Command[r.Done], frozen=True, gc=False):
    """The end of a transaction, decided by the shard that it belongs to; `staged` says what lies in which shard."""

    transaction: str
    stages: list[str] | None
    """Published are these; None aborts."""
    staged: Mapping[int, list[str]]
    durability: r.Level | None = None


def find_transaction(shards: Shards, tenant: str, command: FindTransaction, now: int) -> list[TransactionPart]:
    found = []
    for shard in shards:
        shard.advance(now)
        state = transactions.find(shard, tenant, command.transaction)
        if state is not None:
            transactions.check_publish(shard, tenant, c.Publish(command.transaction, command.publish))
            stage = state.stages.get(command.stage)
            has_part = stage is not None and command.part in stage.numbers
            jobs = {name: one.jobs for name, one in state.stages.items()}
            outcome = state.outcome
            if outcome is not None:
                outcome = msgspec.structs.replace(outcome, level=shard.level)
            found.append(TransactionPart(shard.number, outcome, jobs, has_part, shard.level))
    return found


def decide(shards: Shards, tenant: str, command: Decide, now: int) -> r.Done:
    for shard in shards:
        shard.advance(now)
    if command.stages is not None:
        publish = c.Publish(command.transaction, command.stages)
        routing.decide_publish(shards, tenant, publish, command.staged, now)
    else:
        routing.decide_abort(shards, tenant, c.Abort(command.transaction), command.staged, now)
    return r.Done()


# --- workflows and edges -----------------------------------------------------------------------------


class FindRoom(c.Command[r.Done], frozen=True, gc=False):
    """Changes nothing: refused if the tenant may not have all of these queues, which live here."""

    queues: list[str]


class FindSteps(c.Command[list[workflow_views.Standing]], frozen=True, gc=False):
    """How the steps of a workflow stand that live here."""

    workflow: int


class FindInputs(c.Command[list[workflow_views.Segment]], frozen=True, gc=False):
    """What a job that lives here depends on."""

    asked: c.GetInputs


class FindResults(c.Command[list[r.Input]], frozen=True, gc=False):
    """What the first of these jobs have given, all of which live here: as many as fit into a reply."""

    ids: list[int]
    workflow: int = 0


class FindUnknown(c.Command[list[int]], frozen=True, gc=False):
    """Which of these ids were never given here."""

    ids: list[int]


class SendLetters(c.Command[r.Done], frozen=True, gc=False):
    """Tell all others what lies here for them, now; answered when they have taken it."""


def find_room(shards: Shards, tenant: str, command: FindRoom, now: int) -> r.Done:
    for shard in shards:
        shard.check_room(tenant, [name for name in command.queues if shards.home(tenant, name) is shard])
    return r.Done()


def find_steps(shards: Shards, tenant: str, command: FindSteps, now: int) -> list[workflow_views.Standing]:
    for shard in shards:
        shard.advance(now)
    return routing.standings(shards, tenant, command.workflow)


def find_inputs(shards: Shards, tenant: str, command: FindInputs, now: int) -> list[workflow_views.Segment]:
    shard = shards.by_id(command.asked.id)
    shard.advance(now)
    return workflow_views.segments(shard, tenant, command.asked)


def find_results(shards: Shards, tenant: str, command: FindResults, now: int) -> list[r.Input]:
    return workflow_views.results_of(shards.by_id, tenant, command.ids, command.workflow, now)


def find_unknown(shards: Shards, tenant: str, command: FindUnknown, now: int) -> list[int]:
    return [job_id for job_id in command.ids if not dependencies.is_known(shards.by_id(job_id), job_id)]


# --- messages between shards of different processes ------------------------------------------------


class Letter(msgspec.Struct, frozen=True):
    """A message from shard to shard, with its number."""

    sender: int
    to: int
    number: int
    tenant: str
    message: rec.Message


class Letters(c.Command[list[Letter]], frozen=True, gc=False):
    """The messages that lie here for these shards, in order. Answered when they are on disk. Else a sender could forget
    a message that its receiver has taken, and give its number to another."""

    to: list[int]
    durability: r.Level | None = "fsync"


class TakeLetters(c.Command[r.Done], frozen=True, gc=False):
    """Do what the letters ask for, unless that has been done. Answered when it is on disk: then they are forgotten."""

    letters: list[Letter]
    durability: r.Level | None = "fsync"


class Arrived(c.Command[r.Done], frozen=True, gc=False):
    """The letters were taken."""

    letters: list[Letter]


def letters(shards: Shards, tenant: str, command: Letters, now: int) -> list[Letter]:
    return [
        Letter(shard.number, to, number, owner, message)
        for shard in shards
        for to in command.to
        for number, (owner, message) in sorted(shard.outbox.get(to, {}).items())
    ]


def take_letters(shards: Shards, tenant: str, command: TakeLetters, now: int) -> r.Done:
    for letter in command.letters:
        shard = shards.at(letter.to)  # whose time does not pass first: what was decided before may be due to expire
        expected = shard.taken.get(letter.sender, 0) + 1
        if letter.number > expected:  # taking it would be the end of those before it
            raise errors.Unavailable(
                f"message {letter.number} of shard {letter.sender} came before {expected}: send all, in order"
            )
        shard_messages.take(shard, letter.sender, letter.number, letter.tenant, letter.message, now)
        shard.serve(now)
    return r.Done(len(command.letters))


def arrived(shards: Shards, tenant: str, command: Arrived, now: int) -> r.Done:
    for letter in command.letters:
        shard = shards.at(letter.sender)
        if letter.number in shard.outbox.get(letter.to, {}):
            shard_messages.arrived(shard, letter.to, letter.number, letter.tenant, now)
    return r.Done(len(command.letters))


# --- questions that are none of the queue's --------------------------------------------------------


class Inquire(c.Command[bytes], frozen=True, gc=False):
    """A question to the server around a process, which alone knows what it means; no shard is asked."""

    topic: str
    body: bytes = b""


FLUSHED = frozenset((FindTransaction, Decide, Letters, TakeLetters))
"""Parts that may ask for a level; `fsync` means all that happened up to them, even if they change nothing."""

READING = frozenset(
    (
        *(Look, FindTransaction, Letters, FindRoom, FindSteps, FindInputs, FindResults, FindUnknown, SendLetters),
        usage.FindUsed,
    )
)
"""Parts that change nothing."""

EXECUTE: dict[type[Any], Callable[[Shards, str, Any, int], Any]] = {
    Look: look,
    Take: take,
    Await: wait,
    FindTransaction: find_transaction,
    Decide: decide,
    FindRoom: find_room,
    FindSteps: find_steps,
    FindInputs: find_inputs,
    FindResults: find_results,
    FindUnknown: find_unknown,
    usage.FindUsed: usage.find_used,
    Letters: letters,
    TakeLetters: take_letters,
    Arrived: arrived,
}

REPLIES: dict[type[Any], Any] = {
    Look: Looked,
    Take: TakenJobs,
    Await: r.Delivery,
    FindTransaction: list[TransactionPart],
    Decide: r.Done,
    FindRoom: r.Done,
    FindSteps: list[workflow_views.Standing],
    FindInputs: list[workflow_views.Segment],
    FindResults: list[r.Input],
    FindUnknown: list[int],
    usage.FindUsed: usage.Used,
    SendLetters: r.Done,
    Letters: list[Letter],
    TakeLetters: r.Done,
    Arrived: r.Done,
    Inquire: bytes,
}
"""What each is answered with."""
