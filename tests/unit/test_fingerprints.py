"""Errors that differ only in numbers, ids and quoted values have one fingerprint. Spark's column is compared in
`tests/spark/test_lake.py` on the same hostile errors.
"""

import pytest

from stoker.model.fingerprints import FINGERPRINT_CHARS, PATTERNS, fingerprint_of

HOSTILE: tuple[tuple[str | None, str | None], ...] = (
    (None, None),
    ("", ""),
    ("KeyError", ""),
    ("KeyError", None),
    ("", "no class 7"),
    (None, "no class 8"),
    ("E", "   "),
    ("", " \t "),
    ("E", "\u00a0no break\u2003em space\x85nel\x1cfile\x0bvt"),
    ("E", "arabic \u0663\u0664 digits, roman \u2163, fullwidth \uff11\uff12"),
    ("E", "é0xff 0xffé _0xff 0xff_ 0xFF. 0x 0xg"),
    ("E", "deadbeefdeadbeef edeadbeefdeadbeefé 0123456789abcdef_ DEADBEEFDEADBEEF0"),
    ("E", "6ba7b810-9dad-11d1-80b4-00c04fd430c8x 6ba7b8109dad-11d1"),
    ("E", "an odd ' quote and \" another, 'closed' \"closed\" 'open"),
    ("E", "'new\nline in quotes' then \n\n more\r\nlines"),
    ("E", r"$1 \1 ${name} \Q \E (?i) [a-z]+ ^$"),
    ("E", "\U0001f600" * 250),
    ("\U0001f600" * 199, "xy"),
    ("E", "e\u0301" * 150 + " 7"),
    ("E", "x" * 16_384),
    ("E", "f" * 16_384),
    ("E", "a" * 5_000 + "g"),
    ("E", "'" * 16_383),
    ("E", "7 " * 8_000),
    ("E", "nul \x00 and \ufffd and \ufeff and \u2028 and \u202e"),
    ("<script>alert(1)</script>", "<img src=x onerror=alert('1')>"),
)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("no route to 10.0.0.7 after 30 s", "no route to 10.1.2.3 after 5 s", "E: no route to #.#.#.# after # s"),
        ("'user-7'", "'user-8 and more'", "E: '…'"),
        ('no "a" here', 'no "b" here', 'E: no "…" here'),
        ("at 0x7f00ab", "at 0xDEAD", "E: at <hex>"),
        ("job 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "job 00000000-0000-0000-0000-000000000000", "E: job <uuid>"),
        ("a  b\nc", "a b c", "E: a b c"),
    ],
)
def test_errors_that_differ_in_values_have_one_fingerprint(first: str, second: str, expected: str):
    assert fingerprint_of("E", first) == fingerprint_of("E", second) == expected


@pytest.mark.parametrize(
    ("error_class", "error", "expected"),
    [("", "", ""), ("KeyError", "", "KeyError"), ("", "gone", "gone"), ("A", "x", "A: x"), ("B", "x", "B: x")],
)
def test_class_and_text_both_count(error_class: str, error: str, expected: str):
    assert fingerprint_of(error_class, error) == expected


@pytest.mark.parametrize(("error_class", "error"), HOSTILE)
def test_any_error_has_a_short_fingerprint_that_stays(error_class: str | None, error: str | None):
    found = fingerprint_of(error_class or "", error or "")
    assert len(found) <= FINGERPRINT_CHARS
    assert bool(found) or not (error_class or (error or "").strip())


def test_patterns_use_only_what_python_and_java_mean_alike():
    for pattern, stands in PATTERNS:
        assert not any(escape in pattern for escape in (r"\b", r"\d", r"\s", r"\w", "(?i", "(?P"))
        assert not set(stands) & set("$\\")
