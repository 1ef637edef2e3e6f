"""Whether a journal has so little room, or so much trouble, that each command has to be looked at.

The runtime asks that for every command, so it is one attribute. What it depends on changes rarely, and says so here.
"""

import threading

ROOM_WATCHED = 256 * 1024 * 1024
"""With less room than this on the disk, the size of each push is looked at."""


class RoomWatch:
    """The part of a journal that says whether something new may come (`journal/contract.py`)."""

    room = 1 << 62

    def __init__(self) -> None:
        self._is_full = False
        self._absent = ""
        self.is_tight = False
        self._lock = threading.Lock()  # threads of the upkeep and the caller's change it

    @property
    def is_full(self) -> bool:
        return self._is_full

    @is_full.setter
    def is_full(self, now: bool) -> None:
        self._is_full = now
        self.look_if_tight()

    @property
    def absent(self) -> str:
        return self._absent

    @absent.setter
    def absent(self, why: str) -> None:
        self._absent = why
        self.look_if_tight()

    def look_if_tight(self) -> None:
        """To be called after `room` has changed by much, or has come near its end."""
        with self._lock:
            self.is_tight = self._is_full or bool(self._absent) or self.room < ROOM_WATCHED
