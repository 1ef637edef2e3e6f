"""An app and a server: the same over a connection."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from stoker import App, Context, JobFailed
from stoker.model.errors import LimitExceeded
from tests.client.serving import ServerThread


@pytest.fixture
def served() -> Iterator[App]:
    with ServerThread() as server, App(server.url) as app:
        yield app


def test_pushes_results_and_streams_go_over_a_connection(served: App):
    @served.job
    async def count(ctx: Context, up_to: int) -> int:
        for number in range(up_to):
            ctx.emit(number)
        return up_to

    @served.job(max_attempts=1)
    def explode() -> None:
        raise ValueError("boom")

    async def main() -> tuple[list[Any], int, Any]:
        good, bad = await count.push(3), await explode.push()
        worker = served.worker(registered=False)
        serving = asyncio.create_task(worker.serve())
        heard = [value async for value in good.stream()]
        result = await good.result(timeout=60)
        with pytest.raises(JobFailed, match=r"ValueError: boom") as caught:
            await bad.result(timeout=60)
        worker.stop()
        await serving
        return heard, result, caught.value.error_class

    assert asyncio.run(main()) == ([0, 1, 2], 3, "ValueError")


def test_each_event_loop_has_a_connection_of_its_own(served: App):
    @served.job
    def one(n: int) -> None: ...

    async def main(n: int) -> int:
        return (await one.push(n)).id

    assert len({asyncio.run(main(n)) for n in range(3)}) == 3
    assert served.client.get_counts().waiting == 3


def test_a_payload_that_is_too_large_is_refused_with_the_argument_s_name(served: App):
    @served.job
    def store(name: str, blob: bytes) -> None: ...

    async def main() -> None:
        await store.push("x", b"0" * 11_000_000)

    for push in (lambda: store.push_sync("x", b"0" * 11_000_000), lambda: asyncio.run(main())):
        with pytest.raises(LimitExceeded, match="blob takes 11,000,005"):
            push()
    assert store.push_sync("x", b"small").created
