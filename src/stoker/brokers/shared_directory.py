"""A data directory that several processes use at once, without a server.

One of them owns it by the file lock: its calls go straight to the engine, and it lets the others in through the socket
in the directory (`directory_socket.py`). When it ends, the next process that calls gets no answer, tries the lock, and
either becomes the owner or finds the new one. Calls that were under way are sent again (`resending.py` says which);
their callers notice nothing but a pause.

A directory that `stoker serve` has open is used the same way, but never taken over: the server comes back.
"""

import asyncio
import atexit
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stoker.brokers.directory_socket import DirectoryHost, SocketPath
from stoker.brokers.local import (
    CLOSED,
    LocalBroker,
    LocalSettings,
    holder_of,
    is_locked,
    open_sqlite,
    shards_of,
    snapshot_of,
    with_parameters,
)
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.links import BlockingLink, LinkLost, StreamLinks, read_head
from stoker.brokers.remote.retrying import Outage, default_retry_s
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.brokers.resending import ResendAnswer, doubted, may_resend, resend_steps
from stoker.brokers.sending_window import SendingWindows
from stoker.model import commands as c
from stoker.model.errors import (
    Closed,
    InUse,
    InvalidRequest,
    ShuttingDown,
    StokerError,
    Unavailable,
    Unknown,
    Unreachable,
)
from stoker.model.replies import LEVELS
from stoker.model.steps import carry_out, carry_out_async
from stoker.wire import native

R = TypeVar("R")

log = logging.getLogger("stoker.sharing")

EMBEDDED, SERVER = "shared", "server"
"""What a directory's owner says of itself: another one of us, or `stoker serve`. Others say nothing."""

PATIENCE_S = 30.0
"""How long a call looks for an owner while none answers. An owner that recovers a large directory takes time."""
PAUSE_S, PAUSE_S_MAX = 0.005, 0.1
"""Between two looks: takeover is to be a matter of tenths of a second, and a look costs microseconds."""
TAKEOVER_S = 1.0
"""For another process to take over a directory whose log failed here."""
GRACE_S = 0.3
"""An owner has the lock a moment before it says what it is."""

SNAPSHOT_S = 600.0
"""For a snapshot: the owner finishes a file of its log, and copies the keys of ended jobs."""

HOW = RemoteSettings(retry_s=0)

LEAVING = frozenset((Unavailable, Unreachable, ShuttingDown, Closed))
"""What calls hear whose owner is going, or gone."""

_barred: dict[str, tuple[float, str]] = {}
"""Directories that this process must not open any more, since when and why: their log failed here."""


def notice(kind: str, settings: LocalSettings) -> str:
    """What an owner writes beside its process id, for processes that find the directory in use."""
    return f"{kind} {settings.durability}"


class SharedTrial:
    """One command on its way: how often it was sent, and how long its caller has patience."""

    def __init__(self, command: c.Command[Any], outage: Outage) -> None:
        self._command = command
        self._outage = outage
        self._wait_ms: int = getattr(command, "wait_ms", 0)
        self._began = time.monotonic()
        self._alone_since: float | None = None
        self._pause = PAUSE_S
        self.again = False

    @property
    def command(self) -> c.Command[Any]:
        """The command to send now: a call that has waited for a while waits only for the rest."""
        if not self._wait_ms or self._alone_since is None:
            return self._command
        waited_ms = round((time.monotonic() - self._began) * 1000)
        return msgspec.structs.replace(self._command, wait_ms=max(0, self._wait_ms - waited_ms))

    def failed(self, error: Exception, patience_s: float) -> float:
        """The pause before the next try. Raises if there must be none."""
        now = time.monotonic()
        if isinstance(error, LinkLost):
            if error.sent and not may_resend(self._command):
                raise Unknown(
                    f"it is not known whether this {type(self._command).__name__} happened: the owner of the data"
                    f" directory was lost before the answer came ({error}); look, and do it again if it did not"
                ) from None
            self.again = self.again or error.sent
            self._alone_since, self._pause = now, PAUSE_S
        elif self._alone_since is None:
            self._alone_since = now
        spent_s = now - self._alone_since
        if spent_s > patience_s:
            raise self.meaning(
                Unreachable(
                    f"no process answers for the data directory any more ({error}; tried for {spent_s:.1f} s):"
                    " start its server again, or connect again"
                )
            ) from None
        self._outage.lasts(error, spent_s, patience_s - spent_s)
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_S_MAX)
        return pause * random.uniform(0.5, 1.0)

    def meaning(self, error: StokerError) -> StokerError:
        """Of a refusal: an earlier sending may have been carried out."""
        return doubted(self._command, error) if self.again else error


Owner = LocalBroker | RemoteBroker
"""What reaches the engine: in this process, or in another."""

Step = tuple[Owner, c.Command[Any]] | float | None
"""The next step of a call: ask an owner once, pause for this many seconds, or try to become the owner."""


class SharedBroker:
    """The broker over a data directory; its engine runs in this process or in another."""

    name = LocalBroker.name
    lacks = LocalBroker.lacks

    def __init__(self, path: str, settings: LocalSettings, *, asked: bool = False) -> None:
        self.settings = settings
        self._asked = asked
        """Whether the caller has chosen settings, or takes what there is."""
        self._path = Path(os.path.realpath(path))
        self._users = 1
        self._closed = False
        self._change = threading.Lock()
        """Held by the thread that finds out which process is the owner."""
        self._found = threading.Lock()
        self._owned: LocalBroker | None = None
        self.host: DirectoryHost | None = None
        """What it does for others while it is the owner."""
        self._place: SocketPath | None = None
        self._served: RemoteBroker | None = None
        self._windows = SendingWindows()
        self._handed_over = threading.Event()
        """Set once the directory was left to others because its log failed here."""
        self._outage = Outage()
        self._by_server = False
        """Whether the owner is, or was, a server."""
        self._strange_since: float | None = None
        """Since when a process owns the directory but accepts no connections."""
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def owned(self) -> LocalBroker | None:
        """The engine, if it runs in this process."""
        return self._owned

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        owned = self._owned
        if owned is not None:
            try:
                return owned.execute(tenant, command)
            except Unavailable as error:
                if not self._has_left(owned, error):
                    raise
        return carry_out(resend_steps(command, self._windows), partial(self._send, tenant))

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        owned = self._owned
        if owned is not None:
            try:
                return await owned.execute_async(tenant, command)
            except Unavailable as error:
                if not owned.has_failed or not await asyncio.to_thread(self._has_left, owned, error):
                    raise
        return await carry_out_async(resend_steps(command, self._windows), partial(self._send_async, tenant))

    @contextmanager
    def snapshot(self) -> Iterator[Path]:
        """A folder that is a data directory of its own, with the state of one moment.

        The owner makes it. It stays while the caller holds it (`journal/snapshots.py`), at least until the end here.
        """
        found = self._ask_for_snapshot()
        if isinstance(found, LocalBroker):
            yield snapshot_of(found)
            return
        link, folder = found
        try:
            yield folder
        finally:
            link.close()

    def _ask_for_snapshot(self) -> LocalBroker | tuple[BlockingLink, Path]:
        """The connection that keeps it, and its folder; or the engine, if this process owns the directory."""

        def ask(target: Owner, command: Any) -> LocalBroker | tuple[BlockingLink, Path]:
            return target if isinstance(target, LocalBroker) else self._asked_once()

        return self._tried(c.ListQueues(), ask).reply  # type: ignore[no-any-return]  # like this one, it may be resent

    def _asked_once(self) -> tuple[BlockingLink, Path]:
        assert self._place is not None
        link = StreamLinks().connect(ServerAddress("unix", self._place.address, 0), HOW)
        try:
            frame = link.call(native.encoded(native.NativeRequest(native.SNAPSHOT, {}), HOW.codec), SNAPSHOT_S)
            head = read_head(frame, HOW.codec)
            if not head.ok:
                raise self._refused(native.error_of(head))
            name = native.FORMATS[HOW.codec].anything(head.body)["name"]
            return link, self._path / name
        except BaseException:
            link.close()
            raise

    def _refused(self, error: StokerError) -> StokerError:
        if isinstance(error, InvalidRequest) and "unknown command" in error.message:
            pid = holder_of(self._path).pid
            return InvalidRequest(
                f"process {pid} owns {self._path} and is of an earlier release, which makes no snapshots for others:"
                " start it again with this release"
            )
        return error

    def open_again(self) -> bool:
        """Count one more user in this process, which will close it too; false if it is closed already."""
        with self._found:
            if self._closed:
                return False
            self._users += 1
            return True

    def close(self) -> None:
        """Let the other processes go on: those that still ask this one are sent to the next owner."""
        with self._found:
            self._users -= 1
            if self._users > 0 or self._closed:
                return
            self._closed = True
        served = self._served
        if served is not None:
            served.close()
        with self._change:
            host, self.host = self.host, None
            if host is not None:
                host.stop()
            if self._owned is not None:
                self._owned.close()
            if self._place is not None:
                self._place.close()

    def begin_anew(self) -> None:
        """In a forked process: the directory stays the parent's. Connections to another owner see to themselves."""
        self._change, self._found = threading.Lock(), threading.Lock()
        self._windows = SendingWindows()  # under the parent's names our pushes would pass for its own
        host, self.host = self.host, None
        if host is not None:
            host.forget()
        if self._owned is not None:
            self._owned, self._served = None, None
        if not self._closed:
            self._reach()

    # --- calls to the owner, wherever it is --------------------------------------------------------

    def _send(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        def ask(target: Owner, command: c.Command[Any]) -> Any:
            return (target.execute if isinstance(target, LocalBroker) else target.once)(tenant, command)

        return self._tried(command, ask)

    def _tried(self, command: c.Command[Any], ask: Callable[[Owner, c.Command[Any]], Any]) -> ResendAnswer:
        def do(step: Step) -> Any:
            if step is None:
                return self._seek()
            return time.sleep(step) if isinstance(step, float) else ask(*step)

        return carry_out(self._tries(command), do)

    async def _send_async(self, tenant: str, command: c.Command[Any]) -> ResendAnswer:
        async def do(step: Step) -> Any:
            if step is None:
                return await asyncio.to_thread(self._seek)  # it may have to recover the directory
            if isinstance(step, float):
                return await asyncio.sleep(step)
            target, command = step
            ask = target.execute_async if isinstance(target, LocalBroker) else target.once_async
            return await ask(tenant, command)

        return await carry_out_async(self._tries(command), do)

    def _tries(self, command: c.Command[Any]) -> Generator[Step, Any, ResendAnswer]:
        """Ask the owner of the directory; while it does not answer, find out which process is the owner now."""
        trial = SharedTrial(command, self._outage)
        while True:
            target = self._target()
            try:
                reply = yield target, trial.command
            except (LinkLost, Unavailable) as error:
                self._check_open(target, error, trial)
                pause_s = trial.failed(error, self._patience_s)
            else:
                if self._outage.is_told and isinstance(target, RemoteBroker):
                    self._outage.over(self._path)
                return ResendAnswer(reply, trial.again)
            if not (yield None):
                yield pause_s

    @property
    def _patience_s(self) -> float:
        """A server that is away is waited for as over any other URL; processes take over from each other by turns."""
        return default_retry_s() if self._by_server else PATIENCE_S

    def _target(self) -> Owner:
        target = self._owned or self._served
        if target is None:
            raise Closed(CLOSED)
        return target

    def _check_open(self, target: Owner, error: LinkLost | Unavailable, trial: SharedTrial) -> None:
        """Go on if another owner can be asked.

        `Closed` says that it is over, unless we have closed the connection ourselves, to become the owner. An owner
        that is about to go says so, or that nothing can happen there any more. All else concerns the call.
        """
        if self._closed:
            raise trial.meaning(Closed(CLOSED)) from None
        if isinstance(error, LinkLost):
            return
        if not isinstance(target, RemoteBroker) or type(error) not in LEAVING:
            raise trial.meaning(error) from None
        if isinstance(error, Closed) and not target.is_closed:
            raise trial.meaning(error) from None

    # --- who is the owner? -------------------------------------------------------------------------

    def _open(self) -> None:
        """Become the owner or reach it."""
        trial = SharedTrial(c.ListQueues(), self._outage)
        while not self._seek():
            try:
                assert self._served is not None
                self._served.greet()
                self._check_shards()
                return
            except (LinkLost, Unreachable) as error:
                try:
                    time.sleep(trial.failed(error, PATIENCE_S))
                except Unreachable:
                    pid = holder_of(self._path).pid
                    raise InUse(f"{self._path} is open in process {pid}, which does not answer: {error}") from None

    def _seek(self) -> bool:
        """Try to become the owner: whether we are. Raises what is in the way, if the directory cannot be shared."""
        with self._change:
            if self._closed:
                raise Closed(CLOSED)
            if self._owned is not None:
                return True
            if str(self._path) in _barred:
                self._reach()
                self._check_barred()
                return False
            if self._by_server and holder_of(self._path).notice.startswith(SERVER):
                return False
            try:
                owned = open_sqlite(str(self._path), {}, self.settings, notice=notice(EMBEDDED, self.settings))
            except InUse as error:
                self._check_owner(error)
                self._reach()
                return False
            self._own(owned)
            return True

    def _own(self, owned: LocalBroker) -> None:
        try:
            self._place = self._place or SocketPath(self._path)
            self.host = DirectoryHost(owned, self._place)
        except BaseException:
            owned.close()
            raise
        self._handed_over.clear()
        self._owned = owned
        owned.when_stopped(partial(self._hand_over_soon, owned))
        if self._served is not None:
            self._served.close()  # wakes calls that still wait for an owner that is gone

    # --- when the log has failed here --------------------------------------------------------------

    def _hand_over_soon(self, owned: LocalBroker) -> None:
        if owned.has_failed:
            _barred[str(self._path)] = (time.monotonic(), owned.failure)
            threading.Thread(target=self._hand_over, args=(owned,), name="stoker-handing-over", daemon=True).start()

    def _hand_over(self, owned: LocalBroker) -> None:
        """Let the directory go, so that another process takes it over; from now on we are its guest."""
        with self._change:
            if self._owned is owned and not self._closed:
                log.error("%s is left to other processes: %s", self._path, owned.failure)
                host, self.host = self.host, None
                if host is not None:
                    host.stop()
                owned.close()
                self._served = None
                self._reach()
                self._owned = None
        self._handed_over.set()

    def _has_left(self, owned: LocalBroker, error: Unavailable) -> bool:
        """Whether a refused call may be sent to the next owner."""
        if type(error) is not Unavailable or not owned.has_failed:
            return False
        self._handed_over.wait(PATIENCE_S)
        return self._owned is not owned and not self._closed

    def _check_barred(self) -> None:
        """Raise if there is no other owner, after a moment in which one may come: a worker ends by `Closed`."""
        since, why = _barred[str(self._path)]
        if time.monotonic() - since > TAKEOVER_S and not is_locked(self._path):
            raise Closed(
                f"this process does not open {self._path} again, because its log failed here ({why}): end the process,"
                " and start it again"
            )

    def _reach(self) -> None:
        if self._served is None:
            self._place = self._place or SocketPath(self._path)
            self._served = RemoteBroker(StreamLinks(), ServerAddress("unix", self._place.address, 0), HOW)

    def _check_owner(self, error: InUse) -> None:
        """Whether the owner is one that serves us as we want to be served."""
        kind, _, durability = holder_of(self._path).notice.partition(" ")
        if kind not in (EMBEDDED, SERVER):
            self._strange_since = self._strange_since or time.monotonic()
            if time.monotonic() - self._strange_since > GRACE_S:
                self._strange_since = None
                raise error
            return
        self._strange_since = None
        self._by_server = kind == SERVER
        wanted = self.settings.durability
        if self._asked and durability in LEVELS and LEVELS.index(durability) < LEVELS.index(wanted):
            raise InvalidRequest(
                f"{self._path} is open in another process with durability {durability}, which is less than {wanted}:"
                " open it with the same settings everywhere"
            )

    def _check_shards(self) -> None:
        wanted, there = self.settings.shards, shards_of(self._path)
        if wanted is not None and wanted != there:
            raise InvalidRequest(
                f"{self._path} has {there} shards, but {wanted} were asked for: the number is fixed when the directory"
                " is created; leave it out, or use a new directory"
            )


# --- one for all users in this process ------------------------------------------------------------

_open: dict[str, SharedBroker] = {}
_open_lock = threading.Lock()


def open_shared(path: str, parameters: dict[str, str], settings: LocalSettings | None = None) -> SharedBroker:
    """The broker over a data directory: a new one, or the one that this process has already."""
    asked = settings is not None or bool(parameters)
    settings = with_parameters(settings or LocalSettings(), parameters, ("shards", "durability"), "sqlite://")
    if not path:
        raise InvalidRequest("sqlite:// needs a directory: sqlite:///relative/path or sqlite:////absolute/path")
    name = os.path.realpath(path)
    with _open_lock:
        broker = _open.get(name)
        if broker is None or not broker.open_again():
            broker = _open[name] = SharedBroker(path, settings, asked=asked)
        elif asked and settings != broker.settings:
            broker.close()
            raise InvalidRequest(f"{name} is open with other settings: use another one, or the same settings")
        return broker


@atexit.register
def _close_all() -> None:
    """At exit, close brokers that the program did not close, so that the directory is handed over cleanly."""
    for broker in list(_open.values()):
        while broker.open_again():
            broker.close()
            broker.close()


def _begin_anew() -> None:
    global _open_lock
    _open_lock = threading.Lock()
    _barred.clear()
    for broker in _open.values():
        broker.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
