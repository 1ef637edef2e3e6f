"""A delivery that crosses with the word that it is not wanted any more goes back at once, not when its lease ends."""

import asyncio
from typing import Any

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.model.errors import Unavailable
from stoker.runtime import parts
from stoker.runtime.peers import Answer, Ask, Drop, from_bytes, to_bytes
from stoker.runtime.spread import Spread
from stoker.server.desk import Desk


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
        desk = Desk(broker)
        spread = Spread(broker, sent, 0, 2, 2, submit=desk.submit_here)
        spread.is_ready.set()
        pull = c.Pull(("q",), 1, 60_000, lease_ms=600_000)
        spread.receive(1, to_bytes(Ask(7, "default", parts.Await(pull, ["q"]))))
        job = broker.execute("default", c.Push("q", b"job")).id
        async with asyncio.timeout(30):
            while desk.is_waiting:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert not sent.messages
            spread.receive(1, to_bytes(Drop(7)))
            while broker.execute("default", c.GetJob(job)).state != "waiting":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (answer,) = sent.messages
        assert isinstance(answer, Answer)
        assert isinstance(answer.reply, Unavailable), "the other process was told once, and nothing more"
        await spread.close()
        await desk.close()
        broker.close()

    asyncio.run(main())
