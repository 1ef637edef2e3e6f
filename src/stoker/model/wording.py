"""Numbers, durations and sizes as people read them: in the terminal and on the dashboard's pages."""


def lasting(ms: float) -> str:
    """A duration with two significant units or digits: `350 ms`, `12.3 s`, `4m 05s`, `2h 13m`, `3d 04h`."""
    if ms < 0:
        return f"-{lasting(-ms)}"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    seconds = ms / 1_000
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3_600}h {whole % 3_600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3_600:02d}h"


def away(ms: int, now: int) -> str:
    """A time as seen from now: `3m 10s ago`, `in 2h 13m`."""
    return f"in {lasting(ms - now)}" if ms > now else f"{lasting(now - ms)} ago"


def size(count: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} {units[0]}" if units[0] == "B" else f"{count:.1f} {units[0]}"


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s" if per_second >= 10 or not per_second else f"{per_second:.1f}/s"


def many(count: int, one: str, more: str | None = None) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


UNITS_MS = {1_000: "s", 60_000: "m", 3_600_000: "h", 86_400_000: "d"}


def limit_text(count: int, per_ms: int) -> str:
    """A rate limit: `100/s`."""
    return f"{count:,}/{UNITS_MS.get(per_ms, f'{per_ms} ms')}"
