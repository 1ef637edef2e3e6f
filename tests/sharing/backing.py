"""The broker of the conformance suite that shares a data directory: another process owns it, this one is its guest."""

import shutil

from stoker.brokers.connect import open_broker
from stoker.brokers.local import LocalSettings
from stoker.brokers.shared import SharedBroker
from tests.crash.restarted import fresh_directory
from tests.crash.zygote import the_zygote
from tests.sharing.roles import own


class SharedWithOwner:
    """A guest's broker, and the clock of the owner."""

    def __init__(self, settings: LocalSettings) -> None:
        self._directory = fresh_directory()
        self._owner = the_zygote().fork(own, str(self._directory), settings)
        assert self._owner.receive() == "open"
        self.broker = open_broker(f"sqlite:///{self._directory}")
        assert isinstance(self.broker, SharedBroker)
        assert self.broker.owned is None, "this process is the guest"

    @property
    def now(self) -> int:
        return self._ask("now")

    def advance(self, ms: int) -> None:
        self._ask("advance", ms)

    def close(self) -> None:
        self.broker.close()
        self._owner.send(("close",))
        assert self._owner.receive() == "closed"
        assert self._owner.join() == 0
        shutil.rmtree(self._directory)

    def _ask(self, *request: object) -> int:
        self._owner.send(request)
        return int(self._owner.receive())
