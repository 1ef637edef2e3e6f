"""S7: tokens that others signed. Each way to cheat is refused, and beside it stands what is accepted."""

import json
from pathlib import Path
from typing import Any

import pytest

from stoker.model.errors import InvalidRequest
from stoker.server.auth import jwt as verifying
from stoker.server.auth.gate import Gate
from stoker.server.auth.settings import AuthSettings, JwtKey, JwtSettings
from tests.security.auth_support import (
    AUDIENCE,
    ISSUER,
    NOW,
    Clock,
    b64,
    claims,
    jwk,
    jwt_gate,
    private_key,
    private_pem,
    public_pem,
    refusal,
    sealed_by_hand,
    sign_text,
    signed,
    write_jwks,
)

ALGORITHMS = ["HS256", "RS256", "ES256", "EdDSA"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_good_token_is_accepted(algorithm: str):
    identity = jwt_gate(algorithm).identify(signed(algorithm), loopback=False)
    assert (identity.name, identity.tenant, identity.any_tenant) == ("ann", "acme", False)
    assert identity.permissions == {"produce", "read"}
    assert identity.expires_at == NOW + 3600 + 60


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_without_kid_is_accepted_when_there_is_one_key_of_its_algorithm(algorithm: str):
    assert jwt_gate(*ALGORITHMS).identify(signed(algorithm, kid=None), loopback=False).tenant == "acme"


def test_a_token_without_kid_is_refused_when_it_could_be_one_of_two_keys():
    keys = tuple(JwtKey(algorithm="HS256", kid=f"k{n}", key=str(private_key("HS256", n))) for n in range(2))
    gate = jwt_gate(keys=keys)
    assert "names no key" in refusal(gate, signed(kid=None))
    assert gate.identify(signed(kid="k1", number=1), loopback=False).tenant == "acme"


# --- algorithms and signatures --------------------------------------------------------------------------


@pytest.mark.parametrize("none", ["none", "None", "NONE", "nOnE", ""])
@pytest.mark.parametrize("signature", ["", "AAAA"])
@pytest.mark.parametrize("kid", [{}, {"kid": "k"}])
def test_an_unsigned_token_is_refused(none: str, signature: str, kid: dict[str, str]):
    token = f"{b64(json.dumps({'alg': none} | kid).encode())}.{b64(json.dumps(claims()).encode())}.{signature}"
    for algorithm in ALGORITHMS:
        assert "algorithm" in refusal(jwt_gate(algorithm), token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("header", [{"alg": "HS256"}, {"alg": "HS256", "kid": "k"}])
def test_a_public_key_is_never_taken_for_a_secret(algorithm: str, header: dict[str, str]):
    token = sealed_by_hand(json.dumps(header), json.dumps(claims()), public_pem(algorithm).encode())
    refusal(jwt_gate(algorithm), token)
    refusal(jwt_gate(algorithm, "HS256"), token)


def test_the_same_token_made_by_hand_with_the_secret_is_accepted():
    token = sealed_by_hand('{"alg":"HS256","kid":"k"}', json.dumps(claims()), str(private_key("HS256")).encode())
    assert jwt_gate("HS256").identify(token, loopback=False).tenant == "acme"


@pytest.mark.parametrize("other", ["HS384", "HS512", "RS384", "PS256", "ES384", "ES256K", "A128KW", 7, None, ["HS256"]])
def test_only_four_algorithms_exist(other: Any):
    token = sealed_by_hand(json.dumps({"alg": other, "kid": "k"}), json.dumps(claims()), b"x" * 32)
    assert "algorithm" in refusal(jwt_gate(*ALGORITHMS), token)


def test_an_algorithm_that_is_known_but_not_that_of_the_key_is_refused():
    gate = jwt_gate("RS256", "ES256")
    assert "not that of its key" in refusal(gate, signed("ES256", kid="k"))
    assert gate.identify(signed("ES256", kid="k-ES256"), loopback=False).tenant == "acme"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_altered_token_is_refused(algorithm: str):
    gate = jwt_gate(algorithm)
    header, _, signature = signed(algorithm).split(".")
    forged = b64(json.dumps(claims(tenant="victim")).encode())
    assert "signature" in refusal(gate, f"{header}.{forged}.{signature}")
    assert "signature" in refusal(gate, ".".join([*signed(algorithm).split(".")[:2], ""]))


def test_a_token_of_another_key_is_refused():
    assert "signature" in refusal(jwt_gate("HS256"), signed(number=1))


@pytest.mark.parametrize("change", ["{}=", "{}==", "{} ", " {}", "{}\n", "{}.", ".{}", "Bearer {}", "{}é"])
def test_a_token_has_one_spelling(change: str):
    gate, token = jwt_gate("HS256"), signed()
    refusal(gate, change.format(token))
    assert gate.identify(token, loopback=False).tenant == "acme"


def test_dropped_bits_of_the_last_character_make_no_second_spelling():
    gate, token = jwt_gate("HS256"), signed()  # 32 bytes leave two bits of the last character unused
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = alphabet[alphabet.index(token[-1]) ^ 1]
    assert "base64url" in refusal(gate, token[:-1] + other)


# --- which key -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kid",
    ["other", "", "K", "../../../../dev/null", "/dev/null", "k\0", "k' OR 1=1 --", "k" * 257, 0, True, ["k"], {"k": 1}],
)
def test_a_kid_is_looked_up_and_nothing_else(kid: Any):
    header = json.dumps({"alg": "HS256", "kid": kid})
    for secret in (str(private_key("HS256")).encode(), b""):
        assert "kid" in refusal(jwt_gate("HS256"), sealed_by_hand(header, json.dumps(claims()), secret))


@pytest.mark.parametrize("name", ["jku", "x5u", "x5c", "jwk", "crit", "b64", "zip"])
def test_a_token_that_brings_its_own_key_or_an_extension_is_refused(name: str):
    """Though its signature is good: what is not followed must not look as if it were."""
    token = sign_text(json.dumps(claims()), header={"kid": "k", name: "https://127.0.0.1/keys"})
    if name in ("crit", "b64"):
        token = sealed_by_hand(
            json.dumps({"alg": "HS256", "kid": "k", name: False}),
            json.dumps(claims()),
            str(private_key("HS256")).encode(),
        )
    assert f"'{name}'" in refusal(jwt_gate("HS256"), token)


# --- claims ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": ["a", "b"]}, "audience"),
        ({"aud": [AUDIENCE.upper()]}, "audience"),
        ({"aud": {"stoker": 1}}, "audience"),
        ({"aud": 5}, "audience"),
        ({"iss": "https://issuer.example.evil"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"exp": None}, "'exp'"),
        ({"exp": NOW - 60}, "token expired"),
        ({"exp": 0}, "token expired"),
        ({"exp": -1}, "'exp'"),
        ({"exp": str(NOW + 60)}, "'exp'"),
        ({"exp": True}, "'exp'"),
        ({"exp": [NOW + 60]}, "'exp'"),
        ({"exp": 10**400}, "'exp'"),
        ({"nbf": NOW + 61}, "not valid yet (nbf)"),
        ({"nbf": "soon"}, "'nbf'"),
        ({"iat": NOW + 61}, "not valid yet (iat)"),
        ({"tenant": None}, "'tenant'"),
        ({"tenant": ""}, "'tenant'"),
        ({"tenant": "*"}, "'tenant'"),
        ({"tenant": "a/b"}, "'tenant'"),
        ({"tenant": "acme\n"}, "'tenant'"),
        ({"tenant": "аcme"}, "'tenant'"),  # noqa: RUF001 - a Cyrillic letter that looks like another
        ({"tenant": "a" * 257}, "'tenant'"),
        ({"tenant": ["acme"]}, "'tenant'"),
        ({"tenant": 7}, "'tenant'"),
        ({"scope": None}, "'scope'"),
        ({"scope": ""}, "'scope'"),
        ({"scope": "openid"}, "'scope'"),
        ({"scope": "PRODUCE adminx"}, "'scope'"),
        ({"scope": {"admin": True}}, "'scope'"),
        ({"scope": ["read", 7]}, "'scope'"),
        ({"sub": 7}, "'sub'"),
        ({"sub": "a\nb"}, "'sub'"),
        ({"sub": "a" * 257}, "'sub'"),
    ],
)
def test_a_claim_that_is_not_as_it_must_be_is_refused(changed: dict[str, Any], why: str):
    assert why in refusal(jwt_gate("HS256"), signed(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": NOW - 59},
        {"nbf": NOW + 60},
        {"iat": NOW + 60},
        {"nbf": None, "iat": None, "sub": None},
        {"aud": ["other", AUDIENCE]},
        {"scope": ["produce", "else"]},
        {"tenant": "A-b_c.d:9"},
    ],
)
def test_a_claim_at_the_edge_of_what_is_good_is_accepted(changed: dict[str, Any]):
    assert jwt_gate("HS256").identify(signed(**changed), loopback=False).permissions >= {"produce"}


@pytest.mark.parametrize(("leeway", "late"), [(0.0, 0), (60.0, 60), (600.0, 600)])
def test_the_leeway_is_exact(leeway: float, late: int):
    clock = Clock()
    gate = jwt_gate("HS256", clock=clock, leeway=leeway)
    token = signed(exp=NOW + 10)
    clock.now = NOW + 10 + late - 0.001
    assert gate.identify(token, loopback=False).tenant == "acme"
    clock.now = NOW + 10 + late
    assert "token expired" in refusal(gate, token)


def test_a_token_for_somebody_is_refused_where_no_audience_is_configured():
    gate = jwt_gate("HS256", audience=None, issuer=None)
    assert "audience" in refusal(gate, signed())
    assert gate.identify(signed(aud=None, iss="anybody"), loopback=False).tenant == "acme"


def test_claims_are_found_under_the_names_that_were_configured():
    gate = jwt_gate("HS256", tenant_claim="https://a.example/org", permissions_claim="roles", audience=("x", AUDIENCE))
    here: dict[str, Any] = {"https://a.example/org": "org-7"}
    identity = gate.identify(signed(**here, roles=["admin"]), loopback=False)
    assert identity.tenant == "org-7"
    assert identity.permissions == {"admin"}
    assert "'roles'" in refusal(gate, signed(**here))


@pytest.mark.parametrize(
    "text",
    [
        '{"tenant": "acme", "tenant": "victim", %s}',
        '{"tenant": "victim", %s, "tenant": "acme"}',
        '{"tenant": "acme", "exp": 1, %s}',
        '{"tenant": "acme", "x": {"y": 1, "y": 2}, %s}',
        '{"tenant": "acme", "\\u0074enant": "victim", %s}',
    ],
)
def test_a_claim_that_is_there_twice_is_refused(text: str):
    others = json.dumps(claims(tenant=None))[1:-1]
    assert "twice" in refusal(jwt_gate("HS256"), sign_text(text % others))
    assert jwt_gate("HS256").identify(sign_text('{"tenant": "acme", ' + others + "}"), loopback=False).tenant == "acme"


def test_a_header_that_is_there_twice_is_refused():
    secret = str(private_key("HS256")).encode()
    for header in ('{"alg":"none","alg":"HS256","kid":"k"}', '{"alg":"HS256","kid":"k","kid":"k"}'):
        assert "twice" in refusal(jwt_gate("HS256"), sealed_by_hand(header, json.dumps(claims()), secret))


@pytest.mark.parametrize(
    "payload", ["", "[]", "7", '"x"', "null", "{", '{"exp": NaN}', '{"exp": Infinity}', '{"a": "\ud800"}']
)
def test_claims_that_are_no_object_are_refused(payload: str):
    secret = str(private_key("HS256")).encode()
    token = sealed_by_hand('{"alg":"HS256","kid":"k"}', payload, secret)
    assert "claims" in refusal(jwt_gate("HS256"), token)


@pytest.mark.parametrize("header", ["", "[]", "null", "{", '"HS256"', "[" * 3000])
def test_a_header_that_is_no_object_is_refused(header: str):
    assert "malformed" in refusal(jwt_gate("HS256"), sealed_by_hand(header, json.dumps(claims()), b"x" * 32))


def test_deeply_nested_claims_are_refused():
    assert "claims" in refusal(jwt_gate("HS256"), sign_text('{"a":' + "[" * 2000 + "]" * 2000 + "}"))


# --- size ------------------------------------------------------------------------------------------------


def test_a_giant_token_is_refused_unread():
    gate = jwt_gate("HS256")
    assert "8192" in refusal(gate, signed(padding="x" * 10_000))
    assert gate.identify(signed(padding="x" * 5_000), loopback=False).tenant == "acme"


def test_verified_tokens_are_kept_but_never_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verifying, "CACHE_MAX", 8)
    verifier = verifying.JwtVerifier(JwtSettings(keys=(JwtKey(algorithm="HS256", key=str(private_key("HS256"))),)))
    plain: dict[str, Any] = {"kid": None, "aud": None}
    first = verifier.verify(signed(**plain), NOW)
    assert verifier.verify(signed(**plain), NOW) is first
    for number in range(50):
        verifier.verify(signed(sub=f"s{number}", **plain), NOW)
    assert len(verifier._cache) == 8
    again = verifier.verify(signed(**plain), NOW)
    assert again is not first
    assert again.name == first.name


def test_a_token_that_was_refused_is_not_kept():
    gate = jwt_gate("HS256")
    refusal(gate, signed(exp=1))
    assert not gate._state.verifier._cache
    gate.identify(signed(), loopback=False)
    assert len(gate._state.verifier._cache) == 1


# --- keys that are taken -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("HS256", "short"),
        ("HS256", "x" * 31),
        ("HS256", public_pem("RS256")),
        ("HS256", private_pem("RS256")),
        ("RS256", public_pem("ES256")),
        ("RS256", private_pem("RS256")),
        ("RS256", "x" * 64),
        ("ES256", public_pem("EdDSA")),
        ("ES256", private_pem("ES256")),
        ("EdDSA", public_pem("RS256")),
        ("EdDSA", ""),
    ],
)
def test_a_key_that_is_not_for_its_algorithm_is_refused(algorithm: str, key: str):
    with pytest.raises(InvalidRequest, match=f"key 1 for JWT is not one for {algorithm}") as caught:
        jwt_gate(keys=(JwtKey(algorithm=algorithm, key=key),))  # type: ignore[arg-type]
    assert len(key) < 5 or key not in caught.value.message


def test_a_weak_rsa_key_is_refused():
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    weak = rsa.generate_private_key(65537, 1024).public_key()
    pem = weak.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(InvalidRequest, match="2048 bits"):
        jwt_gate(keys=(JwtKey(algorithm="RS256", key=pem),))


def test_a_key_is_given_once_and_in_one_way(tmp_path: Path):
    good = tmp_path / "secret"
    good.write_text(str(private_key("HS256")) + "\n")
    with pytest.raises(InvalidRequest, match="either key or key_file"):
        jwt_gate(keys=(JwtKey(algorithm="HS256"),))
    with pytest.raises(InvalidRequest, match="either key or key_file"):
        jwt_gate(keys=(JwtKey(algorithm="HS256", key="x" * 32, key_file=str(good)),))
    twice = JwtKey(algorithm="HS256", kid="k", key_file=str(good))
    with pytest.raises(InvalidRequest, match="more than one has the kid 'k'"):
        jwt_gate(keys=(twice, twice))
    with pytest.raises(InvalidRequest, match="without a key"):
        jwt_gate(keys=())
    assert jwt_gate(keys=(twice,)).identify(signed(), loopback=False).tenant == "acme"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_come_from_a_jwks_file(tmp_path: Path, algorithm: str):
    path = write_jwks(tmp_path / "jwks.json", jwk(algorithm, "k"))
    gate = jwt_gate(keys=(), jwks_file=str(path))
    assert gate.identify(signed(algorithm), loopback=False).tenant == "acme"


def test_keys_of_a_jwks_file_that_are_for_something_else_are_passed_over(tmp_path: Path):
    others = [jwk("RS256", "enc", use="enc"), jwk("RS256", "ps", alg="PS256"), {"kty": "EC", "crv": "P-521"}]
    path = write_jwks(tmp_path / "jwks.json", *others, jwk("ES256", "k"))
    gate = jwt_gate(keys=(), jwks_file=str(path))
    assert gate.identify(signed("ES256"), loopback=False).tenant == "acme"
    for kid in ("enc", "ps"):
        assert "kid" in refusal(gate, signed("RS256", kid=kid))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "list of keys"),
        ('{"keys": []}', "no key for"),
        ('{"keys": [7]}', "key 1: expected an object"),
        ('{"keys": [{"kty": "RSA"}]}', "key 1 is not one for RS256"),
        ('{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}', "32 bytes"),
        ('{"keys": [{"kty": "oct", "alg": "RS256", "k": "c2hvcnQ"}]}', "not one for RS256"),
        ('{"keys": [{"kty": "RSA", "d": "AA", "n": "AA", "e": "AQAB"}]}', "private key"),
        ('{"keys": [], "keys": []}', "twice"),
    ],
)
def test_a_bad_jwks_file_is_refused_with_its_reason(tmp_path: Path, text: str, why: str):
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=why):
        jwt_gate(keys=(), jwks_file=str(path))


def test_a_jwks_file_that_anybody_can_write_is_refused(tmp_path: Path):
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", "k"))
    path.chmod(0o666)
    with pytest.raises(InvalidRequest, match="chmod o-w"):
        Gate(AuthSettings(jwt=JwtSettings(jwks_file=str(path))))
