"""API tokens: made and shown once, stored as hashes, recognised in constant time.

A token is `stk_<id>_<secret>`. The id finds the record, the secret proves it. The file has the SHA-256 of the secret,
which is enough for 256 random bits. Plain tokens of a configuration are hashed as soon as they arrive here.
"""

import hmac
import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoker.model.errors import InvalidRequest, NotFound
from stoker.model.limits import NAME_PATTERN
from stoker.server.auth.files import Stamp, alone_in, read_guarded, write_private
from stoker.server.auth.identity import DEFAULT_TENANT, PERMISSIONS, Grant, Identity, Permission, refused

PREFIX: Final = "stk_"

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""About two hundred thousand tokens."""

ANY_TENANT: Final = "*"
"""The tenant of a token that acts for `default`, and for any other tenant that a request names."""

STATIC_CHARS_MAX: Final = 4_096
"""Tokens travel in headers."""


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the file."""

    id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    hash: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """SHA-256 of the secret."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    tenant: str
    permissions: tuple[Permission, ...]
    created_at: float
    expires_at: float | None = None
    revoked: bool = False

    def __repr__(self) -> str:
        return f"TokenRecord(id={self.id!r}, name={self.name!r}, tenant={self.tenant!r}, revoked={self.revoked})"


class NewToken(msgspec.Struct, frozen=True):
    text: str
    """The token itself, which is shown only this once."""
    record: TokenRecord

    def __repr__(self) -> str:
        return f"NewToken({self.record!r})"


def create_token(
    path: Path,
    *,
    name: str,
    tenant: str = DEFAULT_TENANT,
    permissions: Iterable[Permission] = PERMISSIONS,
    expires_at: float | None = None,
    now: float,
) -> NewToken:
    """Add a token to the file, which is created if it is missing. On return the token is on disk."""
    granted = tuple(sorted(set(permissions), key=str))
    _check_new(name, tenant, granted, expires_at, now)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone_in(path.parent):
        records = list(read_tokens(path)[0]) if path.exists() else []
        secret = secrets.token_urlsafe(32)
        record = TokenRecord(
            id=secrets.token_hex(8),
            hash=_hash(secret),
            name=name,
            tenant=tenant,
            permissions=granted,
            created_at=now,
            expires_at=expires_at,
        )
        write_private(path, _lines([*records, record]))
    return NewToken(f"{PREFIX}{record.id}_{secret}", record)


def _check_new(
    name: str, tenant: str, permissions: tuple[Permission, ...], expires_at: float | None, now: float
) -> None:
    if not 1 <= len(name) <= 256 or not name.isprintable():
        raise InvalidRequest("the name of a token has 1 to 256 printable characters")
    if tenant != ANY_TENANT and not NAME_PATTERN.fullmatch(tenant):
        raise InvalidRequest(f"tenant {tenant!r:.80}: expected {NAME_PATTERN.pattern}, or {ANY_TENANT} for any")
    unknown = [each for each in permissions if each not in PERMISSIONS]
    if unknown or not permissions:
        raise InvalidRequest(f"permissions {unknown!r:.80}: expected one or more of {', '.join(PERMISSIONS)}")
    if expires_at is not None and not now < expires_at < float("inf"):
        raise InvalidRequest("the token would be expired already: give a time in the future")


def list_tokens(path: Path) -> Sequence[TokenRecord]:
    """All tokens in the order of their creation, including revoked and expired ones."""
    return read_tokens(path)[0]


def revoke_token(path: Path, token_id: str) -> TokenRecord:
    """Revoke forever; a second time changes nothing. A whole token is accepted instead of its id."""
    token_id = (_split(token_id) or (token_id,))[0]
    with alone_in(path.parent):
        records = {record.id: record for record in read_tokens(path)[0]}
        if token_id not in records:
            raise NotFound(f"{path} has no token with this id: see `stoker token list`")
        if not records[token_id].revoked:
            records[token_id] = msgspec.structs.replace(records[token_id], revoked=True)
            write_private(path, _lines(records.values()))
    return records[token_id]


def read_tokens(path: Path) -> tuple[Sequence[TokenRecord], Stamp]:
    """All records of a file: a file with one bad line is refused."""
    data, stamp = read_guarded(path, "the tokens file", FILE_BYTES_MAX)
    decoder = msgspec.json.Decoder(TokenRecord)
    records: dict[str, TokenRecord] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = str(error) if isinstance(error, msgspec.ValidationError) else "not a JSON object"
            raise InvalidRequest(f"the tokens file {path}, line {number}: {why}") from None
        if record.id in records:
            raise InvalidRequest(f"the tokens file {path}, line {number}: the id {record.id} is there twice")
        if record.tenant != ANY_TENANT and not NAME_PATTERN.fullmatch(record.tenant):
            raise InvalidRequest(f"the tokens file {path}, line {number}: tenant: expected {NAME_PATTERN.pattern}")
        records[record.id] = record
    return tuple(records.values()), stamp


def _lines(records: Iterable[TokenRecord]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _split(credential: str) -> tuple[str, str] | None:
    if not credential.startswith(PREFIX):
        return None
    token_id, _, secret = credential[len(PREFIX) :].partition("_")
    return token_id, secret


class _Entry(msgspec.Struct, frozen=True):
    record: TokenRecord
    identity: Identity


_NOBODY: Final = _Entry(
    TokenRecord(id="0" * 16, hash="0" * 64, name="nobody", tenant=DEFAULT_TENANT, permissions=(), created_at=0.0),
    Identity(name="nobody", tenant=DEFAULT_TENANT, permissions=frozenset(), grant=Grant("nobody", ended=True)),
)
"""An unknown id is compared with this record, so that it takes as long as a known one."""


class TokenBook:
    """All recognised tokens, with one identity each. Unchanged tokens keep their identity from the book before."""

    def __init__(
        self, static: Sequence[str] = (), records: Sequence[TokenRecord] = (), before: "TokenBook | None" = None
    ) -> None:
        old_static = dict(before._static) if before else {}
        self._static: list[tuple[bytes, Identity]] = []
        for number, token in enumerate(static, 1):
            digest = sha256(_check_static(token, number).encode()).digest()
            self._static.append((digest, old_static.get(digest) or _static_identity(number)))
        old = before._entries if before else {}
        self._entries: dict[str, _Entry] = {}
        for record in records:
            same = old.get(record.id)
            self._entries[record.id] = same if same and same.record == record else _Entry(record, _identity(record))

    def grants(self) -> set[Grant]:
        identities = [identity for _, identity in self._static]
        return {identity.grant for identity in (*identities, *(entry.identity for entry in self._entries.values()))}

    def find(self, credential: str) -> Identity | None:
        """The identity of a token, if it is known. A wrong secret and an unknown id take the same time."""
        digest = sha256(credential.encode()).digest()
        found: Identity | None = None
        for known, identity in self._static:  # compare all of them: stopping early would show how far one came
            if hmac.compare_digest(known, digest):
                found = identity
        token_id, secret = _split(credential) or ("", credential)
        entry = self._entries.get(token_id, _NOBODY)
        fits = hmac.compare_digest(entry.record.hash, _hash(secret))
        if found is not None:
            return found
        if not fits or entry is _NOBODY:
            return None
        if entry.record.revoked:
            raise refused("token revoked")
        return entry.identity


def _check_static(token: str, number: int) -> str:
    if not token.isascii() or not token.isprintable() or " " in token or not 1 <= len(token) <= STATIC_CHARS_MAX:
        raise InvalidRequest(
            f"token {number} of the configuration: expected 1 to {STATIC_CHARS_MAX} printable ASCII characters"
            " without spaces"
        )
    return token


def _static_identity(number: int) -> Identity:
    return Identity(
        name=f"static-{number}",
        tenant=DEFAULT_TENANT,
        permissions=frozenset(PERMISSIONS),
        grant=Grant("the token"),
    )


def _identity(record: TokenRecord) -> Identity:
    return Identity(
        name=record.name,
        tenant=DEFAULT_TENANT if record.tenant == ANY_TENANT else record.tenant,
        permissions=frozenset(record.permissions),
        expires_at=record.expires_at,
        any_tenant=record.tenant == ANY_TENANT,
        grant=Grant("the token", ended=record.revoked),
    )
