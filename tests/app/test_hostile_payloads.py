"""Whatever stands in a payload: it is read, or it is refused with `BadArguments`, and nothing else happens."""

import functools
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.app.arguments import Arguments
from stoker.app.signatures import signature_of
from stoker.model.options import CODECS, Codec
from stoker.worker.errors import BadArguments
from tests.app.kinds import Basket, Company, Order, Point, User
from tests.soaking import drawing


def nothing() -> None: ...


def plain(a: int, b: str = "x", *, c: list[UUID] | None = None) -> None: ...


def positional(a: int, b: date = date.min, /) -> None: ...


def many(a: int, *rest: datetime, key: bytes = b"", **others: User) -> None: ...


def classes(
    order: Order, basket: Basket | None = None, who: User | Company | UUID | str = "", at: Point | None = None
) -> None: ...


def anything(value: Any) -> None: ...


FUNCTIONS: list[Callable[..., Any]] = [nothing, plain, positional, many, classes]

NAMES = st.sampled_from("a b c rest key order basket who at name address id total owner lines vat x y".split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(), inner, max_size=4),
    max_leaves=12,
)


@functools.cache
def arguments(function: Callable[..., Any]) -> Arguments:
    return Arguments(signature_of(function, function.__name__), function.__name__)


def read(function: Callable[..., Any], payload: bytes, codec: Codec) -> None:
    how = arguments(function)
    for decode in (how.decode, how.read):
        try:
            args, kwargs = decode(payload, codec)
        except BadArguments:
            continue
        function(*args, **kwargs)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("codec", CODECS)
@given(payload=st.binary(max_size=64))
@example(payload=b"")
@example(payload=b"\xc1")
@example(payload=b"\xff\xfe")
@example(payload=b"\x91" * 100_000)
@example(payload=b"[" * 100_000)
@example(payload=b'{"a":' * 100_000)
@example(payload=b"\x81\xa1a" * 100_000)
@drawing(25)
def test_bytes_of_any_kind(function: Callable[..., Any], codec: Codec, payload: bytes):
    read(function, payload, codec)


@pytest.mark.parametrize("function", FUNCTIONS)
@given(value=VALUES)
@drawing(25)
def test_values_of_any_kind(function: Callable[..., Any], value: Any):
    read(function, msgspec.msgpack.encode(value), "msgpack")
    read(function, msgspec.json.encode(value), "json")


@given(value=VALUES)
@drawing(50)
def test_whatever_can_be_written_comes_back(value: Any):
    how = arguments(anything)
    assert how.decode(how.encode((value,), {}), "msgpack") == ((value,), {})
