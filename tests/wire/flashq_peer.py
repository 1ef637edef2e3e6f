"""A client and a server of flashQ's dialect without the sockets between them."""

from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model.errors import StokerError
from stoker.model.steps import carry_out
from stoker.wire.flashq import RequestContext, decode, failure, row_of
from stoker.wire.flashq.decoding import Codec

MODULES: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}


class Peer:
    """Sends what a client would, over a broker in memory; gets what the client would read."""

    def __init__(
        self, codec: Codec = "json", *, broker: LocalBroker | None = None, hello: bool = False, ranges: bool = False
    ) -> None:
        self.codec = codec
        self.broker = broker or LocalBroker(LocalSettings(shards=2))
        self.hello, self.ranges = hello, ranges

    def beside(self, codec: Codec, **how: Any) -> "Peer":
        """Another client of the same broker."""
        return Peer(codec, broker=self.broker, **how)

    def __call__(self, cmd: str, **fields: Any) -> dict[str, Any]:
        return self.send(cmd, MODULES[self.codec].encode({"cmd": cmd, "reqId": "r1", **fields}))

    def send(self, cmd: str, frame: bytes) -> dict[str, Any]:
        context = RequestContext(self.codec, self.hello, self.ranges, now=self.broker.now())
        try:
            plan = row_of(cmd).plan(decode(frame, self.codec, cmd), context)
            answer = carry_out(plan, lambda command: self.broker.execute("tenant", command))
        except StokerError as error:
            answer = failure(error)
        module = MODULES[self.codec]
        encoded = module.encode(answer)
        assert self.codec != "json" or b"\n" not in encoded
        read: dict[str, Any] = module.decode(encoded)
        assert read["ok"] is read["success"] or "failed" in read
        return read
