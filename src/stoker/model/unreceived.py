"""What goes back when a client does not receive the jobs of its pull.

The client has left, or another reply came first. Every part of the queue that finds this out asks `release_of`, and
carries out the command that it returns: the jobs are then as if never pulled.
"""

from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r


def release_of(command: Any, reply: Any, *, received: int = 0, claimed: bool = False) -> c.Release | None:
    """The command that returns the jobs in a reply that its client did not receive. None if there is nothing to return.

    `command` is any command, also a part of a pull over several processes (`Take` and `Await` of
    `runtime/process_requests.py`), which carries the whole pull. Of a delivery in pieces, the client has `received` the
    first jobs. Jobs under a claim stay, because the client can ask for them again by its name. With `claimed` they go
    back as well: the client has lost the right to them, or another process holds the claim.
    """
    pull = getattr(command, "pull", command)
    if type(pull) is not c.Pull or not (claimed or pull.claim is None):
        return None
    delivery = getattr(reply, "delivery", reply)  # a `Take` is answered with more than the delivery
    ids = delivery.ids[received:] if type(delivery) is r.Delivery else ()
    return c.Release(ids, delivery.token) if ids else None
