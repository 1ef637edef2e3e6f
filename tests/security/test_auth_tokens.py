"""API tokens: how they are made, kept, recognised and revoked; S17, the time that it takes to say no."""

import ast
import hmac
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker.server.auth
from stoker.model.errors import InvalidRequest, NotFound
from stoker.server.auth.gate import Gate
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token, list_tokens, revoke_token
from tests.security.auth_support import NOW, Clock, refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "tokens.jsonl"


def file_gate(path: Path, clock: Clock | None = None) -> Gate:
    return Gate(AuthSettings(tokens_file=str(path)), clock or Clock())


def test_a_token_is_recognised_with_what_it_was_made_for(path: Path):
    made = create_token(path, name="web", tenant="acme", permissions=["read", "produce"], expires_at=NOW + 9, now=NOW)
    identity = file_gate(path).identify(made.text, loopback=False)
    assert (identity.name, identity.tenant, identity.expires_at) == ("web", "acme", NOW + 9)
    assert identity.permissions == {"produce", "read"}
    assert not identity.any_tenant


def test_the_file_is_private_and_holds_no_secret(path: Path):
    made = [create_token(path, name=f"t{n}", now=NOW) for n in range(3)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    text = path.read_text()
    for token in made:
        prefix, token_id, secret = token.text.split("_", 2)
        assert prefix == "stk"
        assert token_id in text
        assert len(secret) == 43
        assert secret not in text


def test_a_wider_umask_and_a_wider_file_become_private(path: Path):
    create_token(path, name="a", now=NOW)
    path.chmod(0o644)
    create_token(path, name="b", now=NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tokens_are_listed_in_the_order_of_their_making_with_revoked_ones(path: Path):
    made = [create_token(path, name=f"t{n}", now=NOW + n) for n in range(3)]
    revoke_token(path, made[1].record.id)
    assert [(record.name, record.created_at, record.revoked) for record in list_tokens(path)] == [
        ("t0", NOW, False),
        ("t1", NOW + 1, True),
        ("t2", NOW + 2, False),
    ]


def test_a_revoked_token_is_refused_and_the_others_are_not(path: Path):
    gone, stays = (create_token(path, name=name, now=NOW) for name in ("gone", "stays"))
    assert revoke_token(path, gone.record.id) == revoke_token(path, gone.record.id)
    gate = file_gate(path)
    assert "token revoked" in refusal(gate, gone.text)
    assert gate.identify(stays.text, loopback=False).name == "stays"


def test_a_whole_token_can_be_revoked_and_an_unknown_one_is_not_repeated(path: Path):
    made = create_token(path, name="a", now=NOW)
    before = path.read_bytes()
    with pytest.raises(NotFound) as caught:
        revoke_token(path, "stk_0123456789abcdef_canary")
    assert "canary" not in caught.value.message
    assert path.read_bytes() == before
    assert revoke_token(path, made.text).revoked


def test_an_expired_token_is_refused_at_its_second(path: Path):
    clock = Clock()
    made = create_token(path, name="a", expires_at=NOW + 10, now=NOW)
    gate = file_gate(path, clock)
    clock.now = NOW + 9.999
    assert gate.identify(made.text, loopback=False).name == "a"
    clock.now = NOW + 10
    assert "token expired" in refusal(gate, made.text)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-1],
        lambda token: token + "A",
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.upper(),
        lambda token: token.rsplit("_", 1)[0],
        lambda token: token.split("_", 2)[2],
        lambda token: "stk__" + token.split("_", 2)[2],
        lambda token: "stk_" + "0" * 16 + "_" + token.split("_", 2)[2],
        lambda token: "stk_" + "0" * 16 + "_",
        lambda token: "stk_",
        lambda token: token + "\n",
        lambda token: token + "\0",
        lambda token: token + "é",
        lambda token: token + "\ud800",
        lambda token: token * 1000,
    ],
)
def test_what_is_not_quite_the_token_is_refused(path: Path, change: Callable[[str], str]):
    made = create_token(path, name="a", now=NOW)
    gate = file_gate(path)
    refusal(gate, change(made.text))
    assert gate.identify(made.text, loopback=False).name == "a"


def test_the_hash_of_a_token_is_not_the_token(path: Path):
    made = create_token(path, name="a", now=NOW)
    refusal(file_gate(path), f"stk_{made.record.id}_{made.record.hash}")


def test_a_token_for_any_tenant_acts_for_the_one_that_is_asked_for(path: Path):
    made = create_token(path, name="operator", tenant="*", now=NOW)
    gate = file_gate(path)
    identity = gate.identify(made.text, loopback=False)
    assert gate.allow(identity, "read", None, NOW) == "default"
    assert gate.allow(identity, "read", "acme", NOW) == "acme"


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "a" * 257},
        {"tenant": ""},
        {"tenant": "a b"},
        {"tenant": "**"},
        {"permissions": []},
        {"permissions": ["root"]},
        {"expires_at": NOW},
        {"expires_at": float("nan")},
        {"expires_at": float("inf")},
    ],
)
def test_a_senseless_token_is_not_made(path: Path, wrong: dict[str, Any]):
    with pytest.raises(InvalidRequest):
        create_token(path, **{"name": "a", "now": NOW, **wrong})
    assert not path.exists()


# --- the file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: "{", "line 2: not a JSON object"),
        (lambda line: '{"id":' + "[" * 100_000, "line 2: "),
        (lambda line: line.replace('"id"', '"identity"'), "line 2: .*identity"),
        (lambda line: line.replace('"revoked":false', '"revoked":0'), "line 2: .*revoked"),
        (lambda line: line.replace("default", "a b"), "line 2: tenant"),
        (lambda line: line.replace('"hash":"', '"hash":"x'), "line 2: .*hash"),
        (lambda line: line.replace('["admin"', '["root"'), "line 2: .*permissions"),
        (lambda line: json.dumps(json.loads(line) | {"more": 1}), "line 2: .*more"),
    ],
)
def test_a_file_that_is_bad_anywhere_is_not_half_believed(path: Path, change: Callable[[str], str], why: str):
    for name in "ab":
        create_token(path, name=name, now=NOW)
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{change(second)}\n")
    broken = path.read_bytes()
    for act in (
        lambda: file_gate(path),
        lambda: list_tokens(path),
        lambda: create_token(path, name="c", now=NOW),
        lambda: revoke_token(path, "0" * 16),
    ):
        with pytest.raises(InvalidRequest, match=why):
            act()
    assert path.read_bytes() == broken


def test_an_id_that_is_there_twice_is_refused(path: Path):
    create_token(path, name="a", now=NOW)
    path.write_text(path.read_text() * 2)
    with pytest.raises(InvalidRequest, match="twice"):
        file_gate(path)


def test_a_file_that_is_not_there_is_an_error_and_not_an_open_door(path: Path):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        file_gate(path)


def test_an_empty_file_lets_nobody_in(path: Path):
    path.parent.mkdir()
    path.write_bytes(b"")
    gate = file_gate(path)
    assert "authentication required" in refusal(gate, None, loopback=True)
    assert "does not know" in refusal(gate, "stk_", loopback=True)


def test_a_file_that_anybody_can_write_or_that_is_no_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    create_token(path, name="a", now=NOW)
    path.chmod(0o602)
    with pytest.raises(InvalidRequest, match="chmod o-w"):
        file_gate(path)
    with pytest.raises(InvalidRequest, match="not a regular file"):
        file_gate(path.parent)
    with pytest.raises(InvalidRequest, match="not a regular file"):
        file_gate(Path("/dev/null"))
    with pytest.raises(InvalidRequest, match="not a file name"):
        file_gate(Path("a\0b"))
    path.chmod(0o600)
    monkeypatch.setattr("stoker.server.auth.tokens.FILE_BYTES_MAX", 10)
    with pytest.raises(InvalidRequest, match="larger than"):
        file_gate(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch):
    create_token(path, name="a", now=NOW)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            create_token(path, name="b", now=NOW)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_tokens_made_at_the_same_time_are_all_kept(path: Path):
    made: list[str] = []

    def make(number: int) -> None:
        made.extend(create_token(path, name=f"{number}-{each}", now=NOW).text for each in range(5))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    gate = file_gate(path)
    assert len({gate.identify(token, loopback=False).name for token in made}) == 20


# --- tokens of the configuration --------------------------------------------------------------------------


def test_plain_tokens_have_all_permissions_of_the_default_tenant():
    gate = Gate(AuthSettings(tokens=("one", "two")))
    for number, token in enumerate(("one", "two"), 1):
        identity = gate.identify(token, loopback=False)
        assert (identity.name, identity.tenant, identity.any_tenant) == (f"static-{number}", "default", False)
        assert identity.permissions == {"produce", "consume", "read", "admin"}
    for wrong in ("three", "on", "onee", "ONE", "one,two"):
        assert "does not know" in refusal(gate, wrong)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n", "é", "\ud800", "x" * 4097])
def test_a_plain_token_that_no_header_could_carry_is_refused(token: str):
    with pytest.raises(InvalidRequest, match="token 2 of the configuration"):
        Gate(AuthSettings(tokens=("good", token)))


def test_a_plain_token_may_look_like_any_other(path: Path):
    made = create_token(path, name="a", now=NOW)
    odd = f"stk_{made.record.id}_other"
    gate = Gate(AuthSettings(tokens=(odd, "a.b.c"), tokens_file=str(path)))
    names = [gate.identify(token, loopback=False).name for token in (odd, "a.b.c", made.text)]
    assert names == ["static-1", "static-2", "a"]


# --- S17: time ---------------------------------------------------------------------------------------------


def test_saying_no_takes_the_same_comparisons_whatever_was_wrong(path: Path, monkeypatch: pytest.MonkeyPatch):
    made = create_token(path, name="a", now=NOW)
    revoked = create_token(path, name="b", now=NOW)
    revoke_token(path, revoked.record.id)
    gate = Gate(AuthSettings(tokens=("first", "second", "third"), tokens_file=str(path)), Clock())
    compared: list[int] = []
    compare = hmac.compare_digest

    def spy(a: Any, b: Any) -> bool:
        compared.append(len(a))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    shapes = set()
    for credential in (
        made.text,
        "first",
        "third",
        f"stk_{made.record.id}_wrong",
        "stk_0000000000000000_wrong",
        "stk_unknown_wrong",
        "nothing",
    ):
        compared.clear()
        try:
            gate.identify(credential, loopback=False)
        except Exception:
            pass
        shapes.add(tuple(compared))
    assert shapes == {(32, 32, 32, 64)}


def test_an_unknown_id_and_a_wrong_secret_get_the_same_answer(path: Path):
    made = create_token(path, name="a", now=NOW)
    revoke_token(path, made.record.id)
    gate = file_gate(path)
    answers = {refusal(gate, token) for token in (f"stk_{made.record.id}_wrong", "stk_0000000000000000_wrong", "x")}
    assert len(answers) == 1
    assert "token revoked" in refusal(gate, made.text)  # told only to who has the secret


def plain_comparisons(source: str) -> list[int]:
    """Lines that compare something named like a secret by a way that ends at the first difference."""
    secret = {"secret", "hash", "digest", "signature", "given", "credential", "seal", "hexdigest"}

    def named(node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            node = node.func
        return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""

    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and all(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
        and any(named(side).strip("_") in secret for side in (node.left, *node.comparators))
    ]


def test_no_secret_is_compared_with_an_equals_sign():
    assert plain_comparisons("a.hash == sha256(x).hexdigest()") == [1]
    assert plain_comparisons("x = 1\nif _seal(y) != z: pass") == [2]
    sources = list(Path(str(stoker.server.auth.__file__)).parent.glob("*.py"))
    assert len(sources) > 8
    assert {source.name: plain_comparisons(source.read_text()) for source in sources} == {
        source.name: [] for source in sources
    }
