"""S18: a secret that was given to the server is in nothing that comes out of it."""

import io
import json
import logging
import pprint
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.model.errors import StokerError
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.gate import Gate
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings, JwtKey, JwtSettings, shown
from stoker.server.auth.tokens import create_token, list_tokens, revoke_token
from tests.security.auth_support import NOW, Clock, jwk, private_pem, sealed_by_hand, signed, write_jwks

CANARY = "canary-7f3a9c-that-nobody-may-ever-see"
NUMBERED = [f"{CANARY}-{number}" for number in range(4)]


@pytest.fixture
def everything(tmp_path: Path) -> tuple[AuthSettings, str, Path]:
    path = tmp_path / "tokens.jsonl"
    made = create_token(path, name="web", now=NOW)
    settings = AuthSettings(
        tokens=(NUMBERED[0],),
        tokens_file=str(path),
        jwt=JwtSettings(keys=(JwtKey(algorithm="HS256", kid="k", key=NUMBERED[1]),)),
        entitlement_secrets=(NUMBERED[2],),
        tenants={"acme": Quotas(queues=3)},
    )
    return settings, made.text, path


def reachable(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Everything of ours that hangs on a thing; what is kept as the plain configuration is its own."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    inner: list[Any] = []
    if isinstance(thing, dict):
        inner = list(thing.values())
    elif isinstance(thing, list | tuple | set | frozenset):
        inner = list(thing)
    elif isinstance(thing, msgspec.Struct):
        inner = [getattr(thing, name) for name in thing.__struct_fields__]
    elif type(thing).__module__.startswith("stoker."):
        inner = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    for each in inner:
        if not isinstance(each, str | bytes):
            yield from reachable(each, seen)


def test_no_object_shows_a_secret(everything: tuple[AuthSettings, str, Path]):
    settings, token, path = everything
    gate = Gate(settings, Clock())
    live = gate.identify(token, loopback=False)
    own = [thing for thing in reachable(gate, set()) if type(thing).__module__.startswith("stoker.")]
    kinds = {type(thing).__name__ for thing in own}
    assert kinds >= {
        "Gate",
        "AuthSettings",
        "JwtSettings",
        "JwtKey",
        "TokenBook",
        "TokenRecord",
        "KeySet",
        "SigningKey",
    }
    secrets = [CANARY, token.split("_", 2)[2], list_tokens(path)[0].hash]
    for thing in [*own, live, create_token(path, name="x", now=NOW)]:
        for text in (repr(thing), str(thing), f"{thing}", pprint.pformat(thing)):
            assert [secret for secret in secrets if secret in text] == [], type(thing).__name__


def test_a_fresh_token_is_shown_only_when_asked_for(tmp_path: Path):
    made = create_token(tmp_path / "t", name="x", now=NOW)
    assert made.text.split("_", 2)[2] not in repr(made)
    assert made.record.id in repr(made)


def test_a_configuration_is_shown_with_stars(everything: tuple[AuthSettings, str, Path]):
    settings = everything[0]
    text = json.dumps(shown(settings))
    assert CANARY not in text
    assert text.count('"***"') == 3
    assert shown(settings)["tenants"] == {"acme": {"queues": 3}}
    assert shown(AuthSettings()) == {
        "tokens": [],
        "tokens_file": None,
        "jwt": None,
        "entitlement_secrets": [],
        "tenants": {},
    }


def test_the_stars_do_not_get_into_what_is_used(everything: tuple[AuthSettings, str, Path]):
    settings = everything[0]
    assert msgspec.convert(msgspec.to_builtins(settings), AuthSettings) == settings
    assert Gate(settings, Clock()).identify(NUMBERED[0], loopback=False).name == "static-1"


def failures(settings: AuthSettings, token: str, path: Path) -> list[Callable[[], Any]]:
    """Whatever goes wrong with a secret in hand."""
    gate = Gate(settings, Clock())
    identity = gate.identify(token, loopback=False)
    entitlement = sign(Entitlement(tenant="default", quotas=Quotas(), expires_at=1), NUMBERED[2])
    broken = path.with_name("broken")
    broken.write_text(f'{{"id": "{CANARY}"}}\n{CANARY}\n')
    undecodable = path.with_name("undecodable")
    undecodable.write_bytes(CANARY.encode() + b"\xff")
    bad_jwks = path.with_name("bad.json")
    bad_jwks.write_text(json.dumps({"keys": [{"kty": "oct", "k": CANARY[:20], "kid": 7}]}))
    private = write_jwks(path.with_name("private.json"), jwk("RS256", "k") | {"d": CANARY})

    def identify(credential: str) -> Callable[[], Any]:
        return lambda: gate.identify(credential, loopback=False)

    def load(**changed: Any) -> Callable[[], Any]:
        return lambda: Gate(AuthSettings(**changed))

    header = '{"alg":"HS256","kid":"k"}'
    return [
        identify(CANARY),
        identify(NUMBERED[0] + "x"),
        identify(f"stk_{CANARY}_{CANARY}"),
        identify(token + CANARY),
        identify(CANARY * 1000),
        identify(CANARY + "é"),
        identify(f"{CANARY}.{CANARY}.{CANARY}"),
        identify(signed()),
        identify(sealed_by_hand(header, f'{{"exp": "{CANARY}"}}', NUMBERED[1].encode())),
        identify(sealed_by_hand(header, CANARY, NUMBERED[1].encode())),
        identify(sealed_by_hand(json.dumps({"alg": CANARY, "kid": CANARY}), "{}", NUMBERED[1].encode())),
        identify(sealed_by_hand(json.dumps({"alg": "HS256", "kid": CANARY}), "{}", NUMBERED[1].encode())),
        lambda: gate.entitle(identity, entitlement),
        lambda: gate.entitle(identity, CANARY),
        lambda: gate.entitle(identity, f"{CANARY}.{CANARY}"),
        lambda: revoke_token(path, CANARY),
        lambda: revoke_token(path, f"stk_{CANARY}_{CANARY}"),
        lambda: list_tokens(broken),
        lambda: list_tokens(undecodable),
        load(tokens=(CANARY + " ",)),
        load(entitlement_secrets=(CANARY[:20],)),
        load(jwt=JwtSettings(keys=(JwtKey(algorithm="RS256", key=CANARY),))),
        load(jwt=JwtSettings(keys=(JwtKey(algorithm="HS256", key=CANARY[:20]),))),
        load(jwt=JwtSettings(keys=(JwtKey(algorithm="RS256", key=private_pem("RS256")),))),
        load(jwt=JwtSettings(jwks_file=str(bad_jwks))),
        load(jwt=JwtSettings(jwks_file=str(private))),
        load(jwt=JwtSettings(jwks_file=str(broken))),
        lambda: msgspec.convert({"tokens": CANARY}, AuthSettings),
        lambda: msgspec.convert({"jwt": {"keys": [{"key": CANARY}]}}, AuthSettings),
    ]


def test_no_error_and_no_log_repeats_a_secret(everything: tuple[AuthSettings, str, Path]):
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        for number, act in enumerate(failures(*everything)):
            with pytest.raises((StokerError, msgspec.ValidationError)) as caught:
                act()
            logging.getLogger("stoker.test").error("it failed", exc_info=caught.value)
            error = caught.value
            text = f"{error!s} {error!r} {''.join(traceback.format_exception(error))}"
            for secret in (CANARY[:20], everything[1].split("_", 2)[2], "BEGIN PRIVATE KEY"):
                assert secret not in text, f"failure {number}"
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert written.getvalue().count("it failed") == len(failures(*everything))
    assert CANARY[:20] not in written.getvalue()


def test_the_canary_would_be_found():
    """The control: an ordinary error with the secret in it is what the tests above look for."""
    assert CANARY in repr(ValueError(NUMBERED[0]))
    assert CANARY in repr(msgspec.to_builtins(AuthSettings(tokens=(NUMBERED[0],))))
