"""The settings for tokens, keys and tenants, as plain values.

Only their form is checked here; the gate reads the files. A field marked as a secret is in no repr. Code that shows a
configuration finds the mark in the field's type (`msgspec.inspect`), or uses `shown`.
"""

from typing import Annotated, Any, Literal

import msgspec

from stoker.server.auth.quotas import Quotas

Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]

Algorithm = Literal["HS256", "RS256", "ES256", "EdDSA"]
"""All supported algorithms. A token chooses a key, and a key has one algorithm: a token never chooses the algorithm."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown(self).items())})"


class JwtKey(_Section, frozen=True):
    """Exactly one of `key` and `key_file`: a secret of 32 bytes or more for HS256, else a public key in PEM."""

    algorithm: Algorithm
    """The only algorithm that this key is used with. HS256 needs a secret, the others a public key."""
    kid: str | None = None
    """The key's name in the header of tokens. Required if there are two keys of an algorithm."""
    key: Secret | None = None
    """The key itself: for HS256 a secret of 32 bytes or more, else a public key in PEM."""
    key_file: str | None = None
    """A file with the key, instead of `key`. It is refused if all users may write to it."""


class JwtSettings(_Section, frozen=True):
    keys: tuple[JwtKey, ...] = ()
    """Keys that sign tokens, each a table `[[auth.jwt.keys]]`; instead of a JWKS file, or beside it."""
    jwks_file: str | None = None
    """Read again on a reload, and when a token names an unknown key."""
    issuer: str | None = None
    """Only tokens with this `iss` are accepted. Without it the issuer is not checked."""
    audience: str | tuple[str, ...] | None = None
    """A token that names an audience is refused unless it is one of these."""
    leeway: Annotated[float, msgspec.Meta(ge=0, le=600)] = 60.0
    """Seconds by which the clocks of issuer and server may differ."""
    tenant_claim: Annotated[str, msgspec.Meta(min_length=1)] = "tenant"
    """The claim that names the tenant. A token without it is refused."""
    permissions_claim: Annotated[str, msgspec.Meta(min_length=1)] = "scope"
    """A list, or words separated by spaces. Words that are not permissions of Stoker are ignored."""


class AuthSettings(_Section, frozen=True):
    tokens: tuple[Secret, ...] = ()
    """Plain tokens, with all permissions for the tenant `default`."""
    tokens_file: str | None = None
    """The file that `stoker token` writes."""
    jwt: JwtSettings | None = None
    entitlement_secrets: tuple[Secret, ...] = ()
    """An entitlement may be signed with any of them: put the new one beside the old one, then drop the old one."""
    tenants: dict[str, Quotas] = {}
    """Quotas by tenant; "*" is for all tenants that are not named."""


def shown(section: msgspec.Struct) -> dict[str, Any]:
    """For people: secrets are replaced by stars, everything else is unchanged."""
    fields = msgspec.inspect.type_info(type(section)).fields  # type: ignore[attr-defined]
    return {field.name: _shown(getattr(section, field.name), _is_secret(field.type)) for field in fields}


def _is_secret(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.Metadata):
        return bool((kind.extra or {}).get("secret")) or _is_secret(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_is_secret(each) for each in kind.types)
    return isinstance(kind, msgspec.inspect.VarTupleType) and _is_secret(kind.item_type)


def _shown(value: Any, secret: bool) -> Any:
    if isinstance(value, tuple):
        return [_shown(each, secret) for each in value]
    if isinstance(value, dict):
        return {name: _shown(each, secret) for name, each in value.items()}
    if isinstance(value, _Section):
        return shown(value)
    if isinstance(value, Quotas):
        return msgspec.to_builtins(value)
    return "***" if secret and value is not None else value
