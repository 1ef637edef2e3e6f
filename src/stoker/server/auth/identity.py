"""Who a peer is, what it may do, and for how long: what every transport hands on with a request.

An identity is made once, when a peer shows a credential, and asked on every request of a connection that may
live for days. So it must know cheaply whether it still stands: `Grant` is what it stands on.
"""

from typing import Final, Literal, get_args

import msgspec

from stoker.model.errors import Unauthenticated
from stoker.server.auth.quotas import Quotas

Permission = Literal["produce", "consume", "read", "admin"]
"""Each stands for itself: admin does not include the others."""

PERMISSIONS: Final[tuple[Permission, ...]] = get_args(Permission)

DEFAULT_TENANT: Final = "default"


class Grant:
    """What identities stand on: one token, one key, one secret. Ended, it takes all of them along at once."""

    __slots__ = ("ended", "source")

    def __init__(self, source: str, ended: bool = False) -> None:
        self.source = source
        """As an error names it: "the token", "the key of the token"."""
        self.ended = ended


STANDING: Final = Grant("this server")
"""For identities that nothing can take back."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """For logs and for people; nothing is decided by it."""
    tenant: str
    permissions: frozenset[Permission]
    expires_at: float | None = None
    """Unix seconds. From this moment on it may do nothing, on whichever connection."""
    any_tenant: bool = False
    """May act for tenants other than its own by naming them."""
    quotas: Quotas | None = None
    """From an entitlement. What the configuration says of a tenant is not here: it may change meanwhile."""
    quotas_until: float = 0.0
    """Unix seconds; an entitlement ends on its own, and the identity lives on without it."""
    grant: Grant = STANDING
    quotas_grant: Grant = STANDING
    """What the entitlement stands on."""

    def is_valid(self, now: float) -> bool:
        """Ask before anything that is sent unasked, too: events of a subscription, jobs of a stream."""
        return not self.grant.ended and (self.expires_at is None or now < self.expires_at)


OPEN: Final = Identity(name="open", tenant=DEFAULT_TENANT, permissions=frozenset(PERMISSIONS), any_tenant=True)
"""Everybody on a loopback listener of a server for which nothing was configured."""


def refused(reason: str) -> Unauthenticated:
    """The word in front is what clients of flashQ tell this error by."""
    return Unauthenticated(f"authentication failed: {reason}")
