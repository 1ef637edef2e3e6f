"""`stoker token`: made once, shown once, revoked for ever."""

import json
import time
from pathlib import Path

import pytest

from stoker.cli import exit_codes
from stoker.model.errors import Unauthenticated
from stoker.server.auth.gate import Gate
from stoker.server.auth.settings import AuthSettings
from tests.cli.conftest import Stoker

FILE = ("--file", "tokens")


def gate(tmp_path: Path) -> Gate:
    return Gate(AuthSettings(tokens_file=str(tmp_path / "tokens")))


def test_a_new_token_opens_the_gate_until_it_is_revoked(stoker: Stoker, tmp_path: Path):
    token = stoker("token", "create", "ci", "--tenant", "acme", "--permission", "read", *FILE).out.strip()
    identity = gate(tmp_path).identify(token, loopback=False)
    assert (identity.name, identity.tenant, identity.permissions) == ("ci", "acme", frozenset(["read"]))
    (listed,) = json.loads(stoker("token", "list", "--json", *FILE).out)
    assert stoker("token", "revoke", listed["id"], *FILE).code == 0
    with pytest.raises(Unauthenticated):
        gate(tmp_path).identify(token, loopback=False)


def test_a_token_may_do_everything_unless_one_says_less(stoker: Stoker):
    made = json.loads(stoker("token", "create", "x", "--json", *FILE).out)
    assert sorted(made["permissions"]) == ["admin", "consume", "produce", "read"]
    assert made["expires_at"] is None


def test_a_token_may_expire(stoker: Stoker):
    made = json.loads(stoker("token", "create", "x", "--expires", "90d", "--json", *FILE).out)
    assert made["expires_at"] - made["created_at"] == pytest.approx(90 * 86_400)
    assert made["created_at"] <= time.time()


def test_a_list_has_no_secrets(stoker: Stoker):
    token = stoker("token", "create", "x", *FILE).out.strip()
    for arguments in ([], ["--json"]):
        listed = stoker("token", "list", *arguments, *FILE).out
        assert token.split("_")[1] in listed
        assert token.split("_", 2)[2] not in listed
        assert "hash" not in listed


def test_a_list_says_what_has_become_of_each(stoker: Stoker):
    for name in ("first", "second"):
        stoker("token", "create", name, *FILE)
    first, _ = json.loads(stoker("token", "list", "--json", *FILE).out)
    stoker("token", "revoke", first["id"], *FILE)
    lines = stoker("token", "list", *FILE).out.splitlines()
    assert [line.split()[1] for line in lines] == ["revoked", "valid"]
    assert [line.split()[-1] for line in lines] == ["first", "second"]


def test_a_list_of_no_tokens_is_empty(stoker: Stoker):
    assert stoker("token", "list", *FILE) == (0, "", "")


def test_the_file_of_the_configuration_is_used(stoker: Stoker, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("auth.tokens_file = 'tokens'")
    assert stoker("token", "create", "x").code == 0
    assert (tmp_path / "tokens").stat().st_mode & 0o077 == 0


def test_without_any_file_one_is_told_what_to_do(stoker: Stoker):
    outcome = stoker("token", "list")
    assert outcome.code == exit_codes.USAGE
    assert "auth.tokens_file" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["create", "x", "--permission", "fly"], exit_codes.USAGE),
        (["create", "x", "--tenant", "a b"], exit_codes.REFUSED),
        (["create", ""], exit_codes.REFUSED),
        (["revoke", "0" * 16], exit_codes.REFUSED),
    ],
)
def test_what_cannot_be_is_refused(stoker: Stoker, arguments: list[str], code: int):
    stoker("token", "create", "there", *FILE)
    outcome = stoker("token", *arguments, *FILE)
    assert (outcome.code, outcome.out) == (code, "")
    assert len(json.loads(stoker("token", "list", "--json", *FILE).out)) == 1
