"""Verifies JWTs of other issuers with our keys and our clock, and turns them into identities.

PyJWT checks the signature, after the key was chosen and its algorithm fixed. Claims are read here, because the clock is
a parameter and a claim that appears twice must be refused. A token's hints about where to find its key are never
followed.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec

from stoker.model.errors import StokerError
from stoker.model.limits import NAME_PATTERN
from stoker.server.auth.files import Stamp
from stoker.server.auth.identity import PERMISSIONS, Grant, Identity, Permission, refused
from stoker.server.auth.keys import ALGORITHMS, KID_CHARS_MAX, KeySet, SigningKey
from stoker.server.auth.settings import JwtSettings
from stoker.server.auth.strict_json import decode_base64url, decode_object

TOKEN_CHARS_MAX: Final = 8_192
"""As much as a server takes in one header."""

RELOAD_SECONDS: Final = 5.0
"""Any client can name an unknown key, so the JWKS file is not read again for each of them."""

CACHE_MAX: Final = 4_096
"""Verified tokens; a kilobyte each."""

NAME_CHARS_MAX: Final = 256

UNWANTED_HEADERS: Final = ("jku", "jwk", "x5u", "x5c", "crit", "b64", "zip")
"""Keys from elsewhere, and extensions that must be understood or refused: none is understood."""

_TIME_MAX: Final = 2**53 - 1


class JwtVerifier:
    def __init__(self, settings: JwtSettings, before: "JwtVerifier | None" = None) -> None:
        self._settings = settings
        # If the rules changed, the same key might not have accepted the same tokens: no grant is kept.
        same_rules = before is not None and _rules(settings) == _rules(before._settings)
        self._keys: KeySet = KeySet(settings, before._keys if before is not None and same_rules else None)
        self._audience = (settings.audience,) if isinstance(settings.audience, str) else settings.audience or ()
        self._jws = jwt.PyJWS(algorithms=list(ALGORITHMS))
        self._cache: dict[bytes, Identity] = {}
        self._read_at: float | None = None
        self.problem: str | None = None
        """Why the JWKS file could not be read again, for the operator."""

    @property
    def stamps(self) -> dict[Path, Stamp]:
        return self._keys.stamps

    def grants(self) -> set[Grant]:
        return self._keys.grants()

    def verify(self, token: str, now: float) -> Identity:
        if len(token) > TOKEN_CHARS_MAX:
            raise refused(f"the token is longer than {TOKEN_CHARS_MAX} characters")
        digest = sha256(token.encode("ascii", "replace")).digest()
        known = self._cache.get(digest)
        if known is not None and known.is_valid(now):
            return known
        self._cache.pop(digest, None)
        identity = self._judge(token, now)
        if len(self._cache) >= CACHE_MAX:
            self._cache.pop(next(iter(self._cache)))
        self._cache[digest] = identity
        return identity

    def _judge(self, token: str, now: float) -> Identity:
        key = self._key_for(_header(token), now)
        try:
            payload = self._jws.decode_complete(token, key.material, algorithms=[key.algorithm])["payload"]
        except jwt.PyJWTError:
            raise refused("the token's signature is not valid") from None
        try:
            claims = decode_object(payload)
        except ValueError as error:
            raise refused(f"the token's claims: {error}") from None
        return self._identity(claims, key, now)

    # Keys.

    def _key_for(self, header: dict[str, Any], now: float) -> SigningKey:
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise refused(f"the token's algorithm is not one of {', '.join(ALGORITHMS)}")
        if kid is None:
            keys = self._keys.by_algorithm(algorithm)
            if len(keys) != 1:
                raise refused(f"the token names no key (kid), and there are {len(keys)} keys for {algorithm}")
            return keys[0]
        if not isinstance(kid, str) or len(kid) > KID_CHARS_MAX:
            raise refused("the token's kid is not the name of a key")
        key = self._keys.by_kid(kid) or self._key_after_rotation(kid, now)
        if key is None:
            raise refused("the token's kid names a key that this server does not know")
        if key.algorithm != algorithm:
            raise refused("the token's algorithm is not that of its key")
        return key

    def _key_after_rotation(self, kid: str, now: float) -> SigningKey | None:
        if self._settings.jwks_file is None:
            return None
        if self._read_at is not None and abs(now - self._read_at) < RELOAD_SECONDS:
            return None
        self._read_at = now
        try:
            fresh = KeySet(self._settings, self._keys)
        except StokerError as error:
            self.problem = error.message
            return None
        self.problem = None
        for gone in self._keys.grants() - fresh.grants():
            gone.ended = True
        self._keys = fresh
        return fresh.by_kid(kid)

    # Claims.

    def _identity(self, claims: dict[str, Any], key: SigningKey, now: float) -> Identity:
        settings = self._settings
        until = self._check_times(claims, now)
        self._check_meant_for_us(claims)
        tenant = claims.get(settings.tenant_claim)
        if not isinstance(tenant, str) or not NAME_PATTERN.fullmatch(tenant):
            raise refused(f"the token's claim {settings.tenant_claim!r} does not name a tenant")
        return Identity(
            name=_subject(claims),
            tenant=tenant,
            permissions=_permissions(claims.get(settings.permissions_claim), settings.permissions_claim),
            expires_at=until,
            grant=key.grant,
        )

    def _check_times(self, claims: dict[str, Any], now: float) -> float:
        """When the rights end. The leeway counts here as well, or a late token would be accepted and dropped at
        once.
        """
        leeway = self._settings.leeway
        until = _time(claims, "exp") + leeway
        if now >= until:
            raise refused("token expired")
        for claim in ("nbf", "iat"):
            if claim in claims and _time(claims, claim) > now + leeway:
                raise refused(f"the token is not valid yet ({claim}): compare the clocks")
        return until

    def _check_meant_for_us(self, claims: dict[str, Any]) -> None:
        if self._settings.issuer is not None and claims.get("iss") != self._settings.issuer:
            raise refused("the token is from another issuer (iss)")
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if named is None and not self._audience:
            return
        if not isinstance(named, list) or not any(each in self._audience for each in named if isinstance(each, str)):
            raise refused("the token is for another audience (aud)")


def _rules(settings: JwtSettings) -> JwtSettings:
    return msgspec.structs.replace(settings, keys=(), jwks_file=None)


def _header(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        raise refused("the token is not a signed JWT")
    try:
        header = decode_object(decode_base64url(parts[0]))
        for part in parts[1:]:
            decode_base64url(part)
    except ValueError as error:
        raise refused(f"the token is malformed: {error}") from None
    for name in UNWANTED_HEADERS:
        if name in header:
            raise refused(f"the token's header has {name!r}, which is never followed")
    return header


def _time(claims: dict[str, Any], claim: str) -> float:
    found = claims.get(claim)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _TIME_MAX:
        raise refused(f"the token's claim {claim!r} is not a time in seconds")
    return float(found)


def _subject(claims: dict[str, Any]) -> str:
    found = claims.get("sub", "jwt")
    if not isinstance(found, str) or not 1 <= len(found) <= NAME_CHARS_MAX or not found.isprintable():
        raise refused(f"the token's claim 'sub' is not a printable text of up to {NAME_CHARS_MAX} characters")
    return found


def _permissions(found: Any, claim: str) -> frozenset[Permission]:
    words = found.split(" ") if isinstance(found, str) else found
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise refused(f"the token's claim {claim!r} is not a list of permissions")
    granted = frozenset(permission for permission in PERMISSIONS if permission in words)
    if not granted:
        raise refused(f"the token's claim {claim!r} has none of {', '.join(PERMISSIONS)}")
    return granted
