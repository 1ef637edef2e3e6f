"""`stoker push`, `stoker pull` and `stoker stats`, each on a data directory of its own."""

import json
from pathlib import Path

import pytest

import stoker as library
from stoker.cli import exit_codes
from tests.cli.conftest import Stoker

URL = ("--url", "sqlite:///jobs")


def test_what_is_pushed_comes_back_and_is_gone_when_acknowledged(stoker: Stoker):
    pushed = stoker("push", "mail", '{"to": "you"}', *URL)
    assert (pushed.code, pushed.err) == (0, "")
    pulled = stoker("pull", "mail", "--ack", *URL)
    assert pulled == (0, f'{pushed.out.strip()}\t{{"to": "you"}}\n', "")
    assert stoker("pull", "mail", "--ack", *URL) == (exit_codes.NOTHING, "", "")
    assert json.loads(stoker("stats", "--json", *URL).out)["counts"]["completed"] == 1


def test_without_a_url_the_data_directory_stoker_db_is_used(stoker: Stoker, tmp_path: Path):
    assert stoker("push", "q", "1").code == 0
    assert (tmp_path / "stoker.db").is_dir()
    assert stoker("pull", "q", "--ack").code == 0


def test_the_url_may_come_from_the_environment(stoker: Stoker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("STOKER_URL", "sqlite:///elsewhere")
    assert stoker("push", "q", "1").code == 0
    assert (tmp_path / "elsewhere").is_dir()


def test_data_are_sent_as_they_are_written(stoker: Stoker):
    """No number is rounded, no space is lost."""
    text = '{"n": 1.10, "big": 123456789012345678901234567890}'
    stoker("push", "q", text, *URL)
    assert stoker("pull", "q", "--ack", *URL).out.partition("\t")[2] == text + "\n"


@pytest.mark.parametrize("data", ["hello", "{", "", '{"a": 1} x'])
def test_data_that_are_not_json_are_refused_and_nothing_is_pushed(stoker: Stoker, data: str):
    outcome = stoker("push", "q", data, *URL)
    assert outcome.code == exit_codes.USAGE
    assert "not JSON" in outcome.err
    assert "--raw" in outcome.err
    assert stoker("pull", "q", *URL).code == exit_codes.NOTHING


def test_raw_data_need_not_be_json(stoker: Stoker):
    stoker("push", "q", "hello", "--raw", *URL)
    assert stoker("pull", "q", "--ack", *URL).out.endswith("\thello\n")


def test_json_output_has_bytes_as_base64(stoker: Stoker):
    stoker("push", "q", "-", "--raw", *URL, stdin=b"\xff\x00")
    assert json.loads(stoker("pull", "q", "--json", "--ack", *URL).out)[0]["data"] == {"$bytes": "/wA="}


@pytest.mark.parametrize("arguments", [["-"], ["--file", "data.json"]])
def test_data_come_from_standard_input_or_a_file(stoker: Stoker, tmp_path: Path, arguments: list[str]):
    (tmp_path / "data.json").write_bytes(b"[1]\n")
    assert stoker("push", "q", *arguments, *URL, stdin=b"[1]\n").code == 0
    assert stoker("pull", "q", "--ack", *URL).out.partition("\t")[2].strip() == "[1]"


@pytest.mark.parametrize("arguments", [[], ["1", "--file", "data.json"]])
def test_data_come_from_exactly_one_place(stoker: Stoker, tmp_path: Path, arguments: list[str]):
    (tmp_path / "data.json").write_bytes(b"[1]\n")
    assert stoker("push", "q", *arguments, *URL).code == exit_codes.USAGE


def test_a_file_that_is_not_there_is_wrong_usage(stoker: Stoker):
    assert stoker("push", "q", "--file", "missing", *URL).code == exit_codes.USAGE


def test_lines_become_jobs_of_their_own(stoker: Stoker):
    lines = b"".join(b"%d\n" % number for number in range(2_500))
    pushed = stoker("push", "q", "-", "--lines", *URL, stdin=lines + b"\n")
    assert pushed.code == 0
    assert len(set(pushed.out.split())) == 2_500
    pulled = stoker("pull", "q", "--count", 2_500, "--ack", *URL).out
    assert [int(line.split("\t")[1]) for line in pulled.splitlines()] == list(range(2_500))


def test_a_bad_line_is_named(stoker: Stoker):
    outcome = stoker("push", "q", "-", "--lines", *URL, stdin=b"1\n2\nx\n")
    assert outcome.code == exit_codes.USAGE
    assert "line 3" in outcome.err


def test_options_reach_the_job(stoker: Stoker):
    arguments = [
        *("--priority", 7, "--delay", "0ms", "--ttl", "5m", "--timeout", "2m", "--max-attempts", 9),
        *("--name", "welcome", "--unique-key", "u", "--custom-id", "c", "--group", "g", "--tag", "a", "--tag", "b"),
        *("-o", "lifo=true", "-o", "trace=00-abc", "-o", 'backoff={"kind": "fixed"}', "--durability", "fsync"),
    ]
    pushed = json.loads(stoker("push", "q", "1", *arguments, "--json", *URL).out)
    assert pushed["level"] == "fsync"
    with library.connect(URL[1]) as client:
        options = client.get_job(pushed["id"]).options
    assert (options.priority, options.ttl_ms, options.timeout_ms, options.max_attempts) == (7, 300_000, 120_000, 9)
    assert (options.unique_key, options.custom_id, options.group_id, options.tags) == ("u", "c", "g", ("a", "b"))
    assert options.name == "welcome"
    assert (options.lifo, options.trace, options.backoff.kind) == (True, "00-abc", "fixed")


@pytest.mark.parametrize("arguments", [["-o", "nice=1"], ["-o", "lifo"], ["-o", "lifo=7"], ["--delay", "soon"]])
def test_options_that_there_are_not_are_refused(stoker: Stoker, arguments: list[str]):
    outcome = stoker("push", "q", "1", *arguments, *URL)
    assert (outcome.code, outcome.out) == (exit_codes.USAGE, "")


def test_a_refused_push_exits_with_4_and_says_why(stoker: Stoker):
    outcome = stoker("push", "a queue with spaces", "1", *URL)
    assert (outcome.code, outcome.out) == (exit_codes.REFUSED, "")
    assert outcome.err.endswith(" (invalid)\n")


def test_a_second_push_with_an_id_answers_with_the_first_job(stoker: Stoker):
    first = stoker("push", "q", "1", "--custom-id", "x", *URL).out
    second = json.loads(stoker("push", "q", "2", "--custom-id", "x", "--json", *URL).out)
    assert (second["id"], second["created"], second["duplicate_by"]) == (int(first), False, "custom_id")


def test_a_pull_without_ack_leaves_the_job_leased(stoker: Stoker):
    job = int(stoker("push", "q", "1", *URL).out)
    pulled = stoker("pull", "q", "--lease", "1h", *URL)
    assert pulled.code == 0
    assert "not acknowledged" in pulled.err
    assert stoker("pull", "q", *URL).code == exit_codes.NOTHING
    with library.connect(URL[1]) as client:
        assert client.get_state(job) == "active"


def test_tenants_do_not_see_each_other(stoker: Stoker):
    stoker("push", "q", "1", "--tenant", "a", *URL)
    assert stoker("pull", "q", "--tenant", "b", *URL).code == exit_codes.NOTHING
    assert stoker("pull", "q", "--tenant", "a", "--ack", *URL).code == 0


def test_stats_are_of_a_queue_or_of_all(stoker: Stoker):
    stoker("push", "a", "1", *URL)
    stoker("push", "b", "1", *URL)
    assert json.loads(stoker("stats", "--json", *URL).out)["counts"]["waiting"] == 2
    assert json.loads(stoker("stats", "--queue", "a", "--json", *URL).out)["counts"]["waiting"] == 1
    shown = stoker("stats", *URL).out.split()
    assert shown[shown.index("waiting") + 1] == "2"


def test_a_directory_that_another_process_could_not_share_is_no_traceback(stoker: Stoker, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    outcome = stoker("stats", "--url", "sqlite:///file")
    assert outcome.code in (exit_codes.FAILED, exit_codes.REFUSED)
    assert outcome.err.startswith("error: ")


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "unix:///nowhere/socket"])
def test_a_server_that_does_not_answer_exits_with_3(stoker: Stoker, url: str):
    outcome = stoker("stats", "--url", f"{url}?retry_s=0")
    assert outcome.code == exit_codes.UNREACHABLE
    assert outcome.err.endswith(" (unreachable)\n")
