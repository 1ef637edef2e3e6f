"""`stoker serve` and `stoker config`: what a server does, what it would do, and why it would not."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker import connect
from stoker.cli import exit_codes
from stoker.model.errors import StokerError
from stoker.server.config import ServerConfig
from stoker.server.processes.directory_seating import supervise
from stoker.server.run import serve
from tests.cli.conftest import Stoker
from tests.ports import kept_port


def test_the_configuration_is_shown_with_the_source_of_each_value(
    stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "pyproject.toml").write_text("[tool.stoker.log]\nformat = 'json'")
    (tmp_path / "stoker.toml").write_text("limits.batch_jobs_max = 5")
    monkeypatch.setenv("STOKER_HTTP", "off")
    flags = ["--tcp", "127.0.0.1:1", "--data", "d", "--processes", "2", "--set", "stop.drain_s=5s", "--insecure"]
    outcome = stoker("serve", *flags, "--show-config")
    assert (outcome.code, outcome.err) == (0, "")
    shown = {line.partition("#")[0].strip(): line.rpartition("# ")[2] for line in outcome.out.splitlines()}
    assert shown['log.format = "json"'] == "pyproject.toml [tool.stoker]"
    assert shown["limits.batch_jobs_max = 5"] == "stoker.toml"
    assert shown['http.listen = "off"'] == "STOKER_HTTP"
    assert shown['tcp.listen = "127.0.0.1:1"'] == "--tcp"
    assert shown["processes = 2"] == "--processes"
    assert shown["stop.drain_s = 5.0"] == "--set stop.drain_s"
    assert shown["insecure = true"] == "--insecure"
    assert shown['grpc.listen = "127.0.0.1:6791"'] == "default"


def test_all_flags_are_settings(stoker: Stoker):
    flags = ["--data=d", "--tcp=off", "--http=off", "--grpc=off", "--unix=s", "--durability=fsync", "--processes=1"]
    outcome = stoker("serve", *flags, "--tokens-file=t", "--show-config")
    assert outcome.code == 0
    sources = {line.rpartition("# ")[2] for line in outcome.out.splitlines()}
    assert {flag.partition("=")[0] for flag in flags} | {"--tokens-file"} <= sources


def test_another_file_may_be_named(stoker: Stoker, tmp_path: Path):
    (tmp_path / "other.toml").write_text('processes = 3\ndata = "d"')
    assert "processes = 3 " in stoker("serve", "--config", "other.toml", "--show-config").out
    outcome = stoker("serve", "--config", "missing.toml", "--show-config")
    assert outcome.code == exit_codes.USAGE
    assert outcome.err.endswith(" (bad_config)\n")


def test_a_bad_configuration_exits_with_2_and_a_line_for_each_problem(stoker: Stoker, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("tpc = 1\nprocesses = 'two'")
    for arguments in (["serve"], ["config", "check"], ["config", "show"]):
        outcome = stoker(*arguments)
        assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")
        lines = outcome.err.splitlines()
        assert len(lines) == 2
        assert all(line.startswith("error: ") and line.endswith(" (bad_config)") for line in lines)


def test_an_open_server_is_not_put_on_a_network(stoker: Stoker):
    outcome = stoker("serve", "--tcp", "0.0.0.0:0", "--http", "off", "--grpc", "off")
    assert outcome.code == exit_codes.USAGE
    assert "--insecure" in outcome.err


@pytest.mark.parametrize("pair", ["x", "=1", "tpc=1"])
def test_settings_that_there_are_not_cannot_be_set(stoker: Stoker, pair: str):
    assert stoker("serve", "--set", pair, "--show-config").code == exit_codes.USAGE


def test_a_flag_wins_over_set(stoker: Stoker):
    assert 'data = "b"' in stoker("serve", "--set", "data=a", "--data", "b", "--show-config").out


def test_config_check_says_nothing_when_all_is_well(stoker: Stoker):
    assert stoker("config", "check") == (0, "", "")


def test_config_check_looks_into_the_files_that_are_named(stoker: Stoker, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("auth.tokens_file = 'missing'")
    assert stoker("config", "check").code == exit_codes.REFUSED
    (tmp_path / "stoker.toml").write_text("http.tls = { cert = 'missing', key = 'missing' }")
    outcome = stoker("config", "check")
    assert outcome.code == exit_codes.REFUSED
    assert "missing" in outcome.err


def test_config_show_has_json_for_programs(stoker: Stoker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STOKER_AUTH__TOKENS", "hush")
    outcome = stoker("config", "show", "--json")
    found = {one["key"]: one for one in json.loads(outcome.out)}
    assert found["limits.tags_max"] == {"key": "limits.tags_max", "value": 32, "source": "default"}
    assert found["auth.tokens"]["source"] == "STOKER_AUTH__TOKENS"
    assert "hush" not in outcome.out


def test_a_server_serves_until_it_is_told_to_stop(stoker: Stoker, tmp_path: Path):
    """With tokens: whoever has none is refused, and the data are there afterwards."""
    token = stoker("token", "create", "me", "--file", "tokens").out.strip()
    flags = ["--data=data", "--tcp=127.0.0.1:0", "--http=off", "--grpc=off", "--unix=socket", "--tokens-file=tokens"]
    with subprocess.Popen(
        [sys.executable, "-m", "stoker.cli.main", "serve", *flags], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            refused = stoker("push", "q", "1", "--url", f"tcp://{address}")
            assert refused.code == exit_codes.REFUSED
            assert "--token or STOKER_TOKEN (unauthenticated)" in refused.err
            assert stoker("push", "q", "1", "--url", f"tcp://:{token}@{address}").code == 0
            assert stoker("push", "q", "2", "--url", f"tcp://{address}", "--token", token).code == 0
            checked = stoker("doctor", "--url", f"tcp://{address}", "--token", token)
            assert checked.code == 0
            assert "16 shards; you may admin, consume, produce, read" in checked.out
            assert "give a token with --token" in stoker("doctor", "--url", f"tcp://{address}").out
            assert stoker("stats", "--url", f"unix://{tmp_path}/socket?token={token}").code == 0
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert stoker("pull", "q", "--ack", "--url", "sqlite:///data").out.endswith("\t1\n")
    assert not os.path.exists(tmp_path / "socket")


# --- listeners whose packages are not installed -----------------------------------------------------------------------

HIDING = """
import sys
hidden, sys.argv = sys.argv[1], ["stoker", *sys.argv[2:]]
sys.modules.update(dict.fromkeys(hidden.split(","), None))  # they cannot be imported, as if they were not installed
from stoker.cli.main import main
main()
"""


def served_lines(tmp_path: Path, hidden: str, *options: str, lines: int, **environment: str) -> list[str]:
    """What `stoker serve` says at its start where some packages are missing. It answers on TCP, and ends."""
    command = [sys.executable, "-c", HIDING, hidden, "serve", "--data=data", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ | environment
    ) as process:
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(lines)]
            assert said[0].startswith("tcp ")
            with connect(f"tcp://{said[0].split()[1]}") as client:
                client.push("mail", b"")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    return said


def test_a_listener_whose_package_is_missing_is_off_and_a_line_says_how_to_get_it(tmp_path: Path):
    """`pip install 'stoker[server]'` has no gRPC, and plain `pip install stoker` no HTTP either."""
    _, http, grpc = served_lines(tmp_path, "grpc", "--tcp=127.0.0.1:0", "--http=127.0.0.1:0", lines=3)
    assert http.startswith("http   http://127.0.0.1:")
    assert grpc == "grpc   off: it needs the package grpc; pip install 'stoker[grpc]'\n"
    _, http, grpc = served_lines(tmp_path, "starlette,grpc_health", "--tcp=127.0.0.1:0", lines=3)
    assert http == "http   off: it needs the package starlette; pip install 'stoker[server]'\n"
    assert grpc == "grpc   off: it needs the package grpc_health; pip install 'stoker[grpc]'\n"


def test_the_last_line_says_what_replies_wait_for(tmp_path: Path):
    options = ("--tcp=127.0.0.1:0", "--http=off", "--grpc=off")
    _, usual = served_lines(tmp_path, "none", *options, lines=2)
    assert usual == "data   data, durability: commit\n"
    _, asked = served_lines(tmp_path, "none", *options, "--durability=fsync", lines=2)
    assert asked == "data   data, durability: fsync\n"


@pytest.mark.parametrize("by", ["flag", "STOKER_GRPC", "STOKER_GRPC__LISTEN", "GRPC_PORT", "file"])
def test_a_listener_that_was_asked_for_and_cannot_be_is_an_error(
    stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
):
    monkeypatch.setitem(sys.modules, "grpc", None)
    if by == "file":
        (tmp_path / "stoker.toml").write_text('grpc = "127.0.0.1:0"')
    elif by != "flag":
        monkeypatch.setenv(by, "6791" if by == "GRPC_PORT" else "127.0.0.1:0")
    outcome = stoker(
        "serve", "--data=data", "--tcp=off", "--http=off", *(["--grpc=127.0.0.1:0"] if by == "flag" else [])
    )
    assert outcome.code == exit_codes.USAGE
    assert "grpc.listen (" in outcome.err
    assert "pip install 'stoker[grpc]'" in outcome.err
    assert not (tmp_path / "data").exists()
    if by != "flag":
        assert stoker("config", "check").code == exit_codes.USAGE


# --- flashQ's environment ---------------------------------------------------------------------------------------------


def test_variables_of_flashq_are_understood_and_a_line_says_so(tmp_path: Path):
    with kept_port() as tcp, kept_port() as http:
        names = {"PORT": str(tcp), "HTTP_PORT": str(http), "UNIX_SOCKET": "queue.sock", "SYNC_PERSISTENCE": "1"}
        tcp_line, unix_line, http_line, env_line = served_lines(tmp_path, "grpc", "--grpc=off", lines=4, **names)
        assert tcp_line == f"tcp    127.0.0.1:{tcp}\n"
        assert unix_line == "unix   queue.sock\n"
        assert http_line == f"http   http://127.0.0.1:{http}\n"
        assert env_line == (
            'env    used as flashQ does: SYNC_PERSISTENCE (durability = "fsync"),'
            f' PORT (tcp.listen = "127.0.0.1:{tcp}"), HTTP_PORT (http.listen = "127.0.0.1:{http}"),'
            ' UNIX_SOCKET (unix.listen = "queue.sock")\n'
        )


def test_own_settings_win_over_those_of_flashq(stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in (("PORT", "1001"), ("HTTP_PORT", "1002"), ("GRPC_PORT", "1003"), ("UNIX_SOCKET", "/flashq")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SYNC_PERSISTENCE", "true")
    monkeypatch.setenv("STOKER_HTTP", "127.0.0.1:2002")
    (tmp_path / "stoker.toml").write_text('grpc.listen = "127.0.0.1:2003"\ndurability = "commit"')
    shown = stoker("serve", "--data=d", "--unix=/own", "--show-config").out
    for line in ('tcp.listen = "127.0.0.1:1001"', 'http.listen = "127.0.0.1:2002"', 'grpc.listen = "127.0.0.1:2003"'):
        assert line in shown
    assert 'unix.listen = "/own"' in shown
    assert 'durability = "commit"' in shown
    monkeypatch.setenv("TCP_PORT", "1004")
    monkeypatch.setenv("SYNC_PERSISTENCE", "0")
    assert 'tcp.listen = "127.0.0.1:1004"' in stoker("serve", "--data=d", "--show-config").out


def test_a_port_of_flashq_that_is_none_is_refused(stoker: Stoker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORT", "tcp://10.0.0.1:80")
    outcome = stoker("serve", "--show-config")
    assert outcome.code == exit_codes.USAGE
    assert "PORT = 'tcp://10.0.0.1:80': expected a port" in outcome.err
    assert "STOKER_TCP__LISTEN" in outcome.err


# --- a start that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("what", ["tcp", "http", "grpc", "unix", "tokens", "certificate"])
def test_a_server_that_cannot_start_leaves_no_directory(tmp_path: Path, what: str, processes: int):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen: dict[str, Any] = {name: {"listen": "127.0.0.1:0"} for name in ("tcp", "http", "grpc")}
        auth: dict[str, str] = {}
        if what in listen:
            listen[what]["listen"] = f"127.0.0.1:{taken.getsockname()[1]}"
        elif what == "unix":
            (tmp_path / "file").write_bytes(b"")
            listen["unix"] = {"listen": str(tmp_path / "file")}
        elif what == "tokens":
            auth["tokens_file"] = str(tmp_path / "missing")
        else:
            listen["grpc"]["tls"] = {"cert": "missing", "key": "missing"}
        settings = {**listen, "auth": auth, "data": str(tmp_path / "data"), "processes": processes}
        config = msgspec.convert(settings, ServerConfig)
        with pytest.raises(StokerError), asyncio.Runner() as runner:
            runner.run(serve(config) if processes == 1 else supervise(config))
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_named_and_nothing_is_left(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = "{}:{}".format(*taken.getsockname())
        command = [sys.executable, "-m", "stoker", "serve", "--data=data", f"--tcp={where}", "--http=off", "--grpc=off"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == exit_codes.REFUSED
    assert f"cannot listen at {where} for tcp: " in ended.stderr
    assert list(tmp_path.iterdir()) == []
