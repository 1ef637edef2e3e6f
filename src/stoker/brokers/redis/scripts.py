"""The scripts, put together from their parts.

Every function of a script is made anew at every call. So a script begins with `core.lua` and the few parts that its
plain case needs. All other parts follow in blocks that run only if something is due (then `time.lua` follows, too), or
if the script finds that its case is not plain.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ALL = ("rows", "ended", "jobs", "wide", "limits", "ready", "keys", "moves", "edges", "flows")
"""The parts that build on `core.lua`, in the order in which they build on each other."""
PLAIN: dict[str, tuple[str, ...]] = {
    "push": ("making",),
    "pull": ("rows",),
    "settle": ("rows", "ended"),
    "kv": ("rows", "ended", "jobs"),
}
"""The parts that the plain case of a script needs. Its file says before the line `-- parts` what `is_plain`."""
MORE: dict[str, tuple[str, ...]] = {
    "push": ("alone",),
    "workflow": ("making",),
    "schedule": ("making",),
    "look": ("show",),
    "control": ("show",),
}
"""Parts that only these scripts need."""
AT_ONCE = ("schedule",)
"""Scripts that do not work off what is due first: they are what is due, or their caller has done so."""
WHOLE = ("open", "back", "hold")
"""Scripts that stand for themselves."""
MAKES = ("push", "workflow")
"""Scripts that bring new data: refused while the memory is full."""
MARK = "-- parts\n"


class Script(NamedTuple):
    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    text = _part(name) if name in WHOLE else _assembled(name)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _assembled(name: str) -> str:
    plain = PLAIN.get(name, ())
    rest = [part for part in ALL if part not in plain]
    own = MORE.get(name, ())
    first, mark, last = _part(name).partition(MARK)
    if not mark:
        first, last = "local is_plain = false\n", first
    due = f"{_blocks(rest)}\n{_part('time')}\njobs = {{}}"
    return "\n".join(
        (
            _part("core"),
            f"local {', '.join(name for part in (*plain, *rest, *own) for name in _exports(part))}",
            _blocks(plain),
            _part("room") if name in MAKES else "",
            ""
            if name in AT_ONCE
            else f"first_head = head_deadline()\nhead = first_head\nif head >= 0 and head <= now then\n{due}\nend",
            first,
            f"if not is_plain then\nif not moves then\n{_blocks(rest)}\nend\n{_blocks(own)}\nend",
            last,
        )
    )


def _exports(name: str) -> list[str]:
    """The names that others see of a part: its line `exports`."""
    line = _part(name).partition("-- exports: ")[2].partition("\n")[0]
    return line.split(", ") if line else []


def _blocks(names: list[str] | tuple[str, ...]) -> str:
    """Each part in a function: its own functions then find the names of others at once. Lua allows 60 of them."""
    return "\n".join(f"do\nlocal function part()\n{_part(name)}\nend\npart()\nend" for name in names)


def _part(name: str) -> str:
    return (files("stoker.brokers.redis") / "lua" / f"{name}.lua").read_text()
