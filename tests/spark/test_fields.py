"""`payloadSchema` is looked at before Spark sees it: the error is about what was written, and says what may be."""

import pytest

from stoker.model.errors import InvalidRequest
from stoker.spark.fields import checked


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
        ("'a' int", "is no name of a field"),
        ("StructType([StructField('a', LongType(), True)])", r"the field StructType has the type '\('"),
    ],
)
def test_what_no_payload_has_is_refused_with_what_may_be(text: str, said: str):
    with pytest.raises(InvalidRequest, match=said) as raised:
        checked(text)
    assert "option payloadSchema" in str(raised.value)
    assert "array<...>" in str(raised.value)
