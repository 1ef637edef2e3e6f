"""The broker of the conformance suite that shares a data directory: another process owns it, this one is its guest."""

import shutil
import threading
from functools import cache
from typing import Any

from stoker.brokers.connect import open_broker
from stoker.brokers.local import LocalSettings
from stoker.brokers.shared_directory import SharedBroker
from tests.crash.restarted import fresh_directory
from tests.crash.zygote import Child, the_zygote
from tests.sharing.roles import own


class Owner:
    """The process that owns the directories of all tests, one after another."""

    def __init__(self) -> None:
        self._child: Child = the_zygote().fork(own)
        self._lock = threading.Lock()

    def ask(self, verb: str, path: str, *arguments: object) -> Any:
        with self._lock:
            self._child.send((verb, path, *arguments))
            return self._child.receive()


@cache
def the_owner() -> Owner:
    return Owner()


class SharedWithOwner:
    """A guest's broker, and the clock of the owner."""

    def __init__(self, settings: LocalSettings) -> None:
        self._directory = fresh_directory()
        self._ask("open", settings)
        self.broker = open_broker(f"sqlite:///{self._directory}")
        assert isinstance(self.broker, SharedBroker)
        assert self.broker.owned is None, "this process is the guest"

    @property
    def now(self) -> int:
        return int(self._ask("now"))

    def advance(self, ms: int) -> None:
        self._ask("advance", ms)

    def picture(self, tenant: str) -> Any:
        return self._ask("picture", tenant)

    def close(self) -> None:
        self.broker.close()
        self._ask("close")
        shutil.rmtree(self._directory)

    def _ask(self, verb: str, *arguments: object) -> Any:
        return the_owner().ask(verb, str(self._directory), *arguments)
