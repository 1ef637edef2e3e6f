"""Signed quotas: only what the operator signed counts, for its tenant, until its time."""

import hashlib
import hmac
import json
from typing import Any

import pytest

from stoker.model.errors import Forbidden, InvalidRequest
from stoker.server.auth.entitlements import Entitlement, sign, verify
from stoker.server.auth.gate import Gate
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from tests.security.auth_support import NOW, SECRET, Clock, b64, claims, sealed_by_hand

OTHER = "another-secret-of-more-than-32-bytes"
GOOD = Entitlement(tenant="default", quotas=Quotas(queues=5, waiting_jobs=0), expires_at=int(NOW) + 60)


def judge(text: str, now: float = NOW) -> Entitlement:
    return verify(text, [SECRET], "default", now)[0]


def sealed(body: str, secret: str = SECRET) -> str:
    """A good signature over any body."""
    part = b64(body.encode())
    return f"{part}.{b64(hmac.digest(secret.encode(), part.encode(), hashlib.sha256))}"


def body(**changed: Any) -> str:
    good: dict[str, Any] = {"tenant": "default", "quotas": {"queues": 5}, "expires_at": int(NOW) + 60}
    return json.dumps({name: value for name, value in (good | changed).items() if value is not None})


def test_what_was_signed_is_what_is_read():
    assert judge(sign(GOOD, SECRET)) == GOOD
    assert judge(sealed(body())).quotas == Quotas(queues=5)


def test_any_of_the_secrets_may_have_signed():
    assert verify(sign(GOOD, OTHER), [SECRET, OTHER], "default", NOW) == (GOOD, 1)
    assert verify(sign(GOOD, SECRET), [SECRET, OTHER], "default", NOW) == (GOOD, 0)
    for secrets in ([SECRET], []):
        with pytest.raises(Forbidden, match="not signed by"):
            verify(sign(GOOD, OTHER), secrets, "default", NOW)


@pytest.mark.parametrize("place", range(0, 180, 7))
def test_an_altered_entitlement_is_refused(place: int):
    text = sign(GOOD, SECRET)
    place %= len(text)
    altered = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
    with pytest.raises(Forbidden):
        judge(altered)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "x",
        "a.b",
        "é.é",
        "\ud800.a",
        sign(GOOD, SECRET) + "=",
        sign(GOOD, SECRET) + ".x",
        sign(GOOD, SECRET).replace(".", ""),
        sign(GOOD, SECRET).split(".")[0] + ".",
        sign(GOOD, SECRET) + "\n",
        "A" * 5000,
    ],
)
def test_what_is_no_entitlement_is_refused(text: str):
    with pytest.raises(Forbidden, match="the entitlement"):
        judge(text)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        body(tenant=None),
        body(tenant=7),
        body(quotas=None),
        body(quotas=[]),
        body(quotas={"queues": -1}),
        body(quotas={"queues": True}),
        body(quotas={"queues": 1.5}),
        body(quotas={"queues": "9"}),
        body(quotas={"jobs": 9}),
        body(expires_at=None),
        body(expires_at="never"),
        body(expires_at=-1),
        body(expires_at=2**60),
        body(features=["all"]),
        body()[:-1] + ', "quotas": {}}',
        '{"tenant": "default", "expires_at": 9000000000, "quotas": {"queues": 1, "queues": 9}}',
    ],
)
def test_what_is_signed_but_makes_no_sense_is_refused(text: str):
    with pytest.raises(Forbidden, match="malformed"):
        judge(sealed(text))


def test_an_entitlement_ends_at_its_second():
    text = sign(GOOD, SECRET)
    assert judge(text, NOW + 59.999) == GOOD
    with pytest.raises(Forbidden, match="expired"):
        judge(text, NOW + 60)


def test_an_entitlement_of_another_tenant_is_refused():
    text = sign(GOOD, SECRET)
    with pytest.raises(Forbidden, match="another tenant"):
        verify(text, [SECRET], "acme", NOW)
    assert verify(text, [SECRET], "default", NOW)[0] == GOOD


def test_a_token_signed_with_the_same_secret_is_no_entitlement():
    token = sealed_by_hand('{"alg":"HS256"}', json.dumps(claims()), SECRET.encode())
    for text in (token, ".".join(token.split(".")[1:])):
        with pytest.raises(Forbidden):
            judge(text)


def test_a_secret_that_can_be_guessed_and_a_tenant_that_cannot_be_are_refused():
    with pytest.raises(InvalidRequest, match="32 bytes"):
        sign(GOOD, "x" * 31)
    with pytest.raises(InvalidRequest, match="32 bytes"):
        Gate(AuthSettings(entitlement_secrets=("",)))
    with pytest.raises(InvalidRequest, match="tenant"):
        sign(Entitlement(tenant="a b", quotas=Quotas(), expires_at=1), SECRET)


def test_an_entitlement_comes_before_the_configuration_for_its_tenant_alone():
    gate = Gate(AuthSettings(entitlement_secrets=(SECRET,), tenants={"*": Quotas(queues=1)}), Clock())
    plain = gate.identify(None, loopback=True)
    entitled = gate.entitle(plain, sign(GOOD, SECRET))
    assert gate.quotas(plain, "default", NOW) == Quotas(queues=1)
    assert gate.quotas(entitled, "default", NOW) == GOOD.quotas
    assert gate.quotas(entitled, "acme", NOW) == Quotas(queues=1)
    assert (entitled.name, entitled.permissions) == (plain.name, plain.permissions)


def test_a_server_without_a_secret_takes_no_entitlements():
    gate = Gate(clock=Clock())
    with pytest.raises(Forbidden, match="takes no entitlements"):
        gate.entitle(gate.identify(None, loopback=True), sign(GOOD, SECRET))
