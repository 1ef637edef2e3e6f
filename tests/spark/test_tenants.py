"""Whose events are read: those of the tenants asked for, and never those of one that the token is not for."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import stoker
from stoker.brokers.remote.settings import RemoteSettings
from stoker.model.errors import StokerError
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import ANY_TENANT, create_token
from stoker.spark.options import read_options
from stoker.spark.source import BatchReader, ListReader
from tests.http.support import HttpServer
from tests.spark.test_source import table


class Shared:
    """A server with two tenants, each with jobs of its own, and tokens for one and for all."""

    def __init__(self, path: Path) -> None:
        self.tokens = {
            tenant: create_token(path / "tokens", name="of", tenant=tenant, now=time.time()).text
            for tenant in ("a", "b", ANY_TENANT)
        }
        self.server = HttpServer(auth=AuthSettings(tokens_file=str(path / "tokens")))
        self.url = f"http://127.0.0.1:{self.server.port}"
        for tenant, jobs in (("a", 3), ("b", 5)):
            with self.client(tenant) as client:
                client.push_batch("mail", [f"of {tenant}".encode()] * jobs)

    def client(self, tenant: str) -> Any:
        return stoker.connect(self.url, tenant=tenant, settings=RemoteSettings(token=self.tokens[tenant]))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("tenants"))
    yield made
    made.server.close()


def tenants_of(reader: BatchReader | ListReader) -> list[str]:
    """The tenant of every row, without Spark."""
    found = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return sorted(tenant for batch in found for tenant in batch["tenant"].to_pylist())


def events(shared: Shared, token: str, **options: str) -> BatchReader:
    return BatchReader(read_options({"url": shared.url, "token": shared.tokens[token]} | options), None)


def test_only_the_tenants_asked_for_are_read(shared: Shared):
    assert tenants_of(events(shared, ANY_TENANT, tenants="a,b,a")) == ["a"] * 3 + ["b"] * 5
    assert tenants_of(events(shared, ANY_TENANT, tenants="b")) == ["b"] * 5
    assert tenants_of(events(shared, ANY_TENANT, tenant="a")) == ["a"] * 3
    assert tenants_of(events(shared, ANY_TENANT)) == []


def test_tables_of_jobs_are_read_tenant_by_tenant(shared: Shared):
    options = {"url": shared.url, "token": shared.tokens[ANY_TENANT], "table": "jobs"}
    assert tenants_of(ListReader(read_options(options | {"tenants": "a,b"}), None)) == ["a"] * 3 + ["b"] * 5


@pytest.mark.parametrize("asked", [{"tenant": "b"}, {"tenants": "b"}, {"tenants": "a,b"}])
def test_a_token_of_one_tenant_never_reads_another(shared: Shared, asked: dict[str, str]):
    """Not even its own part of what was asked for: the refusal comes before any row."""
    with pytest.raises(StokerError, match="tenant"):
        events(shared, "a", **asked).partitions()
    listing = {"url": shared.url, "token": shared.tokens["a"], "table": "jobs"}
    with pytest.raises(StokerError, match="tenant"):
        ListReader(read_options(listing | asked), None).partitions()


def test_an_executor_that_is_handed_anothers_partition_is_refused(shared: Shared):
    """The server decides, not the driver."""
    owner, other = events(shared, "b", tenant="b"), events(shared, "a", tenant="a")
    (partition,) = owner.partitions()
    assert {tenant for batch in owner.read(partition) for tenant in batch["tenant"].to_pylist()} == {"b"}
    assert {tenant for batch in other.read(partition) for tenant in batch["tenant"].to_pylist()} <= {"a"}


def test_a_moment_is_found_for_several_tenants_at_once(tmp_path: Path):
    """Whatever lies between: what is read is what happened from then on, of each."""
    url = f"sqlite:///{tmp_path}/queue?shards=1"
    with stoker.connect(url, tenant="a") as a, stoker.connect(url, tenant="b") as b:
        pushed: list[tuple[int, str]] = []
        for number in range(60):
            client, tenant = ((a, "a"), (b, "b"))[number % 7 < 2 or 20 < number < 40]
            pushed.append((client.get_job(client.push("mail", b"x").id).pushed_at, tenant))
            time.sleep(0.001)  # moments that differ are what this is about
        for moment in (pushed[0][0] - 1, *(at for at, _ in pushed[::7]), pushed[-1][0] + 1):
            reader = BatchReader(read_options({"url": url, "tenants": "a,b", "startingTimestamp": str(moment)}), None)
            assert tenants_of(reader) == sorted(tenant for at, tenant in pushed if at >= moment)
            until = BatchReader(read_options({"url": url, "tenants": "a,b", "endingTimestamp": str(moment)}), None)
            assert tenants_of(until) == sorted(tenant for at, tenant in pushed if at < moment)


def test_spark_reads_of_a_server_as_its_token_says(spark: SparkSession, shared: Shared):
    rows = table(spark, shared.url, token=shared.tokens[ANY_TENANT], tenants="a,b", includePayload="true")
    assert {(row["tenant"], row["payload"]) for row in rows.collect()} == {("a", b"of a"), ("b", b"of b")}
    with pytest.raises(PySparkException, match="tenant"):
        table(spark, shared.url, token=shared.tokens["a"], tenants="a,b").count()
    with pytest.raises(PySparkException, match="token"):
        table(spark, shared.url, tenant="a").count()
