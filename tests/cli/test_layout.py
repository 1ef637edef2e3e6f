"""Times, durations, sizes and tables, as people read them."""

import click
import pytest

from stoker.cli import formatting, progress
from stoker.cli.payloads import line_of, text_of, value_of
from stoker.model import wording


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (61_000, "1m 01s"),
        (3_599_000, "59m 59s"),
        (3_600_000, "1h 00m"),
        (90_000_000, "1d 01h"),
        (-2_000, "-2.0 s"),
    ],
)
def test_a_duration_has_the_two_units_that_matter(ms: int, shown: str):
    assert wording.lasting(ms) == shown


def test_a_time_is_told_on_the_clock_and_from_here():
    assert formatting.when(1_000_000, now=1_005_000).endswith("(5.0 s ago)")
    assert formatting.when(1_000_000, now=940_000).endswith("(in 1m 00s)")
    assert formatting.when(0) == "-"


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (1 << 40, "1.0 TiB")])
def test_sizes_are_binary(count: int, shown: str):
    assert wording.size(count) == shown


def test_columns_line_up_whatever_colours_they_have():
    table = formatting.columns(("A", "B"), [[formatting.state("failed"), "1"], ["x", "22"]], right=("B",))
    lines = [click.unstyle(line) for line in table.splitlines()]
    assert lines == ["A        B", "failed   1", "x       22"]


def test_a_long_last_column_is_set_in_lines_on_a_terminal_and_left_whole_for_programs(
    monkeypatch: pytest.MonkeyPatch,
):
    rows = [["1", "a number of words that is too long for what is left of the line"], ["2", "short"]]
    heads = ("ID", "ERROR")
    assert max(map(len, formatting.columns(heads, rows).splitlines())) > 40
    monkeypatch.setattr(formatting, "terminal_width", lambda: 40)
    assert [click.unstyle(line) for line in formatting.columns(heads, rows).splitlines()] == [
        "ID  ERROR",
        "1   a number of words that is too long",
        "    for what is left of the line",
        "2   short",
    ]


def test_where_too_little_is_left_beside_a_row_its_text_goes_below(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formatting, "terminal_width", lambda: 40)
    rows = [["a queue with a long name", "held back by its rate limit"], ["mail", "paused"]]
    assert [click.unstyle(line) for line in formatting.columns(("QUEUE", "HELD BACK"), rows).splitlines()] == [
        "QUEUE                     HELD BACK",
        "a queue with a long name",
        "      held back by its rate limit",
        "mail                      paused",
    ]


def test_a_row_that_is_too_wide_by_itself_and_has_nothing_at_its_end_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formatting, "terminal_width", lambda: 40)
    rows = [["x" * 44, click.style("", fg="yellow")]]
    assert click.unstyle(formatting.columns(("QUEUE", "HELD BACK"), rows)).splitlines()[-1] == "x" * 44
    assert formatting.hanging("y" * 44, " ") == "y" * 44


def test_nothing_that_comes_from_elsewhere_moves_the_cursor():
    """An escape code in an error or a payload is shown, not obeyed."""
    assert formatting.plain("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert line_of(b"\x1b[31m\xff", "bytes") == "\\x1b[31m\\xff"


@pytest.mark.parametrize(
    ("data", "codec", "value"),
    [
        (b'{"a":\n1.10}', "json", b'{"a":1.10}'),
        (b"\x81\xa1a\x01", "msgpack", b'{"a":1}'),
        (b"\xc1", "msgpack", b'{"$bytes":"wQ=="}'),
        (b"nonsense", "json", b'{"$bytes":"bm9uc2Vuc2U="}'),
        (b"\xd4\x05\x00", "msgpack", b'{"$ext":5,"$bytes":"AA=="}'),
        (b"\xff", "bytes", b'{"$bytes":"/w=="}'),
    ],
)
def test_every_payload_can_be_said_in_json(data: bytes, codec: str, value: bytes):
    import msgspec

    assert msgspec.json.encode(value_of(data, codec)) == value


def test_a_large_payload_is_cut():
    assert line_of(b"x" * (10 << 20), "bytes", 5) == "xxxx…"
    assert line_of("ä".encode() * 10, "bytes", 20) == "ä" * 10


def test_bytes_are_printed_as_they_are():
    assert text_of(b"\xff", "bytes") == b"\xff"


def test_progress_is_shown_where_somebody_looks_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with progress.counting("counting", 10) as moved:
        moved(10)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.counting("counting", 10) as moved:
        moved(10)
    with progress.moving("moving") as gone:
        gone(5 << 20, 10 << 20)
    said = capsys.readouterr()
    assert said.out == ""
    assert "10/10" in said.err
    assert "5.2/10.5 MB" in said.err
