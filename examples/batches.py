"""One call for many jobs: a handler that gets up to 64 texts at once, and answers for each of them.

    python examples/batches.py

Jobs are pushed one by one; the worker collects them until there are 64 or 20 ms have passed. Each job has its own
result, its own retries and its own end: one bad text does not affect the others.
"""

import asyncio

import stoker

app = stoker.App("memory://")


@app.job(queue="embed", batch=64, max_wait="20ms", max_attempts=1)
def embed(texts: list[str]) -> list[list[float] | Exception]:
    """As a model would: one call for the whole list."""
    print(f"called with {len(texts)} texts")
    return [vector(text) if text else ValueError("there is nothing to embed") for text in texts]


def vector(text: str) -> list[float]:
    return [float(len(text)), float(text.count(" "))]


async def main() -> None:
    jobs = await embed.push_batch([f"text number {number}" for number in range(200)])
    empty = await embed.push("")
    worker = app.worker()
    working = asyncio.create_task(worker.serve())
    vectors = await jobs.results(timeout=30)
    print(f"{len(vectors)} vectors, the last one is {vectors[-1]}")
    print(f"the empty text has {await empty.wait(timeout=30)}: {(await empty.view()).error}")
    worker.stop()
    await working
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
