"""Who a client is, what it may do, and for how long: transports pass it on with each request.

An identity is made once, when a client presents a credential, and checked on every request of a connection that may
live for days. So checking must be cheap: its `Grant` says whether it is still valid.
"""

from typing import Final, Literal, get_args

import msgspec

from stoker.model.errors import Unauthenticated
from stoker.server.auth.quotas import Quotas

Permission = Literal["produce", "consume", "read", "admin"]
"""Each stands alone: admin does not include the others."""

PERMISSIONS: Final[tuple[Permission, ...]] = get_args(Permission)

DEFAULT_TENANT: Final = "default"


class Grant:
    """What identities depend on: one token, key or secret. Ending it ends all of them at once."""

    __slots__ = ("ended", "source")

    def __init__(self, source: str, ended: bool = False) -> None:
        self.source = source
        """The name in errors: "the token", "the key of the token"."""
        self.ended = ended


STANDING: Final = Grant("this server")
"""For identities that nothing can withdraw."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """For logs and people; nothing is decided by it."""
    tenant: str
    permissions: frozenset[Permission]
    expires_at: float | None = None
    """Unix seconds. From then on it may do nothing, on any connection."""
    any_tenant: bool = False
    """May act for other tenants by naming them."""
    quotas: Quotas | None = None
    """From an entitlement. Quotas of the configuration are not here, because they may change meanwhile."""
    quotas_until: float = 0.0
    """Unix seconds. When the entitlement ends, the identity stays valid without it."""
    grant: Grant = STANDING
    quotas_grant: Grant = STANDING
    """The grant of the entitlement."""

    def is_valid(self, now: float) -> bool:
        """Also asked before sending without a request: events of a subscription, jobs of a stream."""
        return not self.grant.ended and (self.expires_at is None or now < self.expires_at)


OPEN: Final = Identity(name="open", tenant=DEFAULT_TENANT, permissions=frozenset(PERMISSIONS), any_tenant=True)
"""Every client on a loopback listener of a server without authentication."""


def refused(reason: str) -> Unauthenticated:
    """flashQ's clients recognise this error by its first word."""
    return Unauthenticated(f"authentication failed: {reason}")
