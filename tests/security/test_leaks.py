"""S14, S18: no secret in anything that comes out, and nothing that came in makes a line of its own in a log."""

import io
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.logs import JsonLines, PlainLines
from stoker.model import commands as c
from stoker.server.auth.entitlements import Entitlement, sign
from stoker.server.auth.quotas import Quotas
from stoker.server.auth.settings import AuthSettings, JwtKey, JwtSettings
from stoker.server.config.tree import LogSettings
from tests.security.auth_support import claims, sealed_by_hand
from tests.security.support import Talker, secured
from tests.served.on_loop import run

CANARY = "canary-5d1e77-that-nobody-may-ever-see"
STATIC, JWT_KEY, ENTITLING = (f"{CANARY}-{word}" for word in ("static", "jwt-key-for-HS256", "entitlement"))
SETTINGS = AuthSettings(
    tokens=(STATIC,),
    jwt=JwtSettings(keys=(JwtKey(algorithm="HS256", kid="k", key=JWT_KEY),)),
    entitlement_secrets=(ENTITLING,),
)


def own_jwt(**changed: Any) -> str:
    said = claims(aud=None, iss=None, exp=time.time() + 3600, nbf=None, iat=None, sub="ann", **changed)
    return sealed_by_hand('{"alg":"HS256","kid":"k"}', json.dumps(said), JWT_KEY.encode())


@pytest.fixture
def logged() -> Any:
    """Everything that anybody logs, at every level, as the server writes it."""
    written = io.StringIO()
    handlers = [logging.StreamHandler(written), logging.StreamHandler(written)]
    for handler, formatter in zip(handlers, (PlainLines(), JsonLines()), strict=True):
        handler.setFormatter(formatter)
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    yield written
    for handler in handlers:
        root.removeHandler(handler)
    root.setLevel(before)


def test_no_answer_and_no_log_shows_a_secret(tmp_path: Path, logged: io.StringIO):
    async def main() -> None:
        async with secured(tmp_path, auth=SETTINGS) as server:
            entitled = Entitlement(tenant="default", quotas=Quotas(), expires_at=int(time.time()) + 60)
            good = [STATIC, own_jwt(), server.token("acme")]
            secrets = [CANARY, *(each[-16:] for each in good), sign(entitled, ENTITLING)]
            bad = [STATIC + "x", good[1] + "x", good[2] + "x", CANARY, f"stk_{CANARY}_{CANARY}", CANARY * 300]
            heard: list[bytes] = []
            for token in [*good, *bad]:
                talker = Talker(await server.place.peer())
                for cmd, fields in (
                    ("AUTH", {"token": token}),
                    ("HELLO", {"token": token}),
                    ("hello", {"body": {"token": token, "entitlement": secrets[-1]}}),
                    ("hello", {"body": {"token": token, "entitlement": CANARY}}),
                    ("AUTH", {"token": [token]}),
                    ("hello", {"body": {"token": {"x": token}}}),
                    ("get_stats", {"body": {}}),
                    ("STATS", {}),
                    ("METRICS", {}),
                    ("LISTQUEUES", {}),
                ):
                    await talker(cmd, **fields)
                heard += talker.heard
            answers = b"\n".join(heard).decode()
            assert answers.count('"ok":true') > 10
            logging.getLogger("stoker.test").error("this is written twice")
            for secret in secrets:
                assert secret not in answers
                assert secret not in logged.getvalue()
            assert logged.getvalue().count("this is written twice") == 2
            for thing in (server.place.server, server.place.server.config, server.place.server.gate):
                assert CANARY not in repr(thing)
                assert CANARY not in str(thing)

    run(main)


def test_a_payload_with_a_secret_is_in_no_log(tmp_path: Path, logged: io.StringIO):
    """Jobs carry passwords: only who reads the job sees it."""

    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await server.talker("acme")
            assert (await talker("PUSH", queue="q", data=CANARY, tags=[CANARY]))["ok"]
            job = (await talker("PULL", queue="q", timeout=0))["job"]
            assert job["data"] == CANARY
            await talker("FAIL", id=job["id"], token=job["token"], error=CANARY)
            await talker("KVSET", key=CANARY, value=CANARY)
            await talker("PUSH", queue=CANARY + "\n", data=CANARY, priority=CANARY)
            await talker("push", body={"queue": "q", "payload": CANARY, "options": {"priority": CANARY}})
            talker.peer.writer.write(b"\xff" + CANARY.encode() + b"\n")
            await talker.peer.line()

    run(main)
    assert CANARY not in logged.getvalue()


def test_a_shown_configuration_has_stars_for_secrets(tmp_path: Path):
    """From a file and from the environment."""
    (tmp_path / "stoker.toml").write_text(
        f"[auth]\ntokens = ['{STATIC}']\nentitlement_secrets = ['{ENTITLING}']\n"
        f"[[auth.jwt.keys]]\nalgorithm = 'HS256'\nkid = 'k'\nkey = '{JWT_KEY}'\n"
    )
    environment = {"PATH": "/usr/bin", "HOME": str(tmp_path)}
    for more in (environment, environment | {"STOKER_AUTH__TOKENS": f"{STATIC},{STATIC}-2"}):
        shown = subprocess.run(
            [sys.executable, "-m", "stoker", "serve", "--show-config"],
            capture_output=True,
            cwd=tmp_path,
            env=more,
            timeout=60,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        assert b"***" in shown.stdout
        assert CANARY.encode() not in shown.stdout + shown.stderr


def test_a_configuration_that_is_wrong_is_told_without_its_secrets(tmp_path: Path):
    (tmp_path / "stoker.toml").write_text(f"[auth]\ntokens = ['{STATIC} ']\nentitlement_secrets = ['{CANARY[:9]}']\n")
    told = subprocess.run(
        [sys.executable, "-m", "stoker", "serve", "--tcp", "off", "--http", "off", "--grpc", "off"],
        capture_output=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert told.returncode != 0
    assert CANARY[:9].encode() not in told.stdout + told.stderr


INJECTIONS = [
    "a\nERROR server: forged",
    "a\r\nb",
    "\x1b[31mred\x1b[0m",
    "\x07\x08",
    "a\u2028b\u2029c",
    "\x85",
    "\u202egnp",
]


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("formatter", [PlainLines(), JsonLines()])
def test_what_came_in_is_text_within_one_line(text: str, formatter: logging.Formatter):
    record = logging.makeLogRecord({"name": "stoker.server", "levelname": "INFO", "msg": "%s", "args": (text,)})
    record.__dict__["queue"] = text
    line = formatter.format(record)
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    if isinstance(formatter, JsonLines):
        assert json.loads(line)["message"] == json.loads(line)["queue"] == text
    plain = logging.makeLogRecord({"name": "stoker.server", "levelname": "INFO", "msg": "plain é"})
    assert "plain" in formatter.format(plain)


def test_an_error_with_a_line_break_forges_no_line_either():
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000Z ERROR server: forged")
    except ValueError:
        record = logging.makeLogRecord({"name": "n", "levelname": "ERROR", "msg": "m", "exc_info": sys.exc_info()})
    lines = PlainLines().format(record).splitlines()
    assert [line for line in lines[1:] if line.startswith("2026")] == []
    assert len(JsonLines().format(record).splitlines()) == 1


def test_names_and_errors_of_jobs_forge_no_lines(tmp_path: Path, logged: io.StringIO):
    async def main() -> None:
        async with secured(tmp_path) as server:
            talker = await server.talker("acme")
            for text in INJECTIONS:
                await talker("PUSH", queue=text, data=text)
                await talker(text)
                await talker("AUTH", token=text)
                await talker("PULL", queue="q", worker=text, timeout=0, claim=text)
                server.place.broker.execute("acme", c.Push("q", b""))
            for answer in talker.heard:
                assert b"\n" not in answer
                assert msgspec.json.decode(answer)

    run(main)
    assert not [line for line in logged.getvalue().splitlines() if line.startswith("ERROR server: forged")]
    assert LogSettings().format == "plain"
