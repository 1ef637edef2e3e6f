"""Runs shards, journal and clock together.

A turn is: let time pass, decide, journal the records, and only then release the replies. A turn that asks for more
durability than its journal gives at once leaves a `ticket`: its replies wait until the journal has reached it. The
runtime has one owner at a time and knows neither threads nor event loops; `brokers/local` adds those.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stoker.engine import checks, edges, looking, schedules, workflows
from stoker.engine.crowds import Pace
from stoker.engine.edges import is_known
from stoker.engine.finishing import fail_unreadable
from stoker.engine.parking import Parked
from stoker.engine.shard import Shard
from stoker.journal.contract import Journal
from stoker.journal.story import story
from stoker.model import command_table, errors
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import BRINGS_DATA, GROWS_LOG, HOT, READS
from stoker.model.ids import STEP, SYSTEM_TENANT, shard_of
from stoker.model.limits import INT_MAX, Limits
from stoker.model.states import State
from stoker.records.events import events_of, size_of
from stoker.runtime import outbox, parts, routing, shapes
from stoker.runtime.calendar import IanaCalendar
from stoker.runtime.loading import filled, look_ahead
from stoker.runtime.memory import Memory, note_places
from stoker.runtime.reading import read_records
from stoker.runtime.shards import Shards

WALL_MS = 1_000
"""The clock on the wall is corrected a little all the time; only more than this counts as set."""
TENANTS_CHECKED_MAX = 10_000
HOMES_MAX = 100_000

ROOM_WATCHED = 256 * 1024 * 1024
"""With less room than this on the disk, the size of each push is looked at."""

SETTLED_BYTES_MAX = 64 * 1024
"""Results of one ack that may still be written when the disk is full: the room that is kept has to last for many."""
TAKES_LEVEL = command_table.TAKES_LEVEL | parts.FLUSHED
"""Commands that may ask for a level of their own."""
USUAL: set[r.Level | None] = {None}
"""What the commands of a turn ask for when none asks for anything."""


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
    ) -> None:
        """`total` is the number of all shards, where other processes have some of them."""
        self.journal = journal
        self.level: r.Level = weaker(level or journal.level, strongest(journal))
        """What everybody gets who asks for nothing else."""
        self.ticket = 0
        """What the replies of the last turn have to wait for; 0 = for nothing."""
        self.limits = shards[0].limits
        self.shards = Shards(shards, total)
        calendar, pace = IanaCalendar(), Pace()
        for shard in shards:
            shard.pace = pace
            shard.level = self.level
            shard.calendar = calendar
            shard.no_room = self._no_room
            shard.is_full = self._is_full
            shard.stored_payloads = self._reader_of(shard.number)
            shard.knows = self._knows
        self.memory = Memory(self.shards, journal, memory_bytes_max)
        self._at_once = ("memory",) if journal.level == "memory" else ("commit", "fsync")
        """Levels of turns that are journaled right away."""
        self._only = self.shards[0] if self.shards.total == 1 else None
        self._homes: dict[tuple[str, str], Shard] = {}
        """Where queues live, for those asked for lately."""
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
        self._claimed = 0
        """How much room on the disk the turn may need, as far as it is decided."""
        self._is_flushed = False
        """Whether one of them waits for everything that happened before."""
        self._broken = False
        self._announced: dict[tuple[int, int], int] = {}
        """The newest letter from a shard to another that was told of."""
        self.over_quota: Callable[[str, int], bool] | None = None
        """Says whether one more job with so many bytes is too much for a tenant: for jobs that schedules push."""
        self.letters: Callable[[], None] | None = None
        """Told when there is something for shards of other processes."""
        self._readers: dict[tuple[int, str], dict[Parked, r.Events]] = {}
        """Commands that wait for events of a shard and a tenant, with the empty page that they have got so far."""

    def execute(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One turn with one command: its reply, or a `Parked` that will be answered later."""
        kind = type(command)
        if self._asks:
            self.commit()
        self.ticket = self._claimed = 0
        if kind not in HOT or type(tenant) is not str or tenant not in self._tenants:
            return self._execute_checked(tenant, command, now)
        shard = self._only or self._home(tenant, command)
        asked = command.durability if kind in TAKES_LEVEL else None  # type: ignore[attr-defined]
        level = self.level if asked is None else asked
        if shard is None or level not in self._at_once:
            return self._execute_checked(tenant, command, now)
        if kind in BRINGS_DATA or self._is_tight:
            self._check_room(command)
        try:
            reply = shard.execute(tenant, command, now)
        except Exception as error:
            self._after_error(command, error)
            raise
        if shard.records and not (shard.effects or self._readers or shard.queue_levels or shard.outbox):
            self._append(shard, level)
            if level == "fsync":
                self.ticket = self.journal.ticket()
            if kind is not c.Pull and kind is not c.Extend and reply.level != level:
                reply = msgspec.structs.replace(reply, level=level)
        elif self._only is not None or shard.records or shard.effects:
            self.commit(asked)
            reply = self._told(reply)
        if not self.memory.is_stored:
            return reply
        reply = self._filled(tenant, shard, reply, now)
        if shard.records:  # something could not be read, and was put aside
            self.commit()
        return reply

    def _filled(self, tenant: str, shard: Shard, reply: Any, now: int) -> Any:
        whole = self._whole(reply)
        if whole is not reply and type(reply) is r.Delivery:
            look_ahead(self.journal, shard, tenant, reply, now)
        return whole

    def _home(self, tenant: str, command: Any) -> Shard | None:
        """The one shard that a quick command concerns, if it is one and the command is not malformed."""
        kind = type(command)
        if kind is c.Push or kind is c.PushBatch:
            queue = command.queue
        elif kind is c.Pull:
            if type(command.queues) not in (list, tuple) or len(command.queues) != 1 or command.claim is not None:
                return None
            queue = command.queues[0]
        else:
            ids = command.ids
            if type(ids) is range:
                return self.shards.by_id(ids.start) if ids and ids.step % STEP == 0 else None
            if checks.is_list(ids) and len(ids) == 1 and type(ids[0]) is int:
                return self.shards.by_id(ids[0])
            return None
        if type(queue) is not str:
            return None
        home = self._homes.get((tenant, queue))
        if home is None:
            checks.name(queue)
            if len(self._homes) >= HOMES_MAX:
                self._homes.clear()
            home = self._homes[tenant, queue] = self.shards.home(tenant, queue)
        return home

    def _execute_checked(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """The same for commands and tenants that must be looked at first."""
        self._check_tenant(tenant)
        return self._execute_for(tenant, command, now)

    def execute_as_system(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One turn for the process itself, in a tenant that nobody else can name."""
        assert tenant == SYSTEM_TENANT
        if self._asks:
            self.commit()
        self.ticket = self._claimed = 0
        return self._execute_for(tenant, command, now)

    def _execute_for(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        try:
            reply = self._decide(tenant, command, now)
        except Exception as error:
            self._after_error(command, error)
            raise
        asked = asked_by(command)
        self.commit(asked)
        if asked == "fsync" and type(command) in parts.FLUSHED:
            self.ticket = self.journal.ticket()
        reply = self._whole(self._told(reply))
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
        if (type(command) not in HOT or asked_by(command) is not None) and type(command) not in parts.EXECUTE:
            shapes.check(command)
        if type(command) in BRINGS_DATA or self._is_tight:
            self._check_room(command)
        return self._execute_any(tenant, command, now)

    # --- turns with several commands -------------------------------------------------------------

    def begin(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One command of a turn that `end` journals. Its reply must not leave before.

        Whoever gets in between with a turn of his own journals what was begun together with his.
        """
        kind = type(command)
        asked = command.durability if kind in TAKES_LEVEL else None  # type: ignore[attr-defined]
        shard = None
        if asked is None or asked in r.LEVELS:
            self._asks.add(asked)
            if kind in HOT and tenant in self._tenants:
                shard = self._only or self._home(tenant, command)
        else:
            self._asks.add(None)
        if shard is None:
            reply = self._begin_any(tenant, command, now)
        else:
            self._touched.add(shard)
            if kind in BRINGS_DATA or self._is_tight:
                self._check_room(command)
            before = len(shard.records)
            try:
                reply = shard.execute(tenant, command, now)
            except errors.StokerError:
                raise
            except Exception:
                self._broken = len(shard.records) > before
                if not self._broken:
                    shapes.check(command)
                raise
        if asked == "fsync" and kind in parts.FLUSHED:
            self._is_flushed = True
        if not self.memory.is_stored:
            return reply
        return self._filled(tenant, shard, reply, now) if shard is not None else self._whole(reply)

    def _begin_any(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """A command that may concern all of them, or that must be looked at first."""
        self._touched.update(self.shards)
        before = sum([len(shard.records) for shard in self.shards])
        try:
            self._check_tenant(tenant)
            return self._decide(tenant, command, now)
        except errors.StokerError:
            raise
        except Exception:
            self._broken = sum([len(shard.records) for shard in self.shards]) > before
            if not self._broken and type(command) not in parts.EXECUTE:
                shapes.check(command)
            raise

    def end(self) -> r.Level:
        """Journal the turn that was begun; the level that its replies have reached once `ticket` is."""
        if self._asks and not self._commit_plainly():
            self.commit()
        self._claimed = 0
        level, self._turn_level = self._turn_level or self.level, None
        is_flushed, self._is_flushed = self._is_flushed, False
        self.ticket = self.journal.ticket() if level == "fsync" or is_flushed else 0
        return level

    def _commit_plainly(self) -> bool:
        """What `commit` does for a turn of one shard, when nobody waits for anything and nobody asked for a level."""
        if len(self._touched) != 1 or self._asks != USUAL or self._readers or self.level not in self._at_once:
            return False
        (shard,) = self._touched
        if shard.effects or shard.queue_levels or shard.outbox:
            return False
        self._asks.clear()
        self._reached = self.level
        if shard.records:
            self._append(shard, self.level)
        return True

    def _append(self, shard: Shard, level: r.Level) -> None:
        """What `commit` does for one shard when nobody waits for anything."""
        self.journal.append(((shard.number, shard.records),), defer=level == "fsync")
        self._journaled(shard)
        shard.records.clear()

    def _journaled(self, shard: Shard) -> None:
        """A turn has been journaled; its records are still there."""
        if shard.staged:
            note_places(self.journal, shard)
        if shard.index.bytes > self.memory.quiet_below:
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

    def _check_room(self, command: Any) -> None:
        if self._is_tight:
            self._check_disk(command)
        if type(command) in BRINGS_DATA and self.memory.is_full:
            raise errors.MemoryFull(
                f"the memory limit of {self.memory.bytes_max} bytes is reached: work jobs off,"
                " or raise memory_bytes_max"
            )

    @property
    def _is_tight(self) -> bool:
        """Whether there is so little room on the disk that each command is looked at."""
        journal = self.journal
        return journal.is_full or journal.room < ROOM_WATCHED

    def _check_disk(self, command: Any) -> None:
        """Refuse what makes data before the room is touched that is kept for settling and removing jobs.

        That room is for small things only, and when it is used up, everything is refused that writes.
        """
        kind, journal = type(command), self.journal
        if kind in READS or (kind in parts.EXECUTE and not is_publishing(command)):
            return
        size = bytes_of(command)
        if kind in BRINGS_DATA or kind in GROWS_LOG or kind in parts.EXECUTE or size > SETTLED_BYTES_MAX:
            if journal.is_full or not self._claim(size):
                raise errors.DiskFull(NO_ROOM_FOR_NEW if size <= SETTLED_BYTES_MAX else NO_ROOM_FOR_MUCH)
        elif journal.is_out:
            raise errors.DiskFull(NO_ROOM_AT_ALL)

    def _claim(self, size: int) -> bool:
        """Whether there is room for so many bytes besides what was begun in this turn and is not written yet."""
        needed = self._claimed + size * 2 + ROOM_EACH
        if needed > self.journal.room:
            return False
        self._claimed = needed
        return True

    def _is_full(self) -> bool:
        return self.memory.is_full

    def _no_room(self, tenant: str, size: int) -> str:
        """Why a schedule cannot push now: what is pushed by a caller is refused for the same reasons."""
        if self._is_tight and (self.journal.is_full or not self._claim(self.limits.schedule_payload_bytes_max)):
            return errors.DiskFull.code
        if self.memory.is_full:
            return errors.MemoryFull.code
        return errors.QuotaExceeded.code if self.over_quota is not None and self.over_quota(tenant, size) else ""

    def _told(self, reply: Any) -> Any:
        """The reply with the level that it has reached."""
        told = getattr(reply, "level", None)
        if told is not None and told != self._reached:
            return msgspec.structs.replace(reply, level=self._reached)
        return reply

    def _reader_of(self, number: int) -> Callable[[int], Sequence[bytes]]:
        return lambda sequence: self.journal.payloads(number, sequence)

    def _after_error(self, command: c.Command[Any], error: Exception) -> None:
        """Time may have passed before a refusal. Anything else was malformed, as its types can tell, or is a bug."""
        if isinstance(error, errors.Refused):
            self.commit()
        elif not self.is_torn and type(command) not in parts.EXECUTE:
            shapes.check(command)

    def _execute_any(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        if type(command) is c.ReadEvents:
            return self._read_events(tenant, command, now)
        if type(command) is c.ReadRecords:
            return self._read_records(tenant, command, now)
        if type(command) is c.GetStory:
            return self._story(tenant, command, now)
        part = parts.EXECUTE.get(type(command))
        if part is None and self._only is not None:
            return self._only.execute(tenant, command, now)
        reply = (part or routing.execute)(self.shards, tenant, command, now)
        for shard in self.shards:
            shard.serve(now)  # a waiting pull may want what was decided beside `Shard.execute`
        return reply

    def advance(self, now: int) -> None:
        """One turn without a command."""
        if not self._asks:
            self._claimed = 0
        for shard in self.shards:
            shard.advance(now)
        self.commit()
        for place, readers in list(self._readers.items()):
            for parked, page in [(one, page) for one, page in readers.items() if one.done or one.expires_at <= now]:
                self._leave(place, parked)
                if not parked.done:
                    self._answer_reader(parked, page)

    def commit(self, asked: r.Level | None = None) -> None:
        """Journal what happened in this turn, then let the answers to waiting commands out."""
        if self._only is None:
            self._deliver()
        changed = [shard for shard in self.shards if shard.records]
        self._reached = self.level
        asks = self._asks
        if asks:
            self._asks = set()
        if changed:
            level = self._level_of_turn(changed, asks) if asks else self._level_of(changed, asked)
            turn = [(shard.number, shard.records) for shard in changed]
            self.journal.append(turn, defer=level != "commit", waits=level != "memory")
            if level == "fsync":
                self.ticket = self.journal.ticket()
            self._reached = level
            woken: dict[tuple[int, str], int] = {}
            for shard in changed:
                self._journaled(shard)
                if self._readers:
                    first = self.journal.last(shard.number) - len(shard.records) + 1
                    woken |= {(shard.number, record.tenant): first for record in shard.records}  # type: ignore[attr-defined]
            if asks:
                self._turn_level = max(self._turn_level or level, level, key=r.LEVELS.index)
            for shard in changed:
                shard.records.clear()
            for place, first in sorted(woken.items()):
                self._wake_readers(place, first)
        for shard in self.shards:
            if shard.effects:
                for parked, reply in shard.take_effects():
                    self._answer(parked, self._or_error(self._whole, reply))
        if self.memory.is_stored and any(shard.records for shard in self.shards):
            self.commit()  # what could not be read was put aside

    def _deliver(self) -> None:
        """What shards have said to each other in this turn is heard in the same turn, and journaled with it."""
        if any(shard.outbox for shard in self.shards):
            outbox.deliver(self.shards, max(shard.now for shard in self.shards))
            self._touched.update(self.shards)
            if self.letters is not None and self._has_new_letters():
                self.letters()

    def _has_new_letters(self) -> bool:
        """Whether something lies in an outbox that was not told of yet.

        What waits for a process that is away is no news: looking for letters ends a turn, too, and would never end.
        """
        found = False
        for shard in self.shards:
            for to, waiting in shard.outbox.items():
                newest = next(reversed(waiting))
                if newest > self._announced.get((shard.number, to), -1):
                    self._announced[shard.number, to] = newest
                    found = True
        return found

    def _knows(self, job_id: int) -> bool:
        """Whether an id was ever given. Of shards in other processes whoever passed the command on has asked."""
        number = shard_of(job_id)
        if number >= self.shards.total:
            return False
        return not self.shards.has(number) or is_known(self.shards.at(number), job_id)

    def _whole(self, reply: Any) -> Any:
        """The reply with everything in it that lies in the journal. What cannot be delivered is put aside."""
        if not self.memory.is_stored:
            return reply
        unread: dict[int, str] = {}
        whole = filled(self.journal, reply, unread)
        for number in {shard_of(job_id) for job_id in unread}:
            shard = self.shards.at(number)
            own = {job_id: why for job_id, why in unread.items() if shard_of(job_id) == number}
            fail_unreadable(shard, own, shard.now)
            shard.serve(shard.now)
            self._touched.add(shard)
        return whole

    @staticmethod
    def _or_error(make: Callable[..., Any], *given: Any) -> Any:
        """A reply for somebody who waits; what goes wrong on the way is his to hear, and nobody else's."""
        try:
            return make(*given)
        except errors.StokerError as error:
            return error

    def _level_of(self, changed: Sequence[Shard], asked: r.Level | None) -> r.Level:
        """What this turn has to reach: what was asked for, or else the most that any of its queues wants."""
        most = strongest(self.journal)
        if asked is not None:
            return weaker(asked, most)
        wanted = {
            shard.queue_levels.get((record.tenant, getattr(record, "queue", "")), self.level)  # type: ignore[attr-defined]
            for shard in changed
            if shard.queue_levels
            for record in shard.records
        }
        return weaker(max(wanted or {self.level}, key=r.LEVELS.index), most)

    def _level_of_turn(self, changed: Sequence[Shard], asks: "set[r.Level | None]") -> r.Level:
        """The strongest level that any command of the turn asks for, or is given where it asks for none."""
        wanted = [self._level_of(changed, ask) for ask in asks]
        return max(wanted, key=r.LEVELS.index)

    def open(self, now: int) -> None:
        """The first turn over a journal that was there before: bring about what was decided and not done."""
        outbox.deliver(self.shards, now)
        for shard in self.shards:
            workflows.resume(shard, now)
            edges.resume(shard, now)
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
        times += [parked.expires_at for readers in self._readers.values() for parked in readers]
        return min(times, default=None)

    def shard_stats(self, now: int) -> list[r.Stats]:
        """The counters of each shard over all tenants: for operators and metrics, never for a tenant."""
        return [looking.stats_of(shard.scope, now) for shard in self.shards]

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
        """Other limits from now on, for whatever comes in."""
        self.limits = limits
        for shard in self.shards:
            shard.configure(shard.settings, limits)

    def hand_back_all(self, now: int) -> int:
        """Return every running job to its queue as if it had never been pulled; how many there were."""
        count = 0
        for shard in self.shards:
            for tenant in list(shard.tenants):
                while True:
                    page = shard.execute(tenant, c.Browse(state=State.ACTIVE, limit=self.limits.browse_jobs_max), now)
                    running = [view.id for view in page.jobs if not view.cancel_requested]
                    done = shard.execute(tenant, c.Release(running), now).count if running else 0
                    count += done
                    if not done:
                        break
        self.commit()
        return count

    def close(self) -> None:
        for shard in self.shards:
            shard.close()

    # --- events ----------------------------------------------------------------------------------

    def _read_events(self, tenant: str, command: c.ReadEvents, now: int) -> "r.Events | Parked":
        self._check_shard(command.shard)
        if command.queue is not None:
            checks.name(command.queue)
        checks.count(command.limit, "limit", self.limits.events_max)
        checks.number(command.after, "after", 0, 2**53 - 1)
        checks.count(command.wait_ms, "wait_ms", self.limits.wait_ms_max, 0)
        self.advance(now)
        page = self._page(tenant, command, command.after)
        if page.events or not command.wait_ms:
            return page
        parked = Parked(tenant, command, now + command.wait_ms)
        self._readers.setdefault((command.shard, tenant), {})[parked] = page
        return parked

    def _read_records(self, tenant: str, command: c.ReadRecords, now: int) -> r.Records:
        self._check_shard(command.shard)
        for queue in command.queues or ():
            checks.name(queue)
        checks.number(command.after, "after", 0, 2**53 - 1)
        if command.until is not None:
            checks.number(command.until, "until", 0, 2**53 - 1)
        checks.count(command.bytes_max, "bytes_max", self.limits.reply_bytes_max)
        self.advance(now)
        return read_records(self.journal, self.shards.total, tenant, command)

    def _check_shard(self, number: int) -> None:
        if type(number) is not int or not 0 <= number < self.shards.total:
            raise errors.InvalidRequest(f"no shard {checks.short(number)}: they are 0 to {self.shards.total - 1}")
        self.shards.at(number)

    def _story(self, tenant: str, command: c.GetStory, now: int) -> r.Story:
        checks.number(command.id, "id", 0, INT_MAX)
        self.advance(now)
        shard = self.shards.by_id(command.id)
        part = shard.find(command.id)
        ended = looking.view(shard, part, now).finished_at if part is not None else 0
        lowest = self.journal.lowest(shard.number)
        return story(self.journal.read, shard.number, command.id, tenant, lowest=lowest, finished_at=ended)

    def _page(self, tenant: str, command: c.ReadEvents, after: int) -> r.Events:
        """The tenant's events after a position: whole records, until a limit is reached."""
        number = command.shard
        found: list[Any] = []
        room = self.limits.reply_bytes_max
        while len(found) < command.limit and room > 0:
            records = self.journal.read(number, after, command.limit)
            if not records:
                break
            for sequence, record in records:
                after = sequence
                if record.tenant == tenant and command.queue in (None, getattr(record, "queue", None)):  # type: ignore[attr-defined]
                    events = events_of(number, sequence, record, command.kinds)
                    wanted = [event for event in events if command.kinds is None or event.kind in command.kinds]
                    found += wanted
                    room -= sum(map(size_of, wanted))
                if len(found) >= command.limit or room <= 0:
                    break
        return r.Events(found, after, self.journal.lowest(number))

    def _wake_readers(self, place: tuple[int, str], first: int) -> None:
        """Something happened to a tenant in a shard, from this sequence number on: look on from where each of its
        readers has looked. What the log has dropped before it was looked at when it happened, and is not missed.
        """
        for parked, seen in list(self._readers.get(place, {}).items()):
            assert type(parked.command) is c.ReadEvents
            if parked.done:
                self._leave(place, parked)
                continue
            page = self._or_error(self._page, parked.tenant, parked.command, seen.next_after)
            if isinstance(page, r.Events) and page.lowest <= first:
                page = r.Events(page.events, page.next_after, seen.lowest)
            if not isinstance(page, r.Events) or page.events:
                self._leave(place, parked)
                self._answer_reader(parked, page)
            else:
                self._readers[place][parked] = page

    def _leave(self, place: tuple[int, str], parked: Parked) -> None:
        del self._readers[place][parked]
        if not self._readers[place]:
            del self._readers[place]

    def _answer_reader(self, parked: Parked, page: Any) -> None:
        parked.done = True
        self._answer(parked, page)


def bytes_of(command: Any) -> int:
    """How many bytes a command brings."""
    try:
        return sum(map(len, brought_by(command)))
    except (TypeError, AttributeError):
        return 0  # malformed: the decider says what is wrong


def brought_by(command: Any) -> "Sequence[bytes | str]":
    """Payloads, results and texts. What is cut to a small size anyway does not count."""
    kind = type(command)
    if kind is c.Push or kind is c.UpdatePayload:
        return (command.payload,)
    if kind is c.Ack:
        return [result for result in command.results or () if result is not None]
    if kind is c.AckClaim:
        return list(command.results.values())
    if kind is c.AppendPartial:
        return (command.data,)
    if kind is c.Publish or kind is parts.Decide:
        return list(command.stages)
    if kind not in BRINGS_DATA or kind is c.AppendLog:
        return ()
    if kind is c.PushWorkflow:
        return [payload for step in command.steps for payload in step.payloads]
    if kind is c.KvSet:
        return (command.value,)
    if kind is c.KvSetMany:
        return [entry.value for entry in command.entries]
    if kind is c.PutSchedule:
        return (command.schedule.payload,)
    return () if kind is c.KvIncrement or kind is c.RunSchedule else command.payloads


def is_publishing(command: Any) -> bool:
    """Whether a part decides that staged jobs come in."""
    return type(command) is parts.Decide and command.stages is not None


ROOM_EACH = 64 * 1024
"""What a turn takes on disk besides payloads, generously."""

NO_ROOM_FOR_NEW = (
    "the disk is full: nothing new is taken, jobs that are there can be worked off; make room, and pushes are taken"
    " again by themselves"
)
NO_ROOM_FOR_MUCH = (
    f"the disk is full: this brings more than {SETTLED_BYTES_MAX} bytes, and the rest of the room is kept for settling"
    " and removing jobs; make room, and try again"
)
NO_ROOM_AT_ALL = (
    "the disk is full, and the room that was kept for settling and removing jobs is used up: make room, and try again"
)


def asked_by(command: Any) -> r.Level | None:
    """The level that a command asks for, if it does."""
    return command.durability if type(command) in TAKES_LEVEL else None


def weaker(one: r.Level, other: r.Level) -> r.Level:
    return min(one, other, key=r.LEVELS.index)


def strongest(journal: Journal) -> r.Level:
    """What a journal can give to those who wait."""
    return "memory" if journal.level == "memory" else "fsync"
