"""Writing from threads of a program: Spark looks for Python sources only where a session is active."""

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

import stoker.spark
from stoker.client.sync import Client


def test_a_thread_that_has_registered_the_source_writes_with_it(spark: SparkSession, url: str, queue: Client):
    rows = spark.range(3)

    def write() -> None:
        stoker.spark.register(spark)
        rows.write.format("stoker").options(url=url, queue="mail").mode("append").save()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(write).result()
    assert queue.get_counts("mail").waiting == 3


def test_registering_leaves_the_session_active_that_is(spark: SparkSession):
    other = spark.newSession()
    before = SparkSession.getActiveSession()
    assert before is not None
    stoker.spark.register(other)
    after = SparkSession.getActiveSession()
    assert after is not None
    assert after._jsparkSession.equals(before._jsparkSession)


def test_a_session_asked_for_in_a_thread_is_the_one_that_is_there_with_its_settings(spark: SparkSession):
    setting = "spark.sql.parquet.compression.codec"
    before = str(spark.conf.get(setting))
    assert before != "snappy"
    spark.conf.set(setting, "snappy")
    try:
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(stoker.spark.session).result()
        assert found._jsparkSession.equals(spark._jsparkSession)
        assert spark.conf.get(setting) == "snappy"
    finally:
        spark.conf.set(setting, before)
