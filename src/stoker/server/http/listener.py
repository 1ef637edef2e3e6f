"""The HTTP port: uvicorn's protocol on the server's own event loop, with our application behind it."""

import asyncio

from uvicorn.config import Config

from stoker.model.errors import StokerError
from stoker.server.acceptor import Acceptor
from stoker.server.binding import address_text
from stoker.server.config import tls_context
from stoker.server.http.app import make_app
from stoker.server.http.protocol import HttpConnections
from stoker.server.http.websocket import WebSocketConnection
from stoker.server.meter import HISTORY_S
from stoker.server.report import all_reports
from stoker.server.service import Service

WS_MESSAGE_BYTES_MAX = 64 * 1024
"""The largest message from a reader of events, which has little to say."""


class HttpPort:
    """REST and everything else over HTTP."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._acceptor: Acceptor | None = None
        self._door: HttpConnections | None = None
        self._historian: asyncio.Task[None] | None = None

    async def start(self) -> str:
        service, config = self._service, self._service.config
        app = make_app(service)
        uvicorn = Config(
            app,
            http="httptools",
            ws=WebSocketConnection,
            ws_max_size=WS_MESSAGE_BYTES_MAX,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=max(1, round(config.server.http_keep_alive_s)),
        )
        uvicorn.load()
        self._door = app.door = HttpConnections(uvicorn, config.server, service.connections)
        tls = tls_context(config.http.tls)
        bound = service.bound.take("http")
        self._acceptor = Acceptor(service.connections, "http", self._door.connect, tls, config.server.handshake_s)
        self._acceptor.start(bound)
        if service.dispatcher.broker.counters is not None:
            self._historian = asyncio.get_running_loop().create_task(self._note())
        return f"http   {'https' if tls else 'http'}://{address_text(bound[0])}"

    async def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop_accepting()

    async def _note(self) -> None:
        """Record the history of the numbers."""
        while True:
            try:
                reports = await all_reports(self._service)
                shards = [stats for report in reports for stats in report.shards or ()]
                self._service.meter.note(shards, sum(sum(report.connections.values()) for report in reports))
            except StokerError:
                pass  # a process is missing: no point is better than a wrong one
            await asyncio.sleep(HISTORY_S)

    async def stop(self) -> None:
        await self.stop_accepting()
        if self._historian is not None:
            self._historian.cancel()
        if self._acceptor is not None:
            await self._acceptor.close()
        if self._door is not None:
            await self._door.close()
