"""`stoker token`: make, list and revoke the tokens that clients present to a server."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.parameters import DURATION, Family, as_json, echo_json, examples

if TYPE_CHECKING:
    from stoker.server.auth.tokens import TokenRecord

PERMISSIONS = ("produce", "consume", "read", "admin")

FILE = click.option(
    "--file",
    "file",
    metavar="FILE",
    help="The tokens file. [default: auth.tokens_file of the configuration]",
)


@click.group(cls=Family)
def token() -> None:
    """Make, list and revoke API tokens.

    They are stored as hashes in a file (auth.tokens_file); a running server reads it again on SIGHUP.
    """


@token.command(
    epilog=examples("stoker token create web --tenant acme --permission produce --expires 90d --file tokens")
)
@click.argument("name")
@click.option("--tenant", default="default", show_default=True, help="The tenant of the token; * is all tenants.")
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    type=click.Choice(PERMISSIONS),
    help="A permission of the token. May be repeated. [default: all of them]",
)
@click.option(
    "--expires", "expires_ms", type=DURATION, help="How long the token is valid, for example 90d. [default: for ever]"
)
@FILE
@as_json
def create(
    name: str, tenant: str, permissions: tuple[Any, ...], expires_ms: int | None, file: str | None, is_json: bool
) -> None:
    """Make a token and print it. It is shown only once; the file has only its hash."""
    from stoker.server.auth.tokens import create_token

    now = time.time()
    made = create_token(
        tokens_file(file),
        name=name,
        tenant=tenant,
        permissions=permissions or PERMISSIONS,
        expires_at=None if expires_ms is None else now + expires_ms / 1_000,
        now=now,
    )
    if is_json:
        echo_json({"token": made.text, **as_shown(made.record)})
    else:
        click.echo(made.text)


@token.command(name="list", epilog=examples("stoker token list --file tokens"))
@FILE
@as_json
def list_(file: str | None, is_json: bool) -> None:
    """List all tokens, also revoked and expired ones, without their secrets."""
    from stoker.server.auth.tokens import list_tokens

    path = tokens_file(file)
    records = list_tokens(path) if path.exists() else ()
    if is_json:
        echo_json([as_shown(record) for record in records])
        return
    for record in records:
        rights = ",".join(record.permissions)
        click.echo(f"{record.id}  {state_of(record):<8}  {record.tenant}  {rights}  {ends(record)}  {record.name}")


@token.command(epilog=examples("stoker token revoke 0123456789abcdef --file tokens"))
@click.argument("token_id")
@FILE
@as_json
def revoke(token_id: str, file: str | None, is_json: bool) -> None:
    """Revoke a token, by its id or by the token itself. A running server notices on SIGHUP."""
    from stoker.server.auth.tokens import revoke_token

    record = revoke_token(tokens_file(file), token_id)
    if is_json:
        echo_json(as_shown(record))
    else:
        click.echo(f"revoked {record.id}  {record.name}")


def tokens_file(given: str | None) -> Path:
    if given is None:
        from stoker.server.config import load

        given = load().config.auth.tokens_file
    if given is None:
        raise click.UsageError(
            "no tokens file: say --file FILE, or set auth.tokens_file in stoker.toml (STOKER_AUTH__TOKENS_FILE)"
        )
    return Path(given)


def as_shown(record: "TokenRecord") -> dict[str, Any]:
    """All fields except the hash."""
    import msgspec

    return {name: value for name, value in msgspec.to_builtins(record).items() if name != "hash"}


def state_of(record: "TokenRecord") -> str:
    if record.revoked:
        return "revoked"
    return "expired" if record.expires_at is not None and record.expires_at <= time.time() else "valid"


def ends(record: "TokenRecord") -> str:
    if record.expires_at is None:
        return "never"
    return datetime.fromtimestamp(record.expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
