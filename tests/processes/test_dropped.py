"""A delivery that crosses with the word that it is not wanted any more goes back at once, not when its lease ends."""

import asyncio
from typing import Any

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.model.errors import Unavailable
from stoker.runtime import process_requests
from stoker.runtime.process_messages import PeerAnswer, PeerAsk, PeerDrop, from_bytes, to_bytes
from stoker.runtime.process_router import ProcessRouter
from stoker.server.dispatcher import Dispatcher


class Sent:
    """The way to the other process: keeps what would be sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, process: int, data: bytes) -> bool:
        self.messages.append(from_bytes(data))
        return True


def test_a_delivery_that_is_dropped_on_its_way_out_goes_back() -> None:
    """The queue has served the pull, its reply waits for the end of the turn, and then the other process drops it."""

    async def main() -> None:
        broker, sent = LocalBroker(LocalSettings()), Sent()
        dispatcher = Dispatcher(broker)
        router = ProcessRouter(broker, sent, 0, 2, 2, submit=dispatcher.submit_here)
        router.is_ready.set()
        pull = c.Pull(("q",), 1, 60_000, lease_ms=600_000)
        router.receive(1, to_bytes(PeerAsk(7, "default", process_requests.Await(pull, ["q"]))))
        job = broker.execute("default", c.Push("q", b"job")).id
        async with asyncio.timeout(30):
            while dispatcher.is_waiting:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert not sent.messages
            router.receive(1, to_bytes(PeerDrop(7)))
            while broker.execute("default", c.GetJob(job)).state != "waiting":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (answer,) = sent.messages
        assert isinstance(answer, PeerAnswer)
        assert isinstance(answer.reply, Unavailable), "the other process was told once, and nothing more"
        await router.close()
        await dispatcher.close()
        broker.close()

    asyncio.run(main())
