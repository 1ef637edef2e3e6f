"""`stoker pipeline`: invalid options are refused at once, before Spark starts and before anything is made."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

import stoker as package
from stoker.cli import exit_codes
from stoker.cli.spark_session import in_plain_words, quietly_started
from stoker.model.errors import StokerError
from stoker.spark import starting
from tests.cli.conftest import Stoker

LAKE = "lake-that-nobody-made"
REFUSED = [
    (["run", "--lake", LAKE, "--url", "tcp://127.0.0.1:1"], "no server answers at tcp://127.0.0.1:1"),
    (["run", "--lake", LAKE], "there is no data directory"),
    (["run", "--lake", LAKE, "--url", "memory://"], "use a data directory or a server"),
    (["run", "--lake", LAKE, "--most", "0"], "--most"),
    (["run", "--lake", LAKE, "--url", "sqlite:///queue", "--payload-schema", "id bigiint"], "--payload-schema = 'id b"),
    (["run", "--lake", LAKE, "--url", "sqlite:///queue", "--payload-schema", "id"], "`user_id bigint, mail string`"),
    (["run", "--lake", LAKE, "--url", "sqlite:///queue", "--tenants", "a b"], "--tenants"),
    (["stream", "--lake", LAKE, "--every", "often"], "--every"),
    (["stream", "--lake", LAKE, "--every", "0"], "at least 100 ms"),
    (["stream", "--lake", LAKE, "--url", "sqlite:///nowhere"], "there is no data directory"),
    (["backfill", "--lake", LAKE, "--url", "sqlite:///queue", "--from", "yesterday"], "--from"),
    (["replay", "--where", "true", "--url", "sqlite:///queue", "--set", "custom_id = 1"], "cannot be set"),
    (["replay", "--where", "true", "--url", "sqlite:///queue", "--ticket", "no spaces"], "ticket"),
    (["replay", "--where", "true", "--url", "sqlite:///queue", "--to", ""], "option --to: '' is not a valid name"),
    (
        ["replay", "--where", "true", "--url", "sqlite:///queue", "--queue", "a b"],
        "option --queue: 'a b' is not a valid",
    ),
    (["replay", "--where", "true", "--url", "sqlite:///queue", "--schema", "id bigiint"], "'bigiint'"),
    (["replay", "--where", "true", "--url", "tcp://127.0.0.1:1"], "no server answers at tcp://127.0.0.1:1"),
    (["report", "--lake", LAKE, "--objective", "soon"], "--objective"),
    (["report", "--lake", LAKE, "--objective-share", "1"], "--objective-share"),
    (["report", "--lake", LAKE, "--objective-share", "nan"], "--objective-share"),
    (["report", "--lake", LAKE, "--objective", "0"], "at least 1 ms"),
    (["report", "--lake", LAKE, "--price-hour", "-1"], "--price-hour"),
    (["report", "--lake", LAKE, "--price-gb", "inf"], "--price-gb"),
    (["report", "--lake", LAKE, "--out", "nowhere/report.html"], "there is no directory"),
    (["report", "--lake", LAKE, "--png", "nowhere/report.png"], "there is no directory"),
]


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_cannot_be_meant_is_refused_at_once(
    words: list[str], says: str, stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package.connect(f"sqlite:///{tmp_path}/queue").close()
    monkeypatch.setattr("stoker.spark.starting.session", None)  # calling it would be another error
    done = stoker("pipeline", *words)
    assert done.code not in (exit_codes.OK, exit_codes.FAILED)
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / LAKE).exists()
    assert not (tmp_path / "nowhere").exists()


def test_what_is_said_wrongly_is_wrong_usage(stoker: Stoker):
    package.connect("sqlite:///queue").close()
    for words in (["run", "--payload-schema", "id"], ["backfill", "--from", "999999999d"]):
        assert stoker("pipeline", *words, "--url", "sqlite:///queue", "--lake", LAKE).code == exit_codes.USAGE


def test_an_error_inside_spark_is_told_in_its_own_words():
    stacks = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "source.py", line 243, in latestOffset
stoker.spark.logs.OffsetsOutOfRange: records 1 to 5 of shard 0 are not kept any more
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ==="""
    with pytest.raises(StokerError, match=r"^records 1 to 5 of shard 0 are not kept any more$"), in_plain_words():
        raise PySparkException(stacks)
    plan = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` is not there. SQLSTATE: 42703; line 1 pos 0;\n'Filter"
    with pytest.raises(StokerError, match=r"^Spark cannot do this: A column `x` is not there\.$"), in_plain_words():
        raise PySparkException(plan)


def test_an_error_of_pythons_inside_spark_is_told_by_its_last_line():
    stack = """[PYTHON_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "worker.py", line 21, in <module>
ModuleNotFoundError: No module named 'stoker'
 SQLSTATE: 38000"""
    said = r"^Spark cannot do this: Failed to create Python data source instance: ModuleNotFoundError: No module named"
    with pytest.raises(StokerError, match=said), in_plain_words():
        raise PySparkException(stack)


def test_spark_keeps_no_tables_where_a_command_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A name of a table in the SQL of a replay is looked up in a database, for which Spark makes a directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    session = Mock()
    monkeypatch.setattr(starting, "session", session)
    quietly_started(None)
    warehouse = session.call_args.kwargs["settings"]["spark.sql.warehouse.dir"]
    assert warehouse.startswith((tmp_path / "cache").as_uri())
