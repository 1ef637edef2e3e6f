"""Runs shards, journal and clock together.

A turn is: let time pass, decide, journal the records, and only then release the replies. A turn that asks for more
durability than its journal gives at once leaves a `ticket`: its replies wait until the journal has reached it. The
runtime has one owner at a time and knows neither threads nor event loops; `brokers/local` adds those.

Beside it: `levels.py` (how durable a turn has to be), `room.py` (what is refused when the disk or the memory is full),
`readers.py` (events, records and stories).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from stoker.engine import checks, dependencies, queries, schedules, workflows
from stoker.engine.dependencies import is_known
from stoker.engine.gathered import GatheredPushes
from stoker.engine.parking import Parked
from stoker.engine.settling import fail_unreadable, hand_back_unread, held_deliveries
from stoker.engine.shard import Shard
from stoker.engine.slot_pacing import SlotPace
from stoker.journal.contract import Journal
from stoker.journal.patience import hastily, patiently
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.command_table import HOT, SEARCHES
from stoker.model.ids import SYSTEM_TENANT, shard_of
from stoker.model.limits import Limits
from stoker.model.states import State
from stoker.records.stored import NotAtHand
from stoker.runtime import outbox, process_requests, routing, type_checks
from stoker.runtime.calendar import IanaCalendar
from stoker.runtime.history import HistoryRecorder
from stoker.runtime.homes import Homes
from stoker.runtime.levels import TAKES_LEVEL, Levels, asked_by, strongest
from stoker.runtime.loading import READ_MS_MAX, TRIES, Load
from stoker.runtime.memory import Memory, note_places
from stoker.runtime.payload_loading import delivery_in, filled, is_passing, look_ahead, read_and_filled, without
from stoker.runtime.readers import Readers, or_error
from stoker.runtime.room import BRINGS_DATA, Room
from stoker.runtime.shards import Shards

WALL_MS = 1_000
"""The clock on the wall is corrected a little all the time; only more than this counts as set."""
TENANTS_CHECKED_MAX = 10_000
QUICK = HOT | {GatheredPushes}
"""What a turn of several commands can send straight to its shard."""
USUAL: set[r.Level | None] = {None}
"""What the commands of a turn ask for when none asks for anything."""

NONE_WOKEN: Mapping[tuple[int, str], int] = {}


class Runtime:
    """All shards of a process."""

    def __init__(
        self,
        journal: Journal,
        answer: Callable[[Parked, Any], None],
        shards: Sequence[Shard],
        level: r.Level | None = None,
        memory_bytes_max: int = 0,
        total: int | None = None,
        history: Path | None = None,
    ) -> None:
        """`total` is the number of all shards, where other processes have some of them. `history` is the file for the
        history of the queues; without one it is in memory.
        """
        self.journal = journal
        self._levels = levels = Levels(journal, level)
        self.level = levels.usual
        """What a command gets that asks for no level."""
        self._has, self._later, self._deferred = levels.has, levels.later, levels.deferred
        self._reads_wait = journal.reads_wait
        """What the levels and the journal say, where each command finds it without a detour."""
        self.ticket = 0
        """What the replies of the last turn have to wait for; 0 = for nothing."""
        self.limits = shards[0].limits
        self.shards = Shards(shards, total)
        calendar, pace = IanaCalendar(), SlotPace()
        for shard in shards:
            shard.pace = pace
            shard.neighbours = len(shards)
            shard.level = self.level
            shard.calendar = calendar
            shard.no_room = self._no_room
            shard.is_full = self._is_full
            shard.stored_payloads, shard.expect_payloads = self._reader_of(shard.number)
            shard.knows = self._knows
        self.memory = Memory(self.shards, journal, memory_bytes_max)
        self._room = Room(journal, self.memory)
        self._reading = Readers(self.shards, journal, answer, self.advance, self._load)
        self._readers = self._reading.waiting
        self.history = HistoryRecorder(self.shards, history)
        self._reading.execute[c.GetHistory] = self.history.get
        self._reading.execute[c.GetTrends] = self.history.get_trends
        self._only = self.shards[0] if self.shards.total == 1 else None
        self._home = Homes(self.shards).of
        self._tenants: set[str] = set()
        """Names that have been checked."""
        self._answer = answer
        self._reached: r.Level = self.level
        self._asks: set[r.Level | None] = set()
        """The levels that the commands of a turn begun and not ended yet have asked for."""
        self._turn_level: r.Level | None = None
        """What those of them that are journaled already have reached."""
        self._touched: set[Shard] = set()
        """The shards that they concern."""
        self._is_flushed = False
        """Whether one of them waits for everything that happened before."""
        self._broken = False
        self._news = outbox.News(self.shards)
        self.letters: Callable[[], None] | None = None
        """Told when there is something for shards of other processes."""
        self.read_elsewhere: Callable[[Load], None]
        """Has something read on another thread, and finishes it in a turn."""
        self._unread: dict[Parked, r.Delivery] = {}
        """Deliveries whose payloads are being read."""

    def execute(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One turn with one command: its reply, or a `Parked` that will be answered later."""
        kind = type(command)
        if self._asks:
            self.commit()
        self.ticket = self._room.claimed = 0
        if kind not in HOT or type(tenant) is not str or tenant not in self._tenants:
            return self._execute_checked(tenant, command, now)
        shard = self._only or self._home(tenant, command)
        asked = command.durability if kind in TAKES_LEVEL else None  # type: ignore[attr-defined]
        level = self.level if asked is None else asked
        if shard is None or level not in self._has:
            return self._execute_checked(tenant, command, now)
        if self.journal.is_tight or (self.memory.is_full and kind in BRINGS_DATA):
            self._room.check(command)
        try:
            reply = shard.execute(tenant, command, now)
        except NotAtHand as missed:
            return self._once_more(tenant, command, missed)
        except Exception as error:
            self._after_error(command, error)
            raise
        if shard.records and not (shard.effects or self._readers or shard.queue_levels or shard.outbox):
            self._append(shard, level)
            if level in self._later:
                self.ticket = self.journal.ticket()
            if kind is not c.Pull and kind is not c.Extend and reply.level != level:
                reply = msgspec.structs.replace(reply, level=level)
        elif self._only is not None or shard.records or shard.effects or self._reads_wait:
            self.commit(asked)
            reply = self._told(reply)
        if kind is not c.Pull or not self.memory.is_stored:  # of the hot commands, only a pull answers with payloads
            return reply
        reply = self._filled(tenant, command, shard, reply, now)
        if shard.records:  # something could not be read, and was put aside
            self.commit()
        return reply

    def _filled(self, tenant: str, command: c.Command[Any], shard: Shard, reply: Any, now: int) -> Any:
        whole = self._whole_or_later(tenant, command, reply)
        if whole is not reply and type(reply) is r.Delivery:
            look_ahead(self.journal, shard, tenant, reply, now)
        return whole

    def _execute_checked(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """The same for commands and tenants that must be looked at first."""
        self._check_tenant(tenant)
        return self._execute_for(tenant, command, now)

    def execute_as_system(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One turn for the process itself, in a tenant that no caller can name."""
        assert tenant == SYSTEM_TENANT
        if self._asks:
            self.commit()
        self.ticket = self._room.claimed = 0
        return self._execute_for(tenant, command, now)

    def _execute_for(self, tenant: str, command: c.Command[Any], now: int, before: Load | None = None) -> Any:
        """`before` is what was read for it, if it is carried out once more."""
        try:
            reply = self._decide(tenant, command, now)
        except NotAtHand as missed:
            return self._once_more(tenant, command, missed, before)
        except Exception as error:
            self._after_error(command, error)
            raise
        asked = asked_by(command)
        self.commit(asked)
        if asked == "fsync" and type(command) in process_requests.FLUSHED:
            self.ticket = self.journal.ticket()
        reply = self._whole_or_later(tenant, command, self._told(reply), before)
        if self.memory.is_stored and any(shard.records for shard in self.shards):
            self.commit()
        return reply

    def _check_tenant(self, tenant: str) -> None:
        checks.name(tenant, "tenant")
        if len(self._tenants) >= TENANTS_CHECKED_MAX:
            self._tenants.clear()
        self._tenants.add(tenant)

    def _decide(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """A command with everything looked at, before anything of it is journaled."""
        if (type(command) not in HOT or asked_by(command) is not None) and type(
            command
        ) not in process_requests.EXECUTE:
            type_checks.check(command)
        self._room.check(command)
        return self._execute_any(tenant, command, now)

    # --- turns with several commands -------------------------------------------------------------

    def begin(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One command of a turn that `end` journals. Its reply must not leave before.

        A turn that another thread makes in between journals what was begun together with its own records.
        """
        kind = type(command)
        asked = command.durability if kind in TAKES_LEVEL else None  # type: ignore[attr-defined]
        shard = None
        if asked is None or asked in r.LEVELS:
            self._asks.add(asked)
            if kind in QUICK and tenant in self._tenants:
                shard = self._only or self._home(tenant, command)
        else:
            self._asks.add(None)
        if shard is None:
            if kind in SEARCHES and self.memory.is_stored:
                with hastily():
                    return self._whole_or_later(tenant, command, self._begin_any(tenant, command, now))
            reply = self._begin_any(tenant, command, now)
        else:
            self._touched.add(shard)
            if self.journal.is_tight or (self.memory.is_full and kind in BRINGS_DATA):
                self._room.check(command)
            before = len(shard.records)
            try:
                reply = shard.execute(tenant, command, now)
            except errors.StokerError:
                raise
            except NotAtHand as missed:
                return self._once_more(tenant, command, missed)
            except Exception:
                self._broken = len(shard.records) > before
                if not self._broken:
                    type_checks.check(command)
                raise
        if asked == "fsync" and kind in process_requests.FLUSHED:
            self._is_flushed = True
        if not self.memory.is_stored or kind is GatheredPushes:
            return reply
        if shard is not None:
            return self._filled(tenant, command, shard, reply, now) if kind is c.Pull else reply
        return self._whole_or_later(tenant, command, reply)

    def _begin_any(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """A command that may concern all of them, or that must be looked at first."""
        self._touched.update(self.shards)
        before = sum([len(shard.records) for shard in self.shards])
        try:
            self._check_tenant(tenant)
            return self._decide(tenant, command, now)
        except errors.StokerError:
            raise
        except NotAtHand as missed:
            return self._once_more(tenant, command, missed)
        except Exception:
            self._broken = sum([len(shard.records) for shard in self.shards]) > before
            if not self._broken and type(command) not in process_requests.EXECUTE:
                type_checks.check(command)
            raise

    def end(self) -> r.Level:
        """Journal the turn that was begun; the level that its replies have reached once `ticket` is."""
        if self._asks and not self._commit_plainly():
            self.commit()
        self._room.claimed = 0
        level, self._turn_level = self._turn_level or self.level, None
        is_flushed, self._is_flushed = self._is_flushed, False
        waits = is_flushed or self._reads_wait or level in self._later
        self.ticket = self.journal.ticket() if waits else 0
        return level

    def _commit_plainly(self) -> bool:
        """What `commit` does for a turn of one shard, when none of its commands has asked for a level."""
        if len(self._touched) != 1 or self._asks != USUAL or self._readers:
            return False
        (shard,) = self._touched
        if shard.queue_levels or shard.outbox or (shard.effects and (self._reads_wait or self.level in self._later)):
            return False
        self._asks.clear()
        self._reached = self.level
        if shard.records:
            self._append(shard, self.level)
        if shard.effects:
            self._answer_waiting(shard)
        return True

    def _answer_waiting(self, shard: Shard) -> None:
        """Let out the answers to waiting commands of a shard whose turn is journaled."""
        for parked, reply in shard.take_effects():
            self._answer_whole(parked, reply)
        if shard.records:
            self.commit()  # what could not be read was put aside

    def _append(self, shard: Shard, level: r.Level) -> None:
        """What `commit` does for one shard when no command waits for it."""
        turn = ((shard.number, shard.records),)
        self.journal.append(turn, defer=level in self._deferred, waits=level != "memory")
        if shard.staged or shard.index.bytes > shard.quiet_bytes:
            self._journaled(shard)
        shard.records.clear()

    def _journaled(self, shard: Shard) -> None:
        """A turn has been journaled; its records are still there."""
        if shard.staged:
            note_places(self.journal, shard)
        if shard.index.bytes > shard.quiet_bytes:
            self.memory.after(shard)
        shard.staged.clear()

    def turn_next_at(self) -> int | None:
        """The next deadline of the shards that the turn concerns: asking all of them costs more than a push."""
        touched = self._touched
        if not touched:
            return None
        if len(touched) == 1:
            (shard,) = touched
            return shard.next_at
        return min([at for shard in touched if (at := shard.next_at) is not None], default=None)

    def forget_turn(self) -> None:
        """The turn is over, and its deadlines were asked for."""
        if self._touched:
            self._touched = set()

    def _is_full(self) -> bool:
        return self.memory.is_full

    def _no_room(self, tenant: str, size: int) -> str:
        """Why a schedule cannot push now."""
        return self._room.refusal_of(tenant, size, self.limits.schedule_payload_bytes_max)

    def refuse_schedules_when(self, is_over: Callable[[str, int], bool]) -> None:
        """A schedule pushes nothing while one more job of this size is too much for its tenant."""
        self._room.over_quota = is_over

    def _told(self, reply: Any) -> Any:
        """The reply with the level that it has reached."""
        told = getattr(reply, "level", None)
        if told is not None and told != self._reached:
            return msgspec.structs.replace(reply, level=self._reached)
        return reply

    def _reader_of(self, number: int) -> tuple[Callable[[int], Sequence[bytes]], Callable[[Iterable[int]], None]]:
        """How a shard reads payloads of its records, and how it has them read for later."""

        def read(sequence: int) -> Sequence[bytes]:
            try:
                return self.journal.payloads(number, sequence)
            except NotAtHand:
                raise NotAtHand(number, (sequence,)) from None

        def expect(sequences: Iterable[int]) -> None:
            self.journal.expect(number, tuple(sequences), (), self.shards.at(number).now)

        return read, expect

    def _after_error(self, command: c.Command[Any], error: Exception) -> None:
        """Time may have passed before a refusal. Anything else was malformed, as its types can tell, or is a bug."""
        if isinstance(error, errors.Refused):
            self.commit()
        elif not self.is_torn and type(command) not in process_requests.EXECUTE:
            type_checks.check(command)

    def _execute_any(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        read = self._reading.execute.get(type(command))
        if read is not None:
            return read(tenant, command, now)
        part = process_requests.EXECUTE.get(type(command))
        if part is None and self._only is not None:
            return self._only.execute(tenant, command, now)
        reply = (part or routing.execute)(self.shards, tenant, command, now)
        for shard in self.shards:
            shard.serve(now)  # a waiting pull may want what was decided beside `Shard.execute`
        return reply

    def advance(self, now: int) -> None:
        """One turn without a command."""
        if not self._asks:
            self._room.claimed = 0
        for shard in self.shards:
            shard.advance(now)
        self.commit()
        if self._readers:
            self._reading.expire(now)

    def commit(self, asked: r.Level | None = None) -> None:
        """Journal what happened in this turn, then let the answers to waiting commands out."""
        if self._only is None:
            self._deliver()
        changed = [shard for shard in self.shards if shard.records]
        woken: Mapping[tuple[int, str], int] = NONE_WOKEN
        self._reached = self.level
        asks = self._asks
        if asks:
            self._asks = set()
        if changed:
            level = self._levels.of_all(changed, asks) if asks else self._levels.of(changed, asked)
            turn = [(shard.number, shard.records) for shard in changed]
            self.journal.append(turn, defer=level in self._deferred, waits=level != "memory")
            if level in self._later:
                self.ticket = self.journal.ticket()
            self._reached = level
            for shard in changed:
                self._journaled(shard)
            woken = self._reading.places(changed) if self._readers else NONE_WOKEN
            if asks:
                self._turn_level = strongest((self._turn_level or level, level))
            for shard in changed:
                shard.records.clear()
        if self._reads_wait:
            self.ticket = self.journal.ticket()
        if woken:
            self._reading.wake(woken)
        for shard in self.shards:
            if shard.effects:
                for parked, reply in shard.take_effects():
                    self._answer_whole(parked, reply)
        if self.memory.is_stored and any(shard.records for shard in self.shards):
            self.commit()  # what could not be read was put aside

    def _deliver(self) -> None:
        """What shards have said to each other in this turn is heard in the same turn, and journaled with it."""
        if any(shard.outbox for shard in self.shards):
            with patiently():  # a message that publishes: what it needs was at hand when that was decided
                outbox.deliver(self.shards, max(shard.now for shard in self.shards))
            self._touched.update(self.shards)
            if self.letters is not None and self._news.is_there():
                self.letters()

    def _knows(self, job_id: int) -> bool:
        """Whether an id was ever given. Other processes were asked about their ids before a command comes here."""
        number = shard_of(job_id)
        if number >= self.shards.total:
            return False
        return not self.shards.has(number) or is_known(self.shards.at(number), job_id)

    def _whole(self, reply: Any) -> Any:
        """The reply with everything in it that lies in the journal. What cannot be delivered is put aside."""
        if not self.memory.is_stored:
            return reply
        unread: dict[int, Exception] = {}
        whole = filled(self.journal, reply, unread)
        if unread:
            self._put_aside(unread)
        return whole

    def _put_aside(self, unread: Mapping[int, Exception]) -> None:
        """Deliveries whose payloads cannot be read go back, or fail if that will never change."""
        for number in {shard_of(job_id) for job_id in unread}:
            shard = self.shards.at(number)
            own = {job_id: why for job_id, why in unread.items() if shard_of(job_id) == number}
            hand_back_unread(shard, [job_id for job_id, why in own.items() if is_passing(why)], shard.now)
            fail_unreadable(shard, {job_id: str(why) for job_id, why in own.items() if not is_passing(why)}, shard.now)
            shard.serve(shard.now)
            self._touched.add(shard)

    # --- what the journal has to read first --------------------------------------------------------

    def _whole_or_later(self, tenant: str, command: c.Command[Any], reply: Any, before: Load | None = None) -> Any:
        """`_whole`, or a `Parked` if something has to be read first."""
        try:
            return self._whole(reply)
        except NotAtHand:
            parked = before.parked if before is not None else self._parked(tenant, command)
            self._fill_later(parked, reply)
            return parked

    def _parked(self, tenant: str, command: c.Command[Any]) -> Parked:
        return Parked(tenant, command, max(shard.now for shard in self.shards) + READ_MS_MAX)

    def _answer_whole(self, parked: Parked, reply: Any) -> None:
        """Answer a command that waited, at once or when everything is read."""
        try:
            self._answer(parked, or_error(self._whole, reply))
        except NotAtHand:
            self._fill_later(parked, reply)

    def _fill_later(self, parked: Parked, reply: Any) -> None:
        """Have the payloads of a reply read. Its jobs are delivered, and go back if that fails."""
        delivery = delivery_in(reply)
        if delivery is not None:
            self._unread[parked] = delivery

        def read() -> tuple[Any, dict[int, Exception]]:
            unread: dict[int, Exception] = {}
            return read_and_filled(self.journal, reply, unread), unread

        def finish(found: Any, now: int) -> None:
            self._unread.pop(parked, None)
            whole, unread = found if type(found) is tuple else (found, {})
            if delivery is not None:
                if isinstance(whole, Exception):
                    unread = dict.fromkeys(delivery.ids, whole)
                for shard in self.shards:
                    shard.advance(now)
                held = self._held(parked.tenant, delivery)
                self._put_aside({job_id: why for job_id, why in unread.items() if job_id in held})
                whole = without(whole, {job_id for job_id in delivery.ids if job_id not in held})
            self._finish(parked, whole)

        self._load(Load(parked, read, finish))

    def _held(self, tenant: str, delivery: r.Delivery) -> set[int]:
        """Those of the jobs that this delivery still holds: time has passed, and a lease may have ended."""
        held: set[int] = set()
        for shard in self.shards:
            own = [job_id for job_id in delivery.ids if shard_of(job_id) == shard.number]
            held.update(set(own).difference(held_deliveries(shard, tenant, own, delivery.token)[1]))
        return held

    def _once_more(self, tenant: str, command: c.Command[Any], missed: NotAtHand, before: Load | None = None) -> Parked:
        """Carry the command out once more when the payloads that it needs are read: nothing of it has happened."""
        self.commit()  # time may have passed
        number, sequences = missed.args
        parked = before.parked if before is not None else self._parked(tenant, command)
        tries = before.tries + 1 if before is not None else 1

        def read() -> None:
            self.journal.read_together((number, sequence) for sequence in sequences)
            for sequence in reversed(sequences):  # the first one that is needed is the last one to leave memory again
                try:
                    self.journal.payloads(number, sequence)
                except errors.Damaged:
                    pass  # the command says what that means to it

        def finish(found: Any, now: int) -> None:
            if found is None and tries == TRIES:
                found = errors.Unavailable("the journal could not keep all that this needs in memory: try again")
            if found is None:
                self.ticket = self._room.claimed = 0
                with hastily() if type(command) in SEARCHES else nullcontext():
                    found = or_error(self._execute_for, tenant, command, now, load)
            if found is not parked:
                self._finish(parked, found)

        load = Load(parked, read, finish, tries)
        self._load(load)
        return parked

    def _load(self, load: Load) -> None:
        load.parked.done = True  # a caller that leaves meanwhile has its jobs returned when they are read
        self.read_elsewhere(load)

    def loaded(self, load: Load, found: Any, now: int) -> None:
        """One turn with what was read, or with the error instead."""
        self.commit()
        self.ticket = self.journal.ticket()
        load.finish(found, now)

    def _finish(self, parked: Parked, reply: Any) -> None:
        """Answer a command for which something was read."""
        self.commit()
        self.ticket = self.journal.ticket()
        self._answer(parked, reply)

    def hand_back_unread(self) -> None:
        """Before a close: deliveries whose payloads are still being read reach no client."""
        unread, self._unread = self._unread, {}
        why = errors.Unavailable("closed")
        for parked, delivery in unread.items():
            self._put_aside(dict.fromkeys(self._held(parked.tenant, delivery), why))
        if unread:
            self.commit()

    def open(self, now: int) -> None:
        """The first turn over a journal that was there before: bring about what was decided and not done."""
        with patiently():
            outbox.deliver(self.shards, now)
        for shard in self.shards:
            workflows.resume(shard, now)
            dependencies.resume(shard, now)
        self.commit()

    @property
    def is_begun(self) -> bool:
        """Whether there is a turn of which nothing is journaled yet."""
        return bool(self._asks)

    @property
    def is_torn(self) -> bool:
        """Whether a turn was broken off in the middle: something was recorded, perhaps half applied, and not journaled.

        Nothing changes before it is recorded, so an exception that leaves no record behind has done no harm.
        """
        return self._broken or (not self._asks and any(shard.records for shard in self.shards))

    @property
    def next_at(self) -> int | None:
        """When to come back, at the latest."""
        times = [at for shard in self.shards if (at := shard.next_at) is not None]
        if self._readers and (at := self._reading.next_at) is not None:
            times.append(at)
        return min(times, default=None)

    def shard_stats(self, now: int) -> list[r.Stats]:
        """The counters of each shard over all tenants: for operators and metrics, never for a tenant."""
        return [queries.stats_of(shard.scope, now) for shard in self.shards]

    def follow_wall(self, now: int, wall: int) -> None:
        """Should the clock on the wall have been set since it was last looked at, schedules go by it from now on."""
        ahead_ms = now - wall
        for shard in self.shards:
            if abs(shard.ahead_ms - ahead_ms) > WALL_MS:
                schedules.follow_calendar(shard, ahead_ms)

    @property
    def has_schedules(self) -> bool:
        return any(shard.schedules for shard in self.shards)

    def set_limits(self, limits: Limits) -> None:
        """Use other limits for commands from now on."""
        self.limits = limits
        for shard in self.shards:
            shard.configure(shard.settings, limits)

    def hand_back_all(self, now: int) -> int:
        """Return every running job to its queue as if it had never been pulled; how many there were."""
        count = 0
        for shard in self.shards:
            for tenant in list(shard.tenants):
                active = c.Browse(state=State.ACTIVE, limit=self.limits.browse_jobs_max, ascending=True)
                while True:
                    page: r.Page = shard.execute(tenant, active, now)
                    running = [view.id for view in page.jobs if not view.cancel_requested]
                    count += shard.execute(tenant, c.Release(running), now).count if running else 0
                    if page.next_after is None:
                        break
                    active = msgspec.structs.replace(active, after=page.next_after)
        self.commit()
        return count

    def close(self) -> None:
        self.history.file.close()
        for shard in self.shards:
            shard.close()
