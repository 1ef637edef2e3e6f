"""S10 and the door itself: when it stands open, what each permission allows, and for which tenant."""

from itertools import chain, combinations
from typing import cast

import pytest

from stoker.model.errors import Forbidden, InvalidRequest, Unauthenticated
from stoker.server.auth.gate import Gate
from stoker.server.auth.identity import OPEN, PERMISSIONS, Identity, Permission
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings
from tests.security.auth_support import NOW, SECRET, Clock, jwt_gate, jwt_settings, refusal

SETS = list(chain.from_iterable(combinations(PERMISSIONS, size) for size in range(len(PERMISSIONS) + 1)))


# --- open or closed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credential", [None, "", "anything", "stk_x_y"])
def test_a_server_for_which_nothing_is_configured_is_open_on_loopback_and_only_there(credential: str | None):
    gate = Gate()
    assert not gate.configured
    assert gate.identify(credential, loopback=True) is OPEN
    assert "authentication required" in refusal(gate, credential, loopback=False)


def test_quotas_alone_close_nothing_for_they_let_nobody_in():
    gate = Gate(AuthSettings(tenants={"*": Quotas(queues=1)}, entitlement_secrets=(SECRET,)))
    identity = gate.identify(None, loopback=True)
    assert identity is OPEN
    assert gate.quotas(identity, "default", NOW) == Quotas(queues=1)


@pytest.mark.parametrize("settings", [AuthSettings(tokens=("t",)), AuthSettings(jwt=jwt_settings("HS256"))])
@pytest.mark.parametrize("loopback", [True, False])
@pytest.mark.parametrize("credential", [None, "", "wrong", "a.b.c", "x" * 100_000, "é", "\ud800", "\0"])
def test_anything_configured_closes_the_door_on_loopback_too(
    settings: AuthSettings, loopback: bool, credential: str | None
):
    gate = Gate(settings, Clock())
    assert gate.configured
    assert "authentication" in refusal(gate, credential, loopback=loopback)


def test_a_token_without_dots_is_not_tried_as_a_signed_one():
    assert "does not know" in refusal(jwt_gate("HS256"), "stk_1_2")


# --- permissions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", SETS, ids=lambda held: "+".join(held) or "nothing")
@pytest.mark.parametrize("asked", PERMISSIONS)
def test_a_permission_allows_itself_and_nothing_else(held: tuple[Permission, ...], asked: Permission):
    gate = Gate()
    identity = Identity(name="x", tenant="acme", permissions=frozenset(held))
    if asked in held:
        assert gate.allow(identity, asked, None, NOW) == "acme"
        return
    with pytest.raises(Forbidden, match=f"may not {asked}"):
        gate.allow(identity, asked, None, NOW)


@pytest.mark.parametrize("asked", ["", "Admin", "write", "*", "produce consume"])
def test_a_permission_that_does_not_exist_is_never_held(asked: str):
    with pytest.raises(Forbidden):
        Gate().allow(OPEN, cast(Permission, asked), None, NOW)


# --- tenants -------------------------------------------------------------------------------------------------


def test_an_identity_acts_for_its_own_tenant_named_or_not():
    identity = Identity(name="x", tenant="acme", permissions=frozenset(PERMISSIONS))
    assert Gate().allow(identity, "read", None, NOW) == "acme"
    assert Gate().allow(identity, "read", "acme", NOW) == "acme"


@pytest.mark.parametrize("asked", ["other", "", "default", "ACME", "acme ", "acme\0", "*", "../acme", "a" * 10_000])
def test_another_tenant_is_refused_with_the_same_words_whether_it_exists_or_not(asked: str):
    gate = Gate(AuthSettings(tokens=("t",), tenants={"other": Quotas(queues=1)}))
    identity = Identity(name="x", tenant="acme", permissions=frozenset(PERMISSIONS))
    with pytest.raises(Forbidden) as caught:
        gate.allow(identity, "read", asked, NOW)
    assert caught.value.message == (
        "this token is for another tenant: leave the tenant out, or use a token of that tenant"
    )


def test_who_may_act_for_any_tenant_may_not_act_for_one_that_cannot_be():
    assert Gate().allow(OPEN, "admin", "acme", NOW) == "acme"
    for name in ("", "a b", "a/b", "*", "a\n", "ä", "a" * 257):
        with pytest.raises(InvalidRequest, match="tenant"):
            Gate().allow(OPEN, "admin", name, NOW)


def test_the_end_of_an_identity_comes_before_all_else():
    """Who is nobody any more learns nothing about permissions and tenants."""
    over = Identity(name="x", tenant="acme", permissions=frozenset(), expires_at=NOW)
    with pytest.raises(Unauthenticated, match="token expired"):
        Gate().allow(over, "admin", "other", NOW)


# --- quotas --------------------------------------------------------------------------------------------------


def test_quotas_are_those_of_the_tenant_that_is_acted_for():
    one, others = Quotas(queues=1), Quotas(queues=2)
    gate = Gate(AuthSettings(tenants={"acme": one, "*": others}))
    assert gate.quotas(OPEN, "acme", NOW) == one
    assert gate.quotas(OPEN, "elsewhere", NOW) == others
    assert Gate(AuthSettings(tenants={"acme": one})).quotas(OPEN, "elsewhere", NOW) is None


def test_a_reload_changes_the_quotas_of_live_connections():
    gate = Gate(AuthSettings(tokens=("t",), tenants={"default": Quotas(queues=1)}))
    live = gate.identify("t", loopback=False)
    gate.reload(AuthSettings(tokens=("t",), tenants={"default": Quotas(queues=7)}))
    assert gate.quotas(live, "default", NOW) == Quotas(queues=7)
