"""Texts as jobs, vectors as results, computed by Spark's executors.

    python examples/spark_embeddings.py

The model is a small stand-in: trigrams of a text are hashed into buckets, and a fixed random matrix projects the
buckets to 64 numbers. Texts that share words come out near each other, and a call with many texts costs hardly more
than one with few, which is why a fleet passes them in batches. Put your own model into `embed`.
"""

import tempfile
import zlib

import numpy as np
from pyspark.sql import SparkSession

import stoker
import stoker.spark

BUCKETS, DIMENSIONS = 4096, 64
TEXTS = ["a cat sat on the mat", "the cat is on the mat", "stock prices fell on monday", "prices of stocks fell", ""]


def projection() -> np.ndarray:
    """The weights. They take a millisecond; load a real model once per process, in a module of your own."""
    return np.random.default_rng(7).standard_normal((BUCKETS, DIMENSIONS)).astype("<f4")


def embed(texts: list[bytes]) -> list[bytes | Exception]:
    """A vector of 64 floats for each text, or the exception."""
    counts = np.zeros((len(texts), BUCKETS), "<f4")
    for row, text in enumerate(texts):
        for start in range(len(text) - 2):
            counts[row, zlib.crc32(text[start : start + 3]) % BUCKETS] += 1
    vectors = counts @ projection()
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths == 0, 1, lengths)
    return [
        vector.tobytes() if length else ValueError("there is nothing to embed")
        for vector, length in zip(vectors, lengths[:, 0], strict=True)
    ]


def vectors_of(spark: SparkSession, url: str) -> dict[int, np.ndarray]:
    """The results as a table, as a later reader would read them."""
    results = spark.read.format("stoker").option("url", url).load("results")
    return {row["job"]: np.frombuffer(row["result"], "<f4") for row in results.select("job", "result").collect()}


def main() -> None:
    spark = stoker.spark.session()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/queue"
        with stoker.connect(url) as queue:
            ids = queue.push_batch("embed", [text.encode() for text in TEXTS], max_attempts=1).ids
            done = stoker.spark.process(spark, "embed", embed, url=url)
            print(f"{done.completed} vectors, {done.failed} text without one: {done.errors[0]}")
            vectors = vectors_of(spark, url)
            first = vectors[ids[0]]
            for job, text in zip(ids[1:4], TEXTS[1:4], strict=True):
                print(f"{TEXTS[0]!r} and {text!r}: {float(first @ vectors[job]):.2f}")


if __name__ == "__main__":
    main()
