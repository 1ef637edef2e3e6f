"""S12: a receiver can tell whether a request comes from its server, is unaltered, and is new."""

import hashlib
import hmac

import pytest

from stoker import webhooks

SECRET = "canary-secret-of-a-webhook"
BODY = b'{"id":"wh_1","event":"completed"}'
NOW = 1_800_000_000
HEADER = webhooks.sign(SECRET, BODY, NOW)


def test_what_was_signed_is_accepted():
    assert webhooks.verify(SECRET, HEADER, BODY, now=NOW)


def test_the_signature_is_the_documented_one():
    digest = hmac.new(SECRET.encode(), b"%d." % NOW + BODY, hashlib.sha256).hexdigest()
    assert f"t={NOW},v1={digest}" == HEADER
    assert webhooks.sign_flashq(SECRET, BODY) == hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("place", range(len(BODY)))
def test_an_altered_body_is_refused(place: int):
    altered = BODY[:place] + bytes([BODY[place] ^ 1]) + BODY[place + 1 :]
    assert not webhooks.verify(SECRET, HEADER, altered, now=NOW)


@pytest.mark.parametrize("body", [b"", BODY[:-1], BODY + b" ", b"." + BODY])
def test_a_longer_or_shorter_body_is_refused(body: bytes):
    assert not webhooks.verify(SECRET, HEADER, body, now=NOW)


def test_a_replayed_request_is_refused_when_it_is_old():
    assert webhooks.verify(SECRET, HEADER, BODY, 300, NOW + 300)
    assert not webhooks.verify(SECRET, HEADER, BODY, 300, NOW + 301)
    assert not webhooks.verify(SECRET, HEADER, BODY, 300, NOW - 301)


def test_a_replay_with_a_fresh_timestamp_is_refused():
    fresh = HEADER.replace(f"t={NOW}", f"t={NOW + 1_000}")
    assert not webhooks.verify(SECRET, fresh, BODY, now=NOW + 1_000)


def test_the_time_cannot_be_moved_into_the_body():
    """`12.3body` could be signed as 12 and `3body`, or as 1 and `2.3body`, were the time not held to digits."""
    header = webhooks.sign(SECRET, b"5.rest", 12)
    signature = header.partition("v1=")[2]
    assert not webhooks.verify(SECRET, f"t=12.5,v1={signature}", b"rest", now=12)
    assert not webhooks.verify(SECRET, f"t=1,v1={signature}", b"2.5.rest", now=1)


@pytest.mark.parametrize("secret", ["", "another-secret-altogether", SECRET + "x", SECRET[:-1], SECRET.upper()])
def test_another_secret_is_refused(secret: str):
    assert not webhooks.verify(secret, HEADER, BODY, now=NOW)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "t=,v1=",
        f"t={NOW}",
        HEADER.partition(",")[2],
        HEADER.replace("v1=", "v0="),
        HEADER.replace("t=", "t=-"),
        HEADER.replace("t=", "t= "),
        HEADER.replace("t=", "t=+"),
        HEADER.replace("t=", "t=٣"),
        f"t={NOW},t={NOW + 1},{HEADER.partition(',')[2]}",
        HEADER.upper(),
        HEADER[:-1],
        HEADER + "0",
        HEADER.replace("v1=", "v1=\u00e9"),
        HEADER.replace("v1=", "v1=\ud800"),
        "," * 10_000,
        f"t={'9' * 5_000},v1=00",
    ],
)
def test_a_malformed_header_is_refused_and_raises_nothing(header: str | None):
    assert webhooks.verify(SECRET, header, BODY, now=NOW) is False


def test_one_good_signature_of_several_is_enough():
    """While a secret is being changed, a sender may sign with both."""
    other = webhooks.sign("another-secret-altogether", BODY, NOW).partition(",")[2]
    assert webhooks.verify(SECRET, f"t={NOW},{other},{HEADER.partition(',')[2]}", BODY, now=NOW)
    assert not webhooks.verify(SECRET, f"t={NOW},{other},{other}", BODY, now=NOW)


def test_every_comparison_takes_the_same_time(monkeypatch: pytest.MonkeyPatch):
    """By construction: each signature is compared by `hmac.compare_digest`, and none is skipped."""
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def watch(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr("stoker.webhooks.hmac.compare_digest", watch)
    good = HEADER.partition("v1=")[2]
    webhooks.verify(SECRET, f"t={NOW},v1={good},v1={'0' * 64}", BODY, now=NOW + 10_000)
    assert [other for _, other in compared] == [good.encode(), b"0" * 64]
