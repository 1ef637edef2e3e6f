"""What a plan knows of the connection and the server: values, nothing to call."""

import msgspec

from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.wire.flashq.decoding import Codec


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """How this connection wants its answers."""

    codec: Codec = "json"
    hello: bool = False
    """The client knows us: it is spared what only flashQ's own readers need, and a duplicate is no error to it."""
    ranges: bool = False
    """Ids may come as `[[first, count, step], ...]`."""
    limits: Limits = DEFAULT_LIMITS
    now: int = 0
    """The queue's clock in milliseconds; only `KVTTL` asks for it."""
