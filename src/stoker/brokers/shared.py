"""A data directory that several processes use at once, without a server.

One of them owns it by the file lock: its calls go straight to the engine, and it lets the others in through the socket
in the directory (`hosting.py`). When it ends, whoever calls next finds nobody there, tries the lock, and either
becomes the owner or finds the one who did. Calls that were under way are sent again (`resending.py` says which); their
callers notice nothing but a pause.

A directory that `stoker serve` has open is used the same way, but never taken over: the server comes back.
"""

import asyncio
import atexit
import os
import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stoker.brokers.hosting import Host, Place
from stoker.brokers.local import CLOSED, LocalBroker, LocalSettings, holder_of, open_sqlite, shards_of, with_parameters
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.links import LinkLost, StreamLinks
from stoker.brokers.remote.settings import Address, RemoteSettings
from stoker.brokers.resending import Answer, Senders, carry_out, carry_out_async, may_resend, plan_of
from stoker.model import commands as c
from stoker.model.errors import Closed, InUse, InvalidRequest, ShuttingDown, Unknown, Unreachable
from stoker.model.replies import LEVELS

R = TypeVar("R")

EMBEDDED, SERVER = "shared", "server"
"""What a directory's owner says of itself: another one of us, or `stoker serve`. Others say nothing."""

PATIENCE_S = 30.0
"""For how long a call looks for an owner while nobody answers. An owner that recovers a large directory takes time."""
PAUSE_S, PAUSE_S_MAX = 0.005, 0.1
"""Between two looks: takeover is to be a matter of tenths of a second, and a look costs microseconds."""
GRACE_S = 0.3
"""An owner has the lock a moment before it says what it is."""

HOW = RemoteSettings(retry_s=0)


def notice(kind: str, settings: LocalSettings) -> str:
    """What an owner writes beside its process id, for those who find the directory in use."""
    return f"{kind} {settings.durability}"


class Trial:
    """One command on its way: how often it was sent, and how long its caller has patience."""

    def __init__(self, command: c.Command[Any]) -> None:
        self._command = command
        self._wait_ms: int = getattr(command, "wait_ms", 0)
        self._began = time.monotonic()
        self._alone_since: float | None = None
        self._pause = PAUSE_S
        self.again = False

    @property
    def command(self) -> c.Command[Any]:
        """What to send now: who has waited for a while waits only for the rest."""
        if not self._wait_ms or self._alone_since is None:
            return self._command
        waited_ms = round((time.monotonic() - self._began) * 1000)
        return msgspec.structs.replace(self._command, wait_ms=max(0, self._wait_ms - waited_ms))

    def failed(self, error: Exception) -> float:
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
        if now - self._alone_since > PATIENCE_S:
            raise Unreachable(
                f"nobody answers for the data directory any more ({error}): start its server again, or connect anew"
            ) from None
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_S_MAX)
        return pause * random.uniform(0.5, 1.0)


class SharedBroker:
    """The broker over a data directory, in whichever process its engine runs."""

    def __init__(self, path: str, settings: LocalSettings, *, asked: bool = False) -> None:
        self.settings = settings
        self._asked = asked
        """Whether the caller has chosen settings, or takes what there is."""
        self._path = Path(os.path.realpath(path))
        self._users = 1
        self._closed = False
        self._change = threading.Lock()
        """Held by whoever finds out who the owner is."""
        self._found = threading.Lock()
        self._owned: LocalBroker | None = None
        self.host: Host | None = None
        """What it does for others while it is the owner."""
        self._place: Place | None = None
        self._served: RemoteBroker | None = None
        self._senders = Senders()
        self._by_server = False
        """Whether the owner is, or was, a server."""
        self._strange_since: float | None = None
        """Since when somebody has the directory who lets nobody in."""
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
            return owned.execute(tenant, command)
        return carry_out(plan_of(command, self._senders), partial(self._send, tenant))

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        owned = self._owned
        if owned is not None:
            return await owned.execute_async(tenant, command)
        return await carry_out_async(plan_of(command, self._senders), partial(self._send_async, tenant))

    def open_again(self) -> bool:
        """One more user in this process, who will close it too; false if it is closed already."""
        with self._found:
            if self._closed:
                return False
            self._users += 1
            return True

    def close(self) -> None:
        """Let the others go on: whoever still asks us something is told to ask the next owner."""
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
        self._senders = Senders()  # under the parent's names our pushes would pass for its own
        host, self.host = self.host, None
        if host is not None:
            host.forget()
        if self._owned is not None:
            self._owned, self._served = None, None
        if not self._closed:
            self._reach()

    # --- calls to the owner, wherever it is --------------------------------------------------------

    def _send(self, tenant: str, command: c.Command[Any]) -> Answer:
        trial = Trial(command)
        while True:
            target = self._target()
            if isinstance(target, LocalBroker):
                return Answer(target.execute(tenant, trial.command), trial.again)
            try:
                return Answer(target.once(tenant, trial.command), trial.again)
            except (LinkLost, Unreachable, ShuttingDown, Closed) as error:
                self._check_open(target, error)
                pause = trial.failed(error)
            if not self._seek():
                time.sleep(pause)

    async def _send_async(self, tenant: str, command: c.Command[Any]) -> Answer:
        trial = Trial(command)
        while True:
            target = self._target()
            if isinstance(target, LocalBroker):
                return Answer(await target.execute_async(tenant, trial.command), trial.again)
            try:
                return Answer(await target.once_async(tenant, trial.command), trial.again)
            except (LinkLost, Unreachable, ShuttingDown, Closed) as error:
                self._check_open(target, error)
                pause = trial.failed(error)
            if not await asyncio.to_thread(self._seek):  # it may have to recover the directory
                await asyncio.sleep(pause)

    def _target(self) -> LocalBroker | RemoteBroker:
        target = self._owned or self._served
        if target is None:
            raise Closed(CLOSED)
        return target

    def _check_open(self, target: RemoteBroker, error: Exception) -> None:
        """`Closed` says that it is over, unless we have closed the connection ourselves, to become the owner."""
        if self._closed:
            raise Closed(CLOSED) from None
        if isinstance(error, Closed) and not target.is_closed:
            raise error

    # --- who is the owner? -------------------------------------------------------------------------

    def _open(self) -> None:
        """Become the owner or reach it."""
        trial = Trial(c.ListQueues())
        while not self._seek():
            try:
                assert self._served is not None
                self._served.greet()
                self._check_shards()
                return
            except (LinkLost, Unreachable) as error:
                try:
                    time.sleep(trial.failed(error))
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
            self._place = self._place or Place(self._path)
            self.host = Host(owned, self._place)
        except BaseException:
            owned.close()
            raise
        self._owned = owned
        if self._served is not None:
            self._served.close()  # wakes who still waits for somebody who is gone

    def _reach(self) -> None:
        if self._served is None:
            self._place = self._place or Place(self._path)
            self._served = RemoteBroker(StreamLinks(), Address("unix", self._place.address, 0), HOW)

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
                f"{self._path} has {there} shards, and {wanted} were asked for: the number is fixed when the directory"
                " is made; leave it out, or use a new directory"
            )


# --- one for all users in this process ------------------------------------------------------------

_open: dict[str, SharedBroker] = {}
_open_lock = threading.Lock()


def open_shared(path: str, parameters: dict[str, str], settings: LocalSettings | None = None) -> SharedBroker:
    """The broker over a data directory, whoever owns it: a new one, or the one that this process has already."""
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
    """Whoever forgot to close hands the directory over in good order all the same."""
    for broker in list(_open.values()):
        while broker.open_again():
            broker.close()
            broker.close()


def _begin_anew() -> None:
    global _open_lock
    _open_lock = threading.Lock()
    for broker in _open.values():
        broker.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
