"""Processes that do not answer any more, and the errors that waiting callers get."""

from collections.abc import Sequence
from typing import Any

from stoker.model import errors


class PeerLost(Exception):
    """A process ended, or was not there; `sent` says whether it had been asked."""

    def __init__(self, process: int, sent: bool) -> None:
        self.process, self.sent = process, sent


def lost(process: int, maybe: bool) -> errors.StokerError:
    if maybe:
        return errors.Unknown(
            f"it is not known whether this happened: process {process} ended before it answered; it comes back by"
            " itself"
        )
    return errors.Unavailable(f"process {process} is not there at the moment: it comes back by itself, try again")


def check_all(replies: Sequence[Any], changes: bool) -> None:
    """One of several has failed: if others have not, part of it may have happened."""
    failed = [reply for reply in replies if isinstance(reply, BaseException)]
    if not failed:
        return
    happened = changes and (len(failed) < len(replies) or any(isinstance(one, PeerLost) and one.sent for one in failed))
    error = failed[0]
    raise lost(error.process, happened) if isinstance(error, PeerLost) else error
