"""`payloadSchema` is looked at before Spark sees it: the error is about what was written, and says what may be."""

from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stoker.model.errors import InvalidRequest
from stoker.spark.payload_schema import checked
from stoker.spark.payloads import structs_of


@pytest.mark.parametrize(
    "text",
    [
        "user_id bigint, mail string",
        "A INT NOT NULL COMMENT 'it''s, <odd>', b TIMESTAMP_NTZ",
        "a: int, b: array<map<string, struct<x: decimal(10, 2), `odd, <name`: date>>>",
        "`größe` double",
        " a\tbinary\n, b boolean ",
    ],
)
def test_what_spark_takes_is_taken_as_it_is(text: str):
    assert checked(text) == text.strip()


def test_a_whole_struct_is_its_fields():
    assert checked("struct<a:int,b:struct<c:string>>") == "a:int,b:struct<c:string>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a field is missing"),
        ("a int,", "a field is missing"),
        ("nonsense", "the field nonsense has no type"),
        ("a bigit", "the field a has the type 'bigit'"),
        ("a variant", "the field a has the type 'variant'"),
        ("a int, A string", "the field A is there twice"),
        ("a struct<b int, b int>", "the field b is there twice"),
        ("a int b int", "'b' stands where a comma"),
        ("a int>", "'>' stands where a comma"),
        ("a array", "array of the field a does not say of what"),
        ("a array<int", "does not end"),
        ("a map<string>", "needs a type for keys and one for values"),
        ("a map<date, int>", "keys of the map a are 'date'"),
        ("a int NOT b", "NOT without NULL"),
        ("'a' int", "needs backticks"),
        ("größe int", "needs backticks"),
        ("a decimal(39,2)", "at most 38 digits"),
        ("a decimal(3,4)", "at most 38 digits"),
        ("a decimal(x)", "at most 38 digits"),
        ("a string(3)", r"'\(' stands where a comma"),
        ("StructType([StructField('a', LongType(), True)])", r"the field StructType has the type '\('"),
    ],
)
def test_what_no_payload_has_is_refused_with_what_may_be(text: str, said: str):
    with pytest.raises(InvalidRequest, match=said) as raised:
        checked(text)
    assert "option payloadSchema" in str(raised.value)
    assert "array<...>" in str(raised.value)


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
def test_fields_with_names_of_any_letters_are_found(encode: Any):
    """Also in structs: msgspec passed over them, and they were null without a word."""
    kind = pa.struct(
        [("größe", pa.int64()), ("in", pa.struct([("日本", pa.string())])), ("m", pa.map_(pa.int64(), pa.int64()))]
    )
    values = {"größe": 3, "in": {"日本": "x"}, "m": {7: 8}}
    structs, errors = structs_of([encode(values), encode({"größe": "3"})], kind)
    assert structs.to_pylist() == [values | {"m": [(7, 8)]}, None]
    assert "$.größe" in errors[1].as_py()


def test_a_time_with_a_zone_is_not_one_without():
    kind = pa.struct([("at", pa.timestamp("us"))])
    structs, errors = structs_of([b'{"at": "2026-01-02T03:04:05"}', b'{"at": "2026-01-02T03:04:05+02:00"}'], kind)
    assert structs.to_pylist() == [{"at": datetime(2026, 1, 2, 3, 4, 5)}, None]
    assert "timezone" in errors[1].as_py()
