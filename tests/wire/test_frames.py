"""Cutting the stream: whatever comes, in whatever pieces, gives the same frames or one failure, and no exception."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from stoker.model.errors import LimitExceeded
from stoker.wire.frames import SHARED_BYTES, Frames, codec_of, framed

MOST = 1_000
BODIES = st.lists(st.binary(min_size=0, max_size=200), max_size=8)


def fed(stream: bytes, pieces: list[int], most: int = MOST) -> tuple[list[bytes], LimitExceeded | None, Frames]:
    """Hand a stream in, cut into pieces of these sizes, over and over."""
    frames, found, at = Frames(bytearray(SHARED_BYTES), most), [], 0
    turn = 0
    while at < len(stream) and frames.failure is None:
        space = frames.space()
        size = min(pieces[turn % len(pieces)], len(space), len(stream) - at)
        space[:size] = stream[at : at + size]
        space.release()
        found += frames.received(size)
        at += size
        turn += 1
    return found, frames.failure, frames


@given(BODIES, st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_frames_come_out_as_they_went_in_however_they_are_cut(bodies: list[bytes], pieces: list[int]):
    stream = b"".join(framed(body, "lengths") for body in bodies)
    found, failure, frames = fed(stream, pieces)
    assert found == bodies
    assert failure is None
    assert not frames.is_partial


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=50), max_size=8))
def test_lines_come_out_as_they_went_in_byte_by_byte(texts: list[str]):
    lines = [b"{" + text.encode() for text in texts]
    found, failure, _ = fed(b"".join(line + b"\n" for line in lines), [1])
    assert found == lines
    assert failure is None


@given(st.binary(max_size=3_000), st.lists(st.integers(1, 500), min_size=1, max_size=4))
def test_any_bytes_give_frames_or_one_failure(stream: bytes, pieces: list[int]):
    found, failure, frames = fed(stream, pieces)
    assert all(len(frame) <= MOST for frame in found)
    whole, failure_at_once, _ = fed(stream, [SHARED_BYTES])
    assert (found, failure is None) == (whole, failure_at_once is None)
    assert frames.framing in (None, "lines", "lengths")


def test_a_length_over_the_limit_is_refused_before_anything_of_the_frame_is_kept():
    found, failure, frames = fed(struct.pack(">I", 2**32 - 1) + b"x" * 100, [104])
    assert found == []
    assert failure is not None
    assert "message too large" in failure.message
    assert frames._own is None or len(frames._own) < 10_000


def test_a_lying_length_costs_no_more_memory_than_what_has_come():
    frames = Frames(bytearray(SHARED_BYTES), 64 * 1024 * 1024)
    frames.space()[:8] = struct.pack(">I", 64 * 1024 * 1024) + b"abcd"
    assert frames.received(8) == []
    assert frames._own is not None
    assert len(frames._own) <= SHARED_BYTES


def test_frames_before_a_bad_one_are_still_delivered():
    stream = framed(b"good", "lengths") + struct.pack(">I", MOST + 1)
    found, failure, _ = fed(stream, [len(stream)])
    assert found == [b"good"]
    assert failure is not None


def test_a_line_that_never_ends_is_refused():
    _, failure, _ = fed(b"{" + b"x" * (MOST + 10), [100])
    assert failure is not None


def test_F10_the_first_byte_tells_the_framing():
    """flashQ's paper prefixes JSON with a length and yet looks for `{`: here lines have none, and frames do."""
    assert fed(b'{"cmd":"PING"}\n', [100])[2].framing == "lines"
    assert fed(b"\n", [1])[2].framing == "lines"
    assert fed(framed(b"\x81", "lengths"), [100])[2].framing == "lengths"
    assert codec_of(b'{"cmd":"PING"}', "lengths") == "json"
    assert codec_of(b"\x81\xa3cmd", "lengths") == "msgpack"


def test_F10_lines_and_frames_have_the_same_limit():
    assert fed(b"{" + b"x" * MOST + b"\n", [5_000])[1] is not None
    assert fed(framed(b"x" * (MOST + 1), "lengths"), [5_000])[1] is not None
    assert fed(b"{" + b"x" * (MOST - 1) + b"\n", [5_000])[1] is None
    assert fed(framed(b"x" * MOST, "lengths"), [5_000])[1] is None
