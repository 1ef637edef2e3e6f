"""Errors that pass: nothing was written, and the same may succeed a moment later.

A process that has run out of descriptors cannot open files, and a full disk has no room for new ones. Neither says
anything about what is on disk. A write or a flush that failed does, and is never tried again.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

SPARE_DESCRIPTORS = 16
"""Kept open for nothing: as many as the making of a file, its sealing, or the start of a checkpoint need at once."""

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))


def is_no_room(error: BaseException) -> bool:
    """Whether the disk, or what we may use of it, is full."""
    if isinstance(error, apsw.Error):
        return isinstance(error, apsw.FullError) or is_no_room_for_index(error)
    return getattr(error, "errno", 0) in NO_ROOM


def is_no_room_for_index(error: apsw.Error) -> bool:
    """SQLite found no room for the index of a write-ahead log, and calls that an I/O error."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def is_not_opened(error: BaseException) -> bool:
    """Whether a file could not be opened, most likely because there are no descriptors left."""
    if isinstance(error, apsw.Error):
        return isinstance(error, apsw.CantOpenError)
    return getattr(error, "errno", 0) in NO_DESCRIPTOR


def is_passing(error: BaseException) -> bool:
    """Whether the same is tried again. Only of things that can be done again from their beginning."""
    return is_no_room(error) or is_not_opened(error)


class Spares:
    """Descriptors that are opened ahead: where connections have taken all others, the journal still has these."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.take()

    def take(self) -> None:
        """Have as many as there should be, or as many as there are."""
        try:
            while len(self._held) < SPARE_DESCRIPTORS:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # the next round takes the rest

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What is opened in here may take their places."""
        self.close()
        try:
            yield
        finally:
            self.take()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())
