"""Decides for every transport who a client is, and what it may do.

A gate is built from settings and the files that they name. A reload builds everything anew beside the old and then
switches in one step, or reports what is bad and changes nothing. It knows no transport and no command.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from stoker.model.errors import Forbidden, InvalidRequest, StokerError, Unauthenticated
from stoker.model.limits import NAME_PATTERN
from stoker.server.auth import entitlements
from stoker.server.auth.files import Stamp, stamp
from stoker.server.auth.identity import OPEN, Grant, Identity, Permission, refused
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings, JwtSettings
from stoker.server.auth.tokens import TokenBook, read_tokens

CREDENTIAL_CHARS_MAX: Final = 8_192
"""Longer than any token; longer credentials are not even hashed."""

EVERYBODY_ELSE: Final = "*"


class _State(msgspec.Struct, frozen=True):
    """Everything that was configured, at one moment."""

    settings: AuthSettings
    book: TokenBook
    verifier: Any
    """A JwtVerifier or None; PyJWT is loaded only where it is needed."""
    secrets: dict[str, Grant]
    stamps: dict[Path, Stamp]

    def __repr__(self) -> str:
        return "_State()"  # the keys of `secrets` must not be shown

    def grants(self) -> set[Grant]:
        found = self.book.grants() | set(self.secrets.values())
        return found | self.verifier.grants() if self.verifier is not None else found


class Gate:
    def __init__(self, settings: AuthSettings | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._state = _load(settings or AuthSettings(), None)
        self._tried: dict[Path, Stamp] = self._state.stamps
        self.revision = 0
        """How often it was reloaded."""
        self.open_identity = OPEN
        """Every client on loopback, while no way to authenticate is configured."""

    @property
    def configured(self) -> bool:
        """Whether there is any way to authenticate. If not, only loopback is served, and every client there."""
        settings = self._state.settings
        return bool(settings.tokens) or settings.tokens_file is not None or settings.jwt is not None

    @property
    def problem(self) -> str | None:
        """A problem since the last load that stopped nothing, for a log or a health page."""
        verifier = self._state.verifier
        return None if verifier is None else verifier.problem

    def identify(self, credential: str | None, *, loopback: bool) -> Identity:
        """Called once per connection, or once per request where a transport has no connections."""
        if not self.configured:
            if loopback:
                return self.open_identity
            raise Unauthenticated(
                "authentication required: this server has no tokens and so serves only its own machine; configure"
                " tokens to serve others"
            )
        if not credential:
            raise Unauthenticated("authentication required: send a token")
        if len(credential) > CREDENTIAL_CHARS_MAX or not credential.isascii():
            raise refused(f"a token has at most {CREDENTIAL_CHARS_MAX} ASCII characters")
        now = self._clock()
        identity = self._state.book.find(credential)
        if identity is None:
            identity = self._verified(credential, now)
        _check_standing(identity, now)
        return identity

    def _verified(self, credential: str, now: float) -> Identity:
        if self._state.verifier is None or credential.count(".") != 2:
            raise refused("this server does not know the token")
        identity: Identity = self._state.verifier.verify(credential, now)
        return identity

    def allow(self, identity: Identity, permission: Permission, tenant_asked: str | None, now: float) -> str:
        """The tenant to act for. Called on every request, so the usual cases need only a few comparisons."""
        if identity.grant.ended or (identity.expires_at is not None and now >= identity.expires_at):
            _check_standing(identity, now)
        if permission not in identity.permissions:
            raise Forbidden(f"this token may not {permission}: it may {', '.join(sorted(identity.permissions))}")
        if tenant_asked is None or tenant_asked == identity.tenant:
            return identity.tenant
        if not identity.any_tenant:  # without saying whether that tenant exists
            raise Forbidden("this token is for another tenant: leave the tenant out, or use a token of that tenant")
        if not NAME_PATTERN.fullmatch(tenant_asked):
            raise InvalidRequest(f"tenant {tenant_asked!r:.80}: expected {NAME_PATTERN.pattern}")
        return tenant_asked

    def entitle(self, identity: Identity, entitlement: str) -> Identity:
        """The same identity with the quotas of an entitlement."""
        secrets = self._state.secrets
        if not secrets:
            raise Forbidden("this server takes no entitlements: auth.entitlement_secrets is not configured")
        found, signed_by = entitlements.verify(entitlement, tuple(secrets), identity.tenant, self._clock())
        return msgspec.structs.replace(
            identity,
            quotas=found.quotas,
            quotas_until=float(found.expires_at),
            quotas_grant=list(secrets.values())[signed_by],
        )

    def quotas(self, identity: Identity, tenant: str, now: float) -> Quotas | None:
        """The quotas of the entitlement while it is valid and for its own tenant, else those of the configuration."""
        if (
            identity.quotas is not None
            and now < identity.quotas_until
            and tenant == identity.tenant
            and not identity.quotas_grant.ended
        ):
            return identity.quotas
        tenants = self._state.settings.tenants
        return tenants.get(tenant) or tenants.get(EVERYBODY_ELSE)

    def reload(self, settings: AuthSettings | None = None) -> None:
        """Read everything again, with new settings if given.

        Raises InvalidRequest with everything that is bad, and then nothing has changed. Otherwise withdrawn or changed
        credentials lose their rights at once, on open connections, too.
        """
        old = self._state
        self._tried = {path: stamp(path) for path in old.stamps}
        new = _load(settings or old.settings, old)
        self._state, self._tried = new, new.stamps
        self.revision += 1
        for withdrawn in old.grants() - new.grants():
            withdrawn.ended = True

    def reload_if_changed(self) -> bool:
        """Reload if a file has changed since the last try. For a timer: it costs a few calls of stat."""
        if all(stamp(path) == known for path, known in self._tried.items()):
            return False
        self.reload()
        return True


def _check_standing(identity: Identity, now: float) -> None:
    if identity.grant.ended:
        raise refused(f"{identity.grant.source} was withdrawn or changed: authenticate again")
    if not identity.is_valid(now):
        raise refused("token expired")


def _load(settings: AuthSettings, before: _State | None) -> _State:
    """Try all parts, so that one message lists everything that is bad."""
    problems: list[str] = []

    def attempt(part: Callable[[], Any]) -> Any:
        try:
            return part()
        except StokerError as error:
            problems.append(error.message)
            return None

    stamps: dict[Path, Stamp] = {}
    book = attempt(lambda: _load_book(settings, before, stamps))
    verifier = attempt(lambda: _load_verifier(settings.jwt, before, stamps))
    secrets = attempt(lambda: _load_secrets(settings, before))
    attempt(lambda: _check_tenants(settings))
    if problems:
        raise InvalidRequest("authentication cannot be set up: " + "; ".join(problems))
    return _State(settings, book, verifier, secrets, stamps)


def _load_book(settings: AuthSettings, before: _State | None, stamps: dict[Path, Stamp]) -> TokenBook:
    records: Any = ()
    if settings.tokens_file is not None:
        path = Path(settings.tokens_file)
        records, stamps[path] = read_tokens(path)
    return TokenBook(settings.tokens, records, before.book if before else None)


def _load_verifier(settings: JwtSettings | None, before: _State | None, stamps: dict[Path, Stamp]) -> Any:
    if settings is None:
        return None
    from stoker.server.auth.jwt import JwtVerifier  # PyJWT and its dependencies take longer to load than all of Stoker

    verifier = JwtVerifier(settings, before.verifier if before else None)
    stamps.update(verifier.stamps)
    return verifier


def _load_secrets(settings: AuthSettings, before: _State | None) -> dict[str, Grant]:
    known = before.secrets if before else {}
    return {
        entitlements.check_secret(secret): known.get(secret) or Grant("the entitlement's secret")
        for secret in settings.entitlement_secrets
    }


def _check_tenants(settings: AuthSettings) -> None:
    for tenant in settings.tenants:
        if tenant != EVERYBODY_ELSE and not NAME_PATTERN.fullmatch(tenant):
            raise InvalidRequest(
                f"tenant {tenant!r:.80}: expected {NAME_PATTERN.pattern}, or {EVERYBODY_ELSE} for all other tenants"
            )
