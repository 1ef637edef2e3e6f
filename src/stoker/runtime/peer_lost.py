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
    return not_there([process])


def not_there(processes: Sequence[int]) -> errors.Unavailable:
    one, names = len(processes) == 1, ", ".join(map(str, processes))
    which, back = (
        (f"process {names} is", "it comes back by itself")
        if one
        else (f"processes {names} are", "they come back by themselves")
    )
    return errors.Unavailable(f"{which} not there at the moment: {back}, try again")


def check_all(replies: Sequence[Any], changes: bool) -> None:
    """One of several has failed: if others have not, part of it may have happened."""
    failed = [reply for reply in replies if isinstance(reply, BaseException)]
    if not failed:
        return
    happened = changes and (len(failed) < len(replies) or any(isinstance(one, PeerLost) and one.sent for one in failed))
    error = failed[0]
    gone = [one.process for one in failed if isinstance(one, PeerLost)]
    if not happened and len(gone) > 1:
        raise not_there(gone)
    raise lost(error.process, happened) if isinstance(error, PeerLost) else error
