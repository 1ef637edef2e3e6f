"""The scripts, put together from their parts.

Each begins with `core.lua`. What is due happens first (`time.lua`): its functions are made only if something is due,
because every function costs time in every call. Then come the parts that the script itself needs.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ALL = ("wide", "limits", "ready", "keys", "moves", "edges", "flows")
PARTS: dict[str, tuple[str, ...]] = {
    "push": ALL,
    "pull": ALL,
    "settle": ALL,
    "report": ("wide", "limits", "ready"),
    "look": ALL,
    "queue": ALL,
    "control": ALL,
    "sweep": ALL,
    "kv": (),
    "workflow": ALL,
    "schedule": ALL,
}
"""The parts that each script needs, in the order in which they build on each other."""
AT_ONCE = ("schedule",)
"""Scripts that do not work off what is due first: they are what is due, or their caller has done so."""
WHOLE = ("open", "back")
"""Scripts that stand for themselves."""
MAKES = ("push", "workflow")
"""Scripts that bring new data: refused while the memory is full."""


class Script(NamedTuple):
    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    text = _part(name) if name in WHOLE else _assembled(name)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _assembled(name: str) -> str:
    room = _part("room") if name in MAKES else ""
    due = "".join(map(_shared, ALL)) + _part("time")
    own = "".join(map(_shared, PARTS[name]))
    return "\n".join(
        (
            _part("core"),
            room,
            ""
            if name in AT_ONCE
            else f"first_head = head_deadline()\nif first_head >= 0 and first_head <= now then\n{due}\nend",
            "capacity, has_front, push_out, flows = nil, nil, nil, nil",
            own,
            _part(name),
        )
    )


def _shared(name: str) -> str:
    """A part in a block of its own: only the names in its line `exports` are seen by others. Lua allows 200 at once."""
    text = _part(name)
    exports = text.partition("-- exports: ")[2].partition("\n")[0]
    return f"local {exports}\ndo\n{text}\nend\n"


def _part(name: str) -> str:
    return (files("stoker.brokers.redis") / "lua" / f"{name}.lua").read_text()
