"""`stoker serve` and `stoker config`: what a server does, what it would do, and why it would not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli import exits
from tests.cli.conftest import Stoker


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
    assert outcome.code == exits.USAGE
    assert outcome.err.endswith(" (bad_config)\n")


def test_a_bad_configuration_exits_with_2_and_a_line_for_each_problem(stoker: Stoker, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("tpc = 1\nprocesses = 'two'")
    for arguments in (["serve"], ["config", "check"], ["config", "show"]):
        outcome = stoker(*arguments)
        assert (outcome.code, outcome.out) == (exits.USAGE, "")
        lines = outcome.err.splitlines()
        assert len(lines) == 2
        assert all(line.startswith("error: ") and line.endswith(" (bad_config)") for line in lines)


def test_an_open_server_is_not_put_on_a_network(stoker: Stoker):
    outcome = stoker("serve", "--tcp", "0.0.0.0:0", "--http", "off", "--grpc", "off")
    assert outcome.code == exits.USAGE
    assert "--insecure" in outcome.err


@pytest.mark.parametrize("pair", ["x", "=1", "tpc=1"])
def test_settings_that_there_are_not_cannot_be_set(stoker: Stoker, pair: str):
    assert stoker("serve", "--set", pair, "--show-config").code == exits.USAGE


def test_a_flag_wins_over_set(stoker: Stoker):
    assert 'data = "b"' in stoker("serve", "--set", "data=a", "--data", "b", "--show-config").out


def test_config_check_says_nothing_when_all_is_well(stoker: Stoker):
    assert stoker("config", "check") == (0, "", "")


def test_config_check_looks_into_the_files_that_are_named(stoker: Stoker, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("auth.tokens_file = 'missing'")
    assert stoker("config", "check").code == exits.REFUSED
    (tmp_path / "stoker.toml").write_text("http.tls = { cert = 'missing', key = 'missing' }")
    outcome = stoker("config", "check")
    assert outcome.code == exits.REFUSED
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
            assert refused.code == exits.REFUSED
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
