"""A token for one tenant, which the read does not name: the rows are the tenant's, and have its name."""

from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo

from stoker.spark.filters import narrowed
from stoker.spark.options import read_options
from stoker.spark.source import BatchReader, ListReader
from tests.spark.test_tenants import Shared, shared, tenants_of

__all__ = ["shared"]


@pytest.mark.parametrize("table", ["events", "jobs"])
def test_rows_of_a_tokens_own_tenant_say_whose_they_are(shared: Shared, table: str):
    options = read_options({"url": shared.url, "token": shared.tokens["a"], "table": table})
    make = BatchReader if table == "events" else ListReader
    assert tenants_of(make(options, None)) == ["a"] * 3
    for name in ("a", "b"):  # Spark throws away what does not fit; what does must come
        asked, _ = narrowed(options, [EqualTo(("tenant",), name)])
        assert tenants_of(make(asked, None)) == ["a"] * 3


def test_a_tenant_that_was_named_is_not_looked_for_under_another_name(shared: Shared, tmp_path: Path):
    named = read_options({"url": shared.url, "token": shared.tokens["a"], "tenant": "a"})
    assert narrowed(named, [EqualTo(("tenant",), "b")])[0].tenants == ()
    embedded = read_options({"url": f"sqlite:///{tmp_path}/queue"})
    assert narrowed(embedded, [EqualTo(("tenant",), "b")])[0].tenants == ()
