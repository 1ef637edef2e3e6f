"""`stoker pipeline`: what cannot be meant is said at once, before Spark starts and before anything is made."""

from pathlib import Path

import pytest

import stoker as package
from stoker.cli import exits
from tests.cli.conftest import Stoker

LAKE = "lake-that-nobody-made"
REFUSED = [
    (["run", "--lake", LAKE, "--url", "tcp://127.0.0.1:1"], "no server answers at tcp://127.0.0.1:1"),
    (["run", "--lake", LAKE], "there is no data directory"),
    (["run", "--lake", LAKE, "--url", "memory://"], "use a directory or a server"),
    (["run", "--lake", LAKE, "--most", "0"], "--most"),
    (["stream", "--lake", LAKE, "--every", "often"], "--every"),
    (["stream", "--lake", LAKE, "--url", "sqlite:///nowhere"], "there is no data directory"),
    (["backfill", "--lake", LAKE, "--url", "sqlite:///queue", "--from", "yesterday"], "--from"),
    (["replay", "--where", "true", "--url", "sqlite:///queue", "--set", "custom_id = 1"], "cannot be set"),
    (["replay", "--where", "true", "--url", "sqlite:///queue", "--ticket", "no spaces"], "ticket"),
    (["report", "--lake", LAKE, "--objective", "soon"], "--objective"),
    (["report", "--lake", LAKE, "--objective-share", "1"], "--objective-share"),
    (["report", "--lake", LAKE, "--price-hour", "-1"], "--price-hour"),
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
    assert done.code not in (exits.OK, exits.FAILED)
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / LAKE).exists()
    assert not (tmp_path / "nowhere").exists()
