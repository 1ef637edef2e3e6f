"""Faults between a caller and the broker: a call that never arrives, and an answer that never comes back."""

import re
import threading
from dataclasses import dataclass, field

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, StokerError, Unknown, Unreachable

NAMES = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind
    for kind in vars(c).values()
    if isinstance(kind, type) and issubclass(kind, c.Command) and kind is not c.Command
}
"""The commands by the names of the client's methods: `push`, `push_batch`, `ack`, `kv_set`, ..."""

CommandName = str | type[c.Command[object]]


@dataclass(slots=True)
class Fault:
    """One call that goes wrong: the `number`-th of its kind from now on."""

    kind: type[c.Command[object]]
    error: StokerError
    number: int = 1
    happens: bool = False
    """Whether the broker does what it was asked for, and only the answer is lost."""
    has_fired: bool = False


@dataclass(slots=True)
class Faults:
    """Those that are still to come. Calls may come from any thread."""

    coming: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail_call(self, command: CommandName, number: int = 1, error: StokerError | None = None) -> Fault:
        """Let the `number`-th such call from now on fail before anything has happened."""
        return self._add(Fault(kind_of(command), error or Unreachable("injected: the call did not arrive"), number))

    def lose_reply(self, command: CommandName, number: int = 1, error: StokerError | None = None) -> Fault:
        """Let the `number`-th such call from now on happen, and its answer get lost."""
        lost = error or Unknown("injected: the answer got lost; it may have happened or not")
        return self._add(Fault(kind_of(command), lost, number, happens=True))

    def _add(self, fault: Fault) -> Fault:
        if fault.number < 1:
            raise InvalidRequest(f"number={fault.number}: the next call is number 1")
        with self._lock:
            self.coming.append(fault)
        return fault

    def strike(self, command: c.Command[object]) -> Fault | None:
        """The fault that meets this call, if there is one."""
        if not self.coming:
            return None
        with self._lock:
            for fault in self.coming:
                if fault.kind is type(command):
                    fault.number -= 1
                    if fault.number == 0:
                        fault.has_fired = True
                        self.coming.remove(fault)
                        return fault
        return None


def kind_of(command: CommandName) -> type[c.Command[object]]:
    if isinstance(command, type):
        return command
    if command not in NAMES:
        raise InvalidRequest(f"there is no command {command!r}: it is one of {', '.join(sorted(NAMES))}")
    return NAMES[command]
