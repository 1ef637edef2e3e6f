"""What a lake tells about itself without Spark: the lag that its stream has measured, and its newest report."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from stoker.model.errors import LimitExceeded, NotFound
from stoker.model.lag import FILE, Lag
from stoker.model.wording import lasting, many
from stoker.server.dashboard.facts import Attention

LATE_S: Final = 60.0
"""A lake that is further behind needs attention: docs/pipeline/lag.md names the same alert."""
SILENT_MS: Final = 120_000
"""A stream writes its lag every 30 s at least: after this time it has stopped, or cannot reach its queue."""
LAG_BYTES_MAX: Final = 1 << 20
REPORT_BYTES_MAX: Final = 64 << 20


class LakeReport(NamedTuple):
    """A page that `stoker pipeline report` has written into the lake's directory."""

    path: str
    at: int
    """Milliseconds since 1970."""
    size: int


class LakeState(NamedTuple):
    path: str
    lag: Lag | None
    problem: str
    """Why there is no lag to show; empty if there is."""
    report: LakeReport | None

    def silent_ms(self, now: int) -> int:
        """For how long the stream has measured nothing; 0 while it does."""
        age = now - self.lag.at if self.lag is not None else 0
        return age if age > SILENT_MS else 0

    def attention(self, now: int) -> Iterator[Attention]:
        """What an operator should know of."""
        if self.lag is None:
            return
        if silent := self.silent_ms(now):
            yield Attention("warning", f"The lake's stream has not reported its lag for {lasting(silent)}.", LINK)
        elif self.lag.seconds > LATE_S:
            behind = f"{many(self.lag.events, 'event')}, {lasting(self.lag.seconds * 1_000)}"
            yield Attention("warning", f"The lake is behind its queue: {behind}.", LINK)


LINK: Final = "/ui/server#pipeline"


def look_at_lake(path: str) -> LakeState:
    """Reads files: for a thread."""
    lag, problem = None, ""
    try:
        lag = msgspec.json.decode(_read(Path(path) / FILE, LAG_BYTES_MAX), type=Lag)
    except FileNotFoundError:
        problem = f"there is no lake at {path}: `stoker pipeline stream` makes one, or change dashboard.lake"
        if Path(path).is_dir():
            problem = "nothing has measured the lag of this lake: `stoker pipeline stream` does while it runs"
    except (OSError, LimitExceeded, msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"{FILE} of the lake cannot be read: {error}"
    return LakeState(path, lag, problem, newest_report(path))


def newest_report(path: str) -> LakeReport | None:
    """The newest page in the lake's directory. None if there is none."""
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith(".html") and entry.is_file(follow_symlinks=False):
                    known = entry.stat(follow_symlinks=False)
                    found.append(LakeReport(entry.path, known.st_mtime_ns // 1_000_000, known.st_size))
    except OSError:  # `look_at_lake` says what is wrong with the directory
        return None
    return max(found, key=lambda report: report.at, default=None)


def read_report(path: str) -> bytes:
    """The newest report. Raises `NotFound` if there is none any more."""
    report = newest_report(path)
    if report is None:
        raise NotFound(f"there is no report in {path}: make one with `stoker pipeline report --out {path}/report.html`")
    try:
        return _read(Path(report.path), REPORT_BYTES_MAX)
    except OSError as error:
        raise NotFound(f"the report {report.path} cannot be read: {error.strerror}") from None


def _read(path: Path, bytes_max: int) -> bytes:
    """A whole regular file. A link is not followed: who may write a lake must not choose what the server reads."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise OSError(0, "it is no regular file")
        text = file.read(bytes_max + 1)
    if len(text) > bytes_max:
        raise LimitExceeded(f"{path} has more than {bytes_max:,} bytes: read it where it lies")
    return text
