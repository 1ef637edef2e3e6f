"""The function gets exactly the pushed arguments, and an error names the one that does not fit."""

import ipaddress
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, Union, cast
from uuid import UUID

import msgspec
import pydantic
import pytest

from stoker.app.arguments import Arguments
from stoker.app.signatures import signature_of
from stoker.model.options import Codec
from stoker.worker.errors import BadArguments, BadHandler
from tests.app.kinds import (
    Address,
    Basket,
    Colour,
    Company,
    Interval,
    Line,
    Login,
    Movie,
    Opaque,
    Order,
    Point,
    Size,
    Tagged,
    User,
)

UID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
BASKET = Basket(owner=UID, lines=[Line(sku="a", count=2)], remark="soon")


def arguments(function: Callable[..., Any]) -> Arguments:
    return Arguments(signature_of(function, function.__name__), function.__name__)


def taking(annotation: Any) -> Arguments:
    """Of a function with one parameter of this type."""

    def work(value): ...

    work.__annotations__ = {"value": annotation}
    return arguments(work)


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function returns when its arguments have been written and read."""
    how = arguments(function)
    payload = how.encode(args, kwargs)
    got_args, got_kwargs = how.decode(payload, "msgpack")
    return function(*got_args, **got_kwargs)


def received(how: Arguments, payload: Any, codec: Codec = "json") -> Any:
    """What somebody else's payload is read as."""
    data = msgspec.json.encode(payload) if codec == "json" else msgspec.msgpack.encode(payload)
    return how.decode(data, codec)


# --- types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 7),
        (int, 2**63),
        (float, 0.1),
        (float, math.inf),
        (bool, True),
        (str, "grüße 🔥"),
        (bytes, b"\x00\xff"),
        (None, None),
        (datetime, NOON),
        (datetime, datetime(2026, 3, 29, 12, 0)),
        (datetime, NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))),
        (date, date(2026, 2, 28)),
        (time, time(23, 59, 59, 999999)),
        (timedelta, timedelta(days=2, microseconds=3)),
        (UUID, UID),
        (Decimal, Decimal("12.50")),
        (Colour, Colour.BLUE),
        (Size, Size.LARGE),
        (Literal["a", "b"], "b"),
        (list[int], [1, 2]),
        (set[str], {"a", "b"}),
        (frozenset[int], frozenset({1})),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (dict[str, UUID], {"k": UID}),
        (dict[int, date], {1: date(2026, 1, 1)}),
        (User, User("Ann", [Address("High St", 1234)])),
        (Order, Order(UID, Decimal("0.10"), NOON)),
        (Basket, BASKET),
        (list[Line], [Line(sku="x", count=1)]),
        (Interval, Interval(1, 2)),
        (list[pydantic.PositiveInt], [1, 2]),
        (dict[str, Annotated[int, pydantic.Field(gt=0)] | None], {"a": 1, "b": None}),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/x")),
        (Point, Point(1, 2)),
        (Movie, {"title": "M", "year": 1931}),
        (pathlib.PurePosixPath, pathlib.PurePosixPath("/tmp/a")),
        (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1")),
        (User | None, None),
        (Optional[int], 3),  # noqa: UP045
        (Union[int, str], "x"),  # noqa: UP007
        (Annotated[int, msgspec.Meta(gt=0)], 5),
        (Any, {"a": [1, "b", None, 2.5, b"c"]}),
        (object, "whatever"),
        (Iterable[UUID], [UID]),
        (Sequence[int], [1]),
        (Mapping[str, int], {"a": 1}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_value_comes_back_as_its_type(annotation: Any, value: Any):
    how = taking(annotation)
    (got,), keywords = how.decode(how.encode((value,), {}), "msgpack")
    assert got == value
    assert type(got) is type(value) or isinstance(value, datetime)
    assert not keywords


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (UUID | str, UID),
        (UUID | str, "not one"),
        (str | UUID, UID),
        (datetime | str, "soon"),
        (datetime | date, date(2026, 1, 1)),
        (bytes | str, b"b"),
        (bytes | str, "b"),
        (User | Company, User("Ann", [])),
        (User | Company, Company("DE1")),
        (Company | User, User("Ann", [Address("x", 1)])),
        (User | Order | None, Order(UID, Decimal("1"))),
        (User | Order | None, None),
        (Line | int, Line(sku="x", count=1)),
        (Line | int, 4),
        (list[UUID | str], [UID, "x"]),
        (dict[str, User | Company], {"a": Company("DE1"), "b": User("B", [])}),
        (list[int] | set[str], [1]),
        (list[int] | set[str], {"a"}),
    ],
    ids=str,
)
def test_a_union_is_told_apart_by_what_was_written(annotation: Any, value: Any):
    how = taking(annotation)
    (got,), _ = how.decode(how.encode((value,), {}), "msgpack")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("annotation", "written", "value"),
    [
        (datetime, "2026-03-29T12:00:00Z", NOON),
        (UUID, str(UID), UID),
        (Decimal, "12.50", Decimal("12.50")),
        (bytes, "AP8=", b"\x00\xff"),
        (timedelta, "PT1.5S", timedelta(seconds=1.5)),
        (Colour, "red", Colour.RED),
        (set[int], [1, 1], {1}),
        (User, {"name": "Ann", "address": [{"street": "s", "zip": 1}]}, User("Ann", [Address("s", 1)])),
        (Basket, {"owner": str(UID), "lines": [{"sku": "a", "count": 2}], "remark": "soon"}, BASKET),
        (UUID | str, str(UID), UID),
        (Company | Address, {"zip": 1, "street": "s"}, Address("s", 1)),
        (Tagged | Company, {"vat": "x"}, Company("x")),
    ],
    ids=str,
)
def test_json_of_another_language_is_read_by_the_same_rule(annotation: Any, written: Any, value: Any):
    assert received(taking(annotation), {"value": written}) == ((value,), {})


def test_without_an_annotation_anything_goes():
    def work(a, b=None, *, c=3):
        return a, b, c

    assert called(work, {"x": [1]}, c=b"y") == ({"x": [1]}, None, b"y")


# --- the form of the payload -------------------------------------------------------------------------


def test_the_payload_is_a_map_by_the_names_of_what_was_given():
    def work(user_id: int, mail: str = "x", *, loud: bool = False): ...

    how = arguments(work)
    assert msgspec.msgpack.decode(how.encode((7,), {})) == {"user_id": 7}
    assert msgspec.msgpack.decode(how.encode((7, "y"), {"loud": True})) == {"user_id": 7, "mail": "y", "loud": True}


def test_a_function_without_parameters_has_an_empty_payload():
    def work():
        return "done"

    assert arguments(work).encode((), {}) == b"\x80"
    assert called(work) == "done"


def test_positional_only_parameters_are_an_array():
    def work(a, b=2, /):
        return a, b

    assert msgspec.msgpack.decode(arguments(work).encode((1,), {})) == [1]
    assert called(work, 1) == (1, 2)
    assert called(work, 1, 5) == (1, 5)


def test_any_number_of_arguments_is_an_array():
    def work(first: str, *numbers: int):
        return first, numbers

    assert msgspec.msgpack.decode(arguments(work).encode(("a", 1, 2), {})) == ["a", 1, 2]
    assert called(work, "a", 1, 2) == ("a", (1, 2))
    assert called(work, "a") == ("a", ())


def test_arguments_by_position_and_by_name_together_are_a_map():
    def work(a, /, *paths: str, mode: str = "r", **more: int):
        return a, paths, mode, more

    payload = arguments(work).encode((1, "x", "y"), {"mode": "w", "z": 3})
    assert msgspec.msgpack.decode(payload) == {"a": 1, "paths": ["x", "y"], "mode": "w", "z": 3}
    assert called(work, 1, "x", "y", mode="w", z=3) == (1, ("x", "y"), "w", {"z": 3})
    assert called(work, 1) == (1, (), "r", {})


def test_further_arguments_by_name_have_their_type():
    def work(a: int, **more: date):
        return a, more

    assert called(work, 1, b=date(2026, 1, 1)) == (1, {"b": date(2026, 1, 1)})
    with pytest.raises(BadArguments, match=r"b: expected `date`, got `int`"):
        called(work, 1, b=5)


def test_a_further_argument_cannot_take_the_name_of_a_parameter():
    def work(a, /, **more): ...

    with pytest.raises(BadArguments, match="'a' cannot be an extra keyword argument"):
        arguments(work).encode((1,), {"a": 2})


def test_the_default_is_the_function_s_own_object():
    shared: list[int] = []

    def work(a: list[int] = shared):
        return a

    assert called(work) is shared


def test_an_array_of_another_language_has_the_arguments_by_position():
    def work(a: int, b: str = "x", *, c: int = 1):
        return a, b, c

    how = arguments(work)
    for payload, expected in ([1], (1, "x", 1)), ([1, "y"], (1, "y", 1)):
        args, kwargs = received(how, payload)
        assert work(*args, **kwargs) == expected


@pytest.mark.parametrize("payload", [b"", b"null", b"{}", b"[]", b"  {}"])
def test_no_arguments_can_be_written_in_several_ways(payload: bytes):
    def work(a: int = 1): ...

    assert arguments(work).decode(payload, "json") == ((1,), {})


def test_bytes_of_no_known_form_are_for_who_asks_for_bytes():
    assert taking(bytes).decode(b"raw", "bytes") == ((b"raw",), {})
    assert taking(Any).decode(b"raw", "bytes") == ((b"raw",), {})
    with pytest.raises(BadArguments, match="raw bytes: push it with codec msgpack or json"):
        taking(int).decode(b"raw", "bytes")


# --- calls that do not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"x": 2}, "unexpected keyword argument 'x'"),
        ((1,), {"a": 2}, "multiple values for argument 'a'"),
    ],
)
def test_a_call_that_the_function_would_not_take_is_refused_as_python_does(args, kwargs, told):
    def work(a, b=2): ...

    with pytest.raises(TypeError, match=f"work: .*{told}"):
        arguments(work).encode(args, kwargs)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Opaque(), "value: a value of type `Opaque` cannot be encoded"),
        ({"a": [1, {"b": Opaque()}]}, "value['a'][1]['b']: a value of type `Opaque`"),
        (User("Ann", [Address("s", cast(Any, Opaque()))]), "value.address[0].zip: a value of type `Opaque`"),
        ([Point(1, cast(Any, Opaque()))], "value[0].y: a value of type `Opaque`"),
        ({"n": 2**64}, "value['n']: the number 18446744073709551616 does not fit into 64 bits"),
        (["a", "\ud800"], "value[1]: the text has invalid characters"),
        (lambda: 1, "value: a value of type `function` cannot be encoded"),
        ({Opaque(): 1}, "value: a key cannot be encoded"),
        (pydantic.SecretStr("x"), "value: a value of type `SecretStr` cannot be encoded"),
        ([Login(user="a", password=pydantic.SecretStr("x"))], "value[0].password: a value of type `SecretStr`"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_that_cannot_be_written_is_named_with_its_path(value: Any, told: str):
    with pytest.raises(BadArguments) as caught:
        taking(Any).encode((value,), {})
    assert f"work: {told}" in str(caught.value)


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadArguments, match="value contains itself"):
        taking(Any).encode((loop,), {})


@pytest.mark.parametrize(
    ("annotation", "payload", "told"),
    [
        (int, "seven", "value: expected `int`, got `str`"),
        (int, True, "value: expected `int`, got `bool`"),
        (User, {"name": "A", "address": [{"street": "s", "zip": 1}, {"street": "s", "zip": "x"}]},
         "value.address[1].zip: expected `int`, got `str`"),
        (User, {"address": []}, "value.name: it is missing"),
        (User, {"name": "A", "address": [{"street": "s"}]}, "value.address[0].zip: it is missing"),
        (dict[str, list[UUID]], {"k": ["x"]}, "value[...][0]: invalid UUID"),
        (Basket, {"owner": str(UID), "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 0}]},
         "value.lines[1].count: input should be greater than 0"),
        (list[Basket], [{"owner": "?", "lines": []}], "value[0].owner: input should be a valid UUID"),
        (Interval, {"low": 1, "high": 0}, "value.high: input should be greater than 0"),
        (list[pydantic.PositiveInt], [1, 0], "value[1]: input should be greater than 0"),
        (Annotated[str, pydantic.Field(pattern="^a")], "b", "value: string should match pattern '^a'"),
        (pydantic.HttpUrl, "nowhere", "value: input should be a valid URL"),
        (Colour, "green", "value: invalid enum value 'green'"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, "value: expected `int` >= 1"),
        (UUID | date, "neither", "value: expected `UUID | date`, got `str`"),
        (ipaddress.IPv4Address, "300.0.0.1", "value: expected `IPv4Address`"),
        (Opaque, {}, "value: expected `Opaque`, which cannot be made from a payload"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_value_of_the_wrong_type_is_named_with_its_path(annotation: Any, payload: Any, told: str, codec: Codec):
    with pytest.raises(BadArguments) as caught:
        received(taking(annotation), {"value": payload}, codec)
    assert f"work: {told}" in str(caught.value)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({}, "a: it is missing"),
        ({"a": 1, "z": 2}, "z: there is no such parameter; expected {a, b?, c?}"),
        ([], "a: it is missing"),
        ([1, 2, 3], "takes at most 2 arguments by position, got 3"),
        (["x"], "a: expected `int`, got `str`"),
        (5, "expected the arguments as a map {a, b?, c?}, or as an array"),
        ("text", "expected the arguments as a map"),
        (None, "a: it is missing"),
    ],
    ids=str,
)
def test_a_payload_of_another_language_that_does_not_fit_says_what_was_expected(payload: Any, told: str):
    def work(a: int, b: int = 2, *, c: int = 3): ...

    with pytest.raises(BadArguments) as caught:
        received(arguments(work), payload)
    assert told in str(caught.value)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_payload_that_is_torn_says_so(codec: Codec):
    with pytest.raises(BadArguments, match=f"the payload is not {codec}"):
        taking(int).decode(b'\x81\xa5"{', codec)


def test_an_argument_that_only_goes_by_name_cannot_come_in_an_array():
    def work(a, *, key): ...

    with pytest.raises(BadArguments, match="key: it is missing; it cannot be given by position"):
        received(arguments(work), [1])


def test_a_class_that_refuses_its_own_values_is_heard():
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self):
            if self.n % 2:
                raise ValueError(f"{self.n} is odd")

    with pytest.raises(BadArguments, match="value: 3 is odd"):
        received(taking(Even), {"value": {"n": 3}})


def test_a_type_that_cannot_be_read_is_refused_when_the_function_is_looked_at():
    class Wrong(msgspec.Struct):
        either: UUID | str

    with pytest.raises(BadHandler, match=r"work: the type `Wrong` of 'value' cannot be decoded: Type unions may not"):
        taking(Wrong)


def test_nothing_is_ever_pickled():
    assert "pickle" not in vars(sys.modules["stoker.app.converting"])
    with pytest.raises(BadArguments):
        taking(Any).encode((Opaque(),), {})
