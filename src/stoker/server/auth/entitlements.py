"""Entitlements: quotas of a tenant that the operator signed and only this server verifies.

The form is `base64url(json).base64url(HMAC-SHA256)`, with the HMAC over the first part as written. That part has no
dot, while what a JWT or a webhook signs does: even if a secret is used for both, one cannot be turned into the other.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from stoker.model.errors import Forbidden, InvalidRequest
from stoker.model.limits import NAME_PATTERN
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.strict_json import decode_base64url, decode_object, encode_base64url

SECRET_BYTES_MIN: Final = 32
"""As long as the hash: a shorter secret is easier to guess."""

ENTITLEMENT_CHARS_MAX: Final = 4_096


class Entitlement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant: str
    quotas: Quotas
    expires_at: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """Unix seconds. Every entitlement expires."""


def sign(entitlement: Entitlement, secret: str) -> str:
    if not NAME_PATTERN.fullmatch(entitlement.tenant):
        raise InvalidRequest(f"tenant {entitlement.tenant!r:.80}: expected {NAME_PATTERN.pattern}")
    body = encode_base64url(msgspec.json.encode(entitlement))
    return f"{body}.{encode_base64url(_seal(body, check_secret(secret)))}"


def verify(text: str, secrets: Sequence[str], tenant: str, now: float) -> tuple[Entitlement, int]:
    """The entitlement, and the index of the secret that signed it. Nothing is read before the signature is verified."""
    if len(text) > ENTITLEMENT_CHARS_MAX:
        raise Forbidden(f"the entitlement is longer than {ENTITLEMENT_CHARS_MAX} characters")
    body, _, signature = text.partition(".")
    try:
        given = decode_base64url(signature)
        decode_base64url(body)
    except ValueError:
        raise Forbidden("the entitlement is malformed: expected base64url(json).base64url(signature)") from None
    signed_by = None
    for number, secret in enumerate(secrets):
        if hmac.compare_digest(_seal(body, check_secret(secret)), given):
            signed_by = number
    if signed_by is None:
        raise Forbidden("the entitlement is not signed by this server's operator, or was altered")
    return _judge(body, tenant, now), signed_by


def _judge(body: str, tenant: str, now: float) -> Entitlement:
    try:
        entitlement = msgspec.convert(decode_object(decode_base64url(body)), Entitlement)
    except ValueError as error:  # includes msgspec's errors
        raise Forbidden(f"the entitlement is signed but malformed: {error}") from None
    if now >= entitlement.expires_at:
        raise Forbidden("the entitlement has expired: ask for a new one")
    if entitlement.tenant != tenant:
        raise Forbidden("the entitlement is for another tenant")
    return entitlement


def _seal(body: str, secret: str) -> bytes:
    return hmac.digest(secret.encode(), body.encode(), sha256)


def check_secret(secret: str) -> str:
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise InvalidRequest(f"a secret for entitlements needs {SECRET_BYTES_MIN} bytes or more: use random ones")
    return secret
