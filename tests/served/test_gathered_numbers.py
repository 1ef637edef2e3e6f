"""Numbered pushes that a turn carries out together: sent again, refused or cut off by a crash, each makes one job."""

import asyncio
import random
import sys
from functools import partial
from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.engine.gathered import GatheredPushes
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Refused
from stoker.model.ids import shard_for
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Options
from stoker.records import records as rec
from stoker.server import push_batching
from stoker.server.dispatcher import Dispatcher
from tests.served.on_loop import PATIENCE_S
from tests.soaking import SOAKS

NOW = 1_700_000_000_000
PLAIN = Options(priority=3)


def sent(number: int, sender: str = "web-1", settled: int = 0, payload: bytes = b"") -> c.Push:
    return c.Push("q", payload or f"{sender}/{number}".encode(), sending=c.Sending(sender, number, settled))


async def turn(dispatcher: Dispatcher, pushes: list[c.Push]) -> list[Any]:
    """The replies to pushes that come in one turn."""
    replies: list[Any] = [None] * len(pushes)
    left = len(pushes)
    done = asyncio.Event()

    def told(place: int, reply: Any) -> None:
        nonlocal left
        replies[place] = reply
        left -= 1
        if not left:
            done.set()

    for place, push in enumerate(pushes):
        dispatcher.submit("default", push, partial(told, place))
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    return replies


def payloads_in(broker: LocalBroker, queue: str = "q") -> list[bytes]:
    delivery = broker.execute("default", c.Pull([queue], 10_000))
    return [payload for run in delivery.runs for payload in run.payloads]


def in_turns(*turns: list[c.Push], limits: Limits = DEFAULT_LIMITS) -> tuple[list[list[Any]], list[bytes]]:
    """The replies to each turn, and the payloads that are in the queue afterwards."""

    async def main() -> tuple[list[list[Any]], list[bytes]]:
        broker = LocalBroker(LocalSettings(limits=limits))
        broker.execute("default", c.Push("q", b"the first makes the tenant known"))
        dispatcher = Dispatcher(broker)
        replies = [await turn(dispatcher, pushes) for pushes in turns]
        await dispatcher.close()
        found = payloads_in(broker)[1:]
        broker.close()
        return replies, found

    return asyncio.run(main())


def ids(replies: list[Any]) -> list[int]:
    return [reply.id for reply in replies]


# --- one job each ----------------------------------------------------------------------------------


def check_sent_again() -> None:
    """Answers of a gathered batch are lost: its pushes are sent again, in another order and among others."""
    first = [sent(number, sender) for sender in ("web-1", "web-2") for number in range(1, 6)]
    again = [*first[::-2], sent(6), *first[::2]]
    (before, after), found = in_turns(first, again)
    told = dict(zip((push.payload for push in first), ids(before), strict=True))
    for push, reply in zip(again, after, strict=True):
        assert told.get(push.payload, reply.id) == reply.id, "a push that was sent again made a second job"
    assert sorted(found) == sorted([*told, sent(6).payload]), "a push that was sent again made a second job"


def check_refused_alone() -> None:
    """A push that is refused among others is refused alone, and may be sent again: its number was not answered."""
    limits = msgspec.structs.replace(DEFAULT_LIMITS, payload_bytes_max=100)
    large = [sent(1), sent(2, payload=b"x" * 101), sent(3)]
    odd = [sent(4), sent(5, settled=6), sent(6)]
    again = [sent(2, payload=b"shorter"), sent(5)]
    replies, found = in_turns(large, odd, again, limits=limits)
    codes = [[getattr(reply, "code", "") for reply in told] for told in replies]
    refused = [["", "limit_exceeded", ""], ["", "invalid", ""], ["", ""]]
    assert codes == refused, "a refused push has the number of a job"
    expected = [b"web-1/1", b"web-1/3", b"web-1/4", b"web-1/6", b"shorter", b"web-1/5"]
    assert found == expected


def test_pushes_of_a_gathered_batch_that_are_sent_again_make_one_job_each():
    check_sent_again()


def test_a_refused_push_is_refused_alone_and_its_number_is_not_remembered():
    check_refused_alone()


def test_a_push_that_comes_twice_in_one_turn_makes_one_job():
    (replies,), found = in_turns([sent(1), sent(2), sent(1), sent(2), sent(3)])
    assert ids(replies)[:2] == ids(replies)[2:4]
    assert found == [b"web-1/1", b"web-1/2", b"web-1/3"]


def test_pushes_of_many_senders_and_of_none_are_one_batch_and_one_record_of_numbers():
    async def main() -> None:
        broker = LocalBroker(LocalSettings(shards=1))
        broker.execute("default", c.Push("q", b""))
        dispatcher = Dispatcher(broker)
        before = broker.runtime.journal.last(0)
        mixed = [sent(1), sent(2), c.Push("q", b"no number"), sent(3), sent(9, "web-2"), sent(10, "web-2")]
        replies = await turn(dispatcher, mixed)
        assert broker.runtime.journal.last(0) - before == 2
        assert ids(replies) == list(range(128, 128 + 64 * 6, 64))
        await dispatcher.close()
        broker.close()

    asyncio.run(main())


def test_a_sender_with_too_many_open_numbers_is_refused_alone():
    limits = msgspec.structs.replace(DEFAULT_LIMITS, sendings_max=4)
    (replies,), found = in_turns([*(sent(number) for number in range(1, 7)), sent(1, "web-2")], limits=limits)
    assert [getattr(reply, "code", "") for reply in replies] == ["", "", "", "", "limit_exceeded", "limit_exceeded", ""]
    assert len(found) == 5


def test_pushes_to_several_queues_and_with_several_options_keep_their_order_in_each_queue():
    async def main() -> None:
        broker = LocalBroker(LocalSettings(shards=4))
        broker.execute("default", c.Push("a", b"first"))
        dispatcher = Dispatcher(broker)
        pushes = []
        for number in range(1, 31):
            options = PLAIN if number % 7 > 4 else Options()
            queue = "abc"[number % 3]
            pushes.append(c.Push(queue, b"%d" % number, options, sending=c.Sending("web-1", number)))
        replies = await turn(dispatcher, pushes)
        for queue in "abc":
            own = [reply.id for push, reply in zip(pushes, replies, strict=True) if push.queue == queue]
            assert own == sorted(own)
        again = await turn(dispatcher, pushes)
        assert ids(again) == ids(replies)
        assert broker.execute("default", c.GetStats()).counts.waiting == 31
        await dispatcher.close()
        broker.close()

    asyncio.run(main())


# --- the same as one by one ------------------------------------------------------------------------


def drawn(chance: random.Random) -> list[c.Push]:
    """Pushes of a few senders whose numbers go up, with gaps, repetitions and what cannot be."""
    numbers = {"web-1": 1, "web-2": 1}
    pushes = []
    for place in range(60):
        sender = chance.choice([*numbers, None])
        if sender is None:
            pushes.append(c.Push("q", b"%d" % place))
            continue
        number = numbers[sender]
        if chance.random() < 0.15:
            number = max(0, number - chance.randrange(1, 6))  # sent again, or late
        else:
            numbers[sender] += chance.choice([1, 1, 1, 1, 2])
        settled = max(0, number - chance.randrange(-1, 12))
        size = 200 if chance.random() < 0.03 else 3
        pushes.append(c.Push("q", b"x" * size, sending=c.Sending(sender, number, settled)))
    return pushes


def alone(shard: Shard, push: c.Push) -> Any:
    try:
        return shard.execute("t", push, NOW)
    except Refused as error:
        return (error.code, str(error))


def together(shard: Shard, pushes: list[c.Push]) -> list[Any]:
    reply = shard.execute("t", GatheredPushes("q", pushes[0].options, pushes), NOW)
    return [alone(shard, push) for push in pushes] if reply is None else push_batching.replies_of(reply)


def test_gathered_pushes_are_answered_and_remembered_as_if_each_came_alone():
    limits = msgspec.structs.replace(DEFAULT_LIMITS, payload_bytes_max=100, sendings_max=8)
    gathered = 0
    for seed in range(150):
        chance = random.Random(seed)
        pushes = drawn(chance)
        singly, grouped = Shard(0, limits=limits), Shard(0, limits=limits)
        expected = [alone(singly, push) for push in pushes]
        told: list[Any] = []
        at = 0
        while at < len(pushes):
            count = chance.randrange(1, 12)
            told += together(grouped, pushes[at : at + count])
            at += count
        assert told == expected, f"seed {seed}"
        records = grouped.take_records()
        gathered += sum(type(record) is rec.JobsPushed and len(record.payloads) > 1 for record in records)
        assert dump(grouped)["senders"] == dump(singly)["senders"], f"seed {seed}"
        assert dump(replay(records, limits=limits)) == dump(grouped), f"seed {seed}"
    assert gathered > 150


# --- crashes ---------------------------------------------------------------------------------------


WATCHED = ("/dispatcher.py", "/push_batching.py", "/gathered.py", "/senders.py", "/runtime.py", "/pushing.py")
"""Between two lines of any other file nothing happens that a journal could notice."""


class Killed(KeyboardInterrupt):
    """The process ends here: an event loop lets this through."""


class Doomed:
    """A server process that is killed when it comes to its n-th line. Its journal has what was appended by then."""

    def __init__(self, lines: int) -> None:
        self.lines_left = lines
        self.rows: dict[int, list[rec.Record]] = {0: [], 1: []}
        self.answers: dict[bytes, int] = {}
        """By payload: the jobs of pushes that were answered."""

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        if event == "line":
            self.lines_left -= 1
            if self.lines_left == 0:
                raise Killed
        return self

    def run(self) -> bool:
        """Serve all turns. False if it was killed."""
        broker = LocalBroker(LocalSettings(shards=2))
        append = broker.runtime.journal.append

        def appended(turn: Any, **how: Any) -> None:
            append(turn, **how)
            if self.lines_left:
                for shard, records in turn:
                    self.rows[shard] += records

        broker.runtime.journal.append = appended  # type: ignore[method-assign]
        broker.execute("default", c.Push("q", b"first"))
        try:
            asyncio.run(self._serve(broker))
        except Killed:
            return False
        finally:
            broker.close()
        return True

    async def _serve(self, broker: LocalBroker) -> None:
        dispatcher = Dispatcher(broker)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of a process that is dead already
        sys.settrace(self)
        try:
            for pushes in TURNS:
                for push in pushes:
                    dispatcher.submit("default", push, partial(self._told, push))
                while not self.answers.keys() >= {push.payload for push in pushes}:  # noqa: ASYNC110  one turn a look
                    await asyncio.sleep(0)
        finally:
            sys.settrace(None)
        await dispatcher.close()

    def _told(self, push: c.Push, reply: Any) -> None:
        if self.lines_left:
            self.answers[push.payload] = reply.id


TURNS = (
    [sent(number) for number in range(1, 6)],
    [sent(6, settled=3), sent(7, settled=6), sent(1, "web-2"), c.Push("q", b"no number"), sent(2, "web-2")],
    [sent(8, settled=6), sent(7, settled=6), sent(3, "web-2"), c.Push("other", b"o/1", sending=c.Sending("web-2", 4))],
)
SETTLED = {"web-1": 6, "web-2": 0}
"""Answers below these numbers may be forgotten in the end."""


STEP = 1 if SOAKS else 3
"""In the soak a death at every line; else at every third one."""


def check_crashes() -> int:
    """Kill the server at the lines of three turns, and send again what can be sent again. Returns how many lines."""
    lines = 1
    while True:
        doomed = Doomed(lines)
        if doomed.run():
            return lines
        check_recovered(doomed)
        lines += STEP


def check_recovered(doomed: Doomed) -> None:
    """Send again what was not answered, and what is not settled: each is there once, as it was answered."""
    shards = [replay(doomed.rows[number], number) for number in (0, 1)]
    expected = {push.payload: push for pushes in TURNS for push in pushes if push.sending is not None}
    for payload, push in expected.items():
        assert push.sending is not None
        told = doomed.answers.get(payload)
        if told is None or push.sending.number >= SETTLED[push.sending.sender]:
            again = msgspec.structs.replace(push, sending=c.Sending(push.sending.sender, push.sending.number))
            reply = shards[shard_for("default", push.queue, 2)].execute("default", again, NOW)
            assert told in (None, reply.id), "a push that was sent again made a second job"
    delivered = [shard.execute("default", c.Pull(["q", "other"], 100), NOW) for shard in shards]
    found = [payload for delivery in delivered for run in delivery.runs for payload in run.payloads if b"/" in payload]
    assert sorted(found) == sorted(expected), "each push makes one job"


def test_a_crash_at_any_line_leaves_one_job_for_each_push():
    assert check_crashes() > 500


def check_gathered() -> None:
    """For the planted bugs."""
    check_sent_again()
    check_refused_alone()
    check_crashes()


# --- fairness --------------------------------------------------------------------------------------


def test_a_caller_with_a_thousand_pushes_in_flight_holds_another_up_by_no_more_than_a_turn():
    async def main() -> None:
        broker = LocalBroker(LocalSettings())
        broker.execute("default", c.Push("q", b""))
        dispatcher = Dispatcher(broker)
        turns = 0
        end = dispatcher._turns.end

        def counted() -> tuple[r.Level, int]:
            nonlocal turns
            turns += 1
            return end()

        dispatcher._turns.end = counted  # type: ignore[method-assign]
        numbers = iter(range(1, 1_000_000))

        def push_on(_: Any = None) -> None:
            dispatcher.submit("default", sent(next(numbers), "busy"), push_on)

        for _ in range(1_000):
            push_on()
        for number in range(1, 6):
            before = turns
            await turn(dispatcher, [sent(number, "quiet")])
            assert turns - before <= 2, "the turn that was open, and at most one more"
        await dispatcher.close()
        broker.close()

    asyncio.run(main())
