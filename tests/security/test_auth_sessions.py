"""S8: rights end while a connection lives: by the clock, by revoking, by rotating keys, by a reload."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.model.errors import InvalidRequest, Unauthenticated
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.gate import Gate
from stoker.server.auth.identity import Identity
from stoker.server.auth.jwt import RELOAD_SECONDS
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings, JwtKey
from stoker.server.auth.tokens import create_token, revoke_token
from tests.security.auth_support import NOW, SECRET, Clock, jwk, jwt_gate, jwt_settings, refusal, signed, write_jwks


def may_read(gate: Gate, identity: Identity, now: float = NOW) -> bool:
    """What a live connection asks on each request; both ways of asking agree."""
    try:
        gate.allow(identity, "read", None, now)
    except Unauthenticated:
        assert not identity.is_valid(now)
        return False
    assert identity.is_valid(now)
    return True


# --- the clock -----------------------------------------------------------------------------------------------


def test_a_connection_loses_its_rights_when_the_token_expires(tmp_path: Path):
    made = create_token(tmp_path / "t", name="a", expires_at=NOW + 10, now=NOW)
    gate = Gate(AuthSettings(tokens_file=str(tmp_path / "t")), Clock())
    live = gate.identify(made.text, loopback=False)
    assert may_read(gate, live, NOW + 9.99)
    with pytest.raises(Unauthenticated, match="token expired"):
        gate.allow(live, "read", None, NOW + 10)
    assert not may_read(gate, live, NOW + 10_000_000)


def test_a_connection_loses_its_rights_when_its_jwt_expires():
    clock = Clock()
    gate = jwt_gate("HS256", clock=clock)
    live = gate.identify(signed(exp=NOW + 10), loopback=False)
    assert may_read(gate, live, NOW + 69)
    assert not may_read(gate, live, NOW + 70)
    clock.now = NOW + 70
    assert "token expired" in refusal(gate, signed(exp=NOW + 10))  # and it is not remembered as good


def test_a_token_without_an_end_does_not_expire(tmp_path: Path):
    made = create_token(tmp_path / "t", name="a", now=NOW)
    gate = Gate(AuthSettings(tokens_file=str(tmp_path / "t")), Clock())
    assert may_read(gate, gate.identify(made.text, loopback=False), NOW + 1e9)


# --- revoking and reloading ----------------------------------------------------------------------------------


def test_revoking_ends_live_connections_of_that_token_alone(tmp_path: Path):
    path = tmp_path / "t"
    gone, stays = (create_token(path, name=name, now=NOW) for name in ("gone", "stays"))
    gate = Gate(AuthSettings(tokens=("plain",), tokens_file=str(path)), Clock())
    live = [gate.identify(token, loopback=False) for token in (gone.text, stays.text, "plain")]
    revoke_token(path, gone.record.id)
    assert [may_read(gate, each) for each in live] == [True, True, True]
    gate.reload()
    assert [may_read(gate, each) for each in live] == [False, True, True]
    assert gate.revision == 1
    with pytest.raises(Unauthenticated, match="the token was withdrawn"):
        gate.allow(live[0], "read", None, NOW)


def test_a_token_whose_line_is_gone_or_changed_ends_and_does_not_come_back(tmp_path: Path):
    path = tmp_path / "t"
    first, second = (create_token(path, name=name, now=NOW) for name in ("first", "second"))
    gate = Gate(AuthSettings(tokens_file=str(path)), Clock())
    live = [gate.identify(token.text, loopback=False) for token in (first, second)]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[1].replace("default", "elsewhere"))
    gate.reload()
    assert [may_read(gate, each) for each in live] == [False, False]
    assert "does not know" in refusal(gate, first.text)
    assert gate.identify(second.text, loopback=False).tenant == "elsewhere"
    path.write_text("".join(lines))
    gate.reload()
    assert [may_read(gate, each) for each in live] == [False, False]
    assert gate.identify(first.text, loopback=False).name == "first"


def test_a_plain_token_that_left_the_configuration_ends_and_the_others_stay():
    gate = Gate(AuthSettings(tokens=("one", "two")))
    live = [gate.identify(token, loopback=False) for token in ("one", "two")]
    gate.reload(AuthSettings(tokens=("two", "three")))
    assert [may_read(gate, each) for each in live] == [False, True]
    refusal(gate, "one")
    assert gate.identify("three", loopback=False).tenant == "default"


def test_a_changed_file_is_noticed_without_being_told(tmp_path: Path):
    path = tmp_path / "t"
    made = create_token(path, name="a", now=NOW)
    gate = Gate(AuthSettings(tokens_file=str(path)), Clock())
    live = gate.identify(made.text, loopback=False)
    assert not gate.reload_if_changed()
    revoke_token(path, made.record.id)
    assert gate.reload_if_changed()
    assert not may_read(gate, live)
    path.write_text("broken")
    with pytest.raises(InvalidRequest, match="line 1"):
        gate.reload_if_changed()
    assert not gate.reload_if_changed()  # said once is enough
    os.unlink(path)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        gate.reload_if_changed()


def test_files_that_a_reload_brought_are_watched_and_those_it_dropped_are_not(tmp_path: Path):
    first, second, key = tmp_path / "first", tmp_path / "second", tmp_path / "key"
    create_token(first, name="a", now=NOW)
    made = create_token(second, name="b", now=NOW)
    key.write_text("x" * 32)
    gate = Gate(AuthSettings(tokens_file=str(first)), Clock())
    jwt = jwt_settings(keys=(JwtKey(algorithm="HS256", key_file=str(key)),))
    gate.reload(AuthSettings(tokens_file=str(second), jwt=jwt))
    first.unlink()
    assert not gate.reload_if_changed()
    revoke_token(second, made.record.id)
    assert gate.reload_if_changed()
    key.write_text("y" * 33)
    assert gate.reload_if_changed()
    assert not gate.reload_if_changed()


@pytest.mark.parametrize("bad", ["tokens file", "tokens file gone", "jwks", "plain", "secret", "tenant"])
def test_a_reload_with_anything_bad_changes_nothing_and_says_what_is_bad(tmp_path: Path, bad: str):
    path, jwks = tmp_path / "t", tmp_path / "jwks.json"
    made = create_token(path, name="a", now=NOW)
    revoked_later = create_token(path, name="b", now=NOW)
    write_jwks(jwks, jwk("ES256", "k"))
    settings = AuthSettings(
        tokens=("plain",),
        tokens_file=str(path),
        jwt=jwt_settings(keys=(), jwks_file=str(jwks)),
        tenants={"acme": Quotas(queues=1)},
        entitlement_secrets=(SECRET,),
    )
    gate = Gate(settings, Clock())
    credentials = [made.text, revoked_later.text, "plain", signed("ES256")]
    live = [gate.identify(credential, loopback=False) for credential in credentials]
    revoke_token(path, revoked_later.record.id)  # good news that the bad part must hold up
    changed, named = _spoil(bad, settings, path, jwks)
    with pytest.raises(InvalidRequest, match=named):
        gate.reload(changed)
    assert gate.revision == 0
    assert all(may_read(gate, each) for each in live)
    assert [gate.identify(credential, loopback=False) for credential in credentials] == live
    assert gate.quotas(live[3], "acme", NOW) == Quotas(queues=1)


def _spoil(bad: str, good: AuthSettings, path: Path, jwks: Path) -> tuple[AuthSettings, str]:
    changes: dict[str, Any] = {"tenants": {}}
    match bad:
        case "tokens file":
            path.write_text(path.read_text() + "{")
            named = r"the tokens file .*line 3"
        case "tokens file gone":
            path.unlink()
            named = "the tokens file .*No such file"
        case "jwks":
            jwks.write_text("{}")
            named = "the JWKS file"
        case "plain":
            changes["tokens"], named = ("a b",), "token 1"
        case "secret":
            changes["entitlement_secrets"], named = ("short",), "32 bytes"
        case _:
            changes["tenants"], named = {"a b": Quotas()}, "'a b'"
    return msgspec.structs.replace(good, **changes), named


def test_one_message_tells_of_all_that_is_bad(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"tokens file.*; .*JWKS file.*; .*32 bytes.*; tenant 'x y'"):
        Gate(
            AuthSettings(
                tokens_file=str(tmp_path / "a"),
                jwt=jwt_settings(keys=(), jwks_file=str(tmp_path / "b")),
                entitlement_secrets=("short",),
                tenants={"x y": Quotas()},
            )
        )


# --- rotating keys ---------------------------------------------------------------------------------------------


def test_a_new_key_is_found_when_a_token_names_it(tmp_path: Path):
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "old"))
    gate = jwt_gate(keys=(), jwks_file=str(path))
    live = gate.identify(signed("ES256", kid="old"), loopback=False)
    write_jwks(path, jwk("ES256", "old"), jwk("ES256", "new", number=1))
    assert gate.identify(signed("ES256", kid="new", number=1), loopback=False).tenant == "acme"
    assert may_read(gate, live)


def test_a_key_that_was_withdrawn_takes_its_sessions_along(tmp_path: Path):
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "old"), jwk("EdDSA", "stays"))
    gate = jwt_gate(keys=(), jwks_file=str(path))
    old, stays = (gate.identify(signed(*each), loopback=False) for each in (("ES256", "old"), ("EdDSA", "stays")))
    write_jwks(path, jwk("EdDSA", "stays"), jwk("ES256", "new", number=1))
    gate.reload()
    assert (may_read(gate, old), may_read(gate, stays)) == (False, True)
    assert "kid" in refusal(gate, signed("ES256", kid="old"))
    with pytest.raises(Unauthenticated, match="the token's key was withdrawn"):
        gate.allow(old, "read", None, NOW)


def test_the_rotation_that_a_token_brings_to_light_ends_old_sessions_too(tmp_path: Path):
    clock = Clock()
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "old"))
    gate = jwt_gate(keys=(), jwks_file=str(path), clock=clock)
    token = signed("ES256", kid="old")
    old = gate.identify(token, loopback=False)
    write_jwks(path, jwk("ES256", "new", number=1))
    gate.identify(signed("ES256", kid="new", number=1), loopback=False)
    assert not may_read(gate, old)
    assert "kid" in refusal(gate, token)  # though it was verified before and remembered
    write_jwks(path, jwk("ES256", "old"))
    clock.now += RELOAD_SECONDS
    assert gate.identify(token, loopback=False) is not old  # judged anew, under a key that is there again
    assert not may_read(gate, old)


def test_a_key_replaced_under_its_name_ends_its_sessions(tmp_path: Path):
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "k"))
    gate = jwt_gate(keys=(), jwks_file=str(path))
    old = gate.identify(signed("ES256"), loopback=False)
    write_jwks(path, jwk("ES256", "k", number=1))
    gate.reload()
    assert not may_read(gate, old)
    assert "signature" in refusal(gate, signed("ES256"))
    assert gate.identify(signed("ES256", number=1), loopback=False).tenant == "acme"


def test_unknown_keys_do_not_make_the_file_be_read_again_and_again(tmp_path: Path):
    clock = Clock()
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "old"))
    gate = jwt_gate(keys=(), jwks_file=str(path), clock=clock)
    refusal(gate, signed("ES256", kid="guess"))  # reads it
    write_jwks(path, jwk("ES256", "new", number=1))
    clock.now += RELOAD_SECONDS - 0.1
    assert "kid" in refusal(gate, signed("ES256", kid="new", number=1))
    clock.now += 0.1
    assert gate.identify(signed("ES256", kid="new", number=1), loopback=False).tenant == "acme"


def test_a_jwks_file_that_has_become_bad_leaves_the_keys_that_were_there(tmp_path: Path):
    clock = Clock()
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "old"))
    gate = jwt_gate(keys=(), jwks_file=str(path), clock=clock)
    path.write_text("half a fi")
    assert "kid" in refusal(gate, signed("ES256", kid="new", number=1))
    assert "not JSON" in (gate.problem or "")
    assert gate.identify(signed("ES256", kid="old"), loopback=False).tenant == "acme"
    write_jwks(path, jwk("ES256", "old"), jwk("ES256", "new", number=1))
    clock.now += RELOAD_SECONDS
    assert gate.identify(signed("ES256", kid="new", number=1), loopback=False).tenant == "acme"
    assert gate.problem is None


def test_other_rules_for_the_same_keys_end_every_session():
    gate = jwt_gate("HS256")
    live = gate.identify(signed(), loopback=False)
    gate.reload()
    assert may_read(gate, live)
    gate.reload(AuthSettings(jwt=jwt_settings("HS256", issuer="https://other.example")))
    assert not may_read(gate, live)
    assert "issuer" in refusal(gate, signed())


def test_an_entitlement_ends_with_its_time_and_with_its_secret_and_the_session_goes_on():
    table, signed_quotas = Quotas(queues=1), Quotas(queues=100)
    settings = AuthSettings(tokens=("t",), entitlement_secrets=(SECRET,), tenants={"default": table})
    gate = Gate(settings, Clock())
    text = sign(Entitlement(tenant="default", quotas=signed_quotas, expires_at=int(NOW) + 10), SECRET)
    live = gate.entitle(gate.identify("t", loopback=False), text)
    assert gate.quotas(live, "default", NOW + 9) == signed_quotas
    assert gate.quotas(live, "default", NOW + 10) == table
    gate.reload(msgspec.structs.replace(settings, entitlement_secrets=(SECRET, "x" * 32)))
    assert gate.quotas(live, "default", NOW) == signed_quotas
    gate.reload(msgspec.structs.replace(settings, entitlement_secrets=("x" * 32,)))
    assert gate.quotas(live, "default", NOW) == table
    assert may_read(gate, live)
