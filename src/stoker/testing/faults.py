"""Faults between a caller and the broker: a call that never arrives, or a reply that is lost."""

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
    """Whether the broker executes the call, and only the reply is lost."""
    has_fired: bool = False


@dataclass(slots=True)
class Faults:
    """The faults that are still to come. Calls may come from any thread."""

    coming: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail_call(self, command: CommandName, number: int = 1, error: StokerError | None = None) -> Fault:
        """Let the `number`-th such call from now on fail before anything has happened."""
        return self._add(Fault(kind_of(command), error or Unreachable("injected: the call did not arrive"), number))

    def lose_reply(self, command: CommandName, number: int = 1, error: StokerError | None = None) -> Fault:
        """Let the `number`-th such call from now on take effect, but lose its reply."""
        lost = error or Unknown("injected: the reply was lost; the call may have taken effect or not")
        return self._add(Fault(kind_of(command), lost, number, happens=True))

    def _add(self, fault: Fault) -> Fault:
        if fault.number < 1:
            raise InvalidRequest(f"number={fault.number}: expected 1 (the next call) or more")
        with self._lock:
            self.coming.append(fault)
        return fault

    def strike(self, command: c.Command[object]) -> Fault | None:
        """The fault for this call, if there is one."""
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
        raise InvalidRequest(f"there is no command {command!r}; the commands are {', '.join(sorted(NAMES))}")
    return NAMES[command]
