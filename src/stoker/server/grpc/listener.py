"""The gRPC listener: one server of grpc.aio on the event loop of all the others.

It holds what gRPC itself must be told: where to listen, with which keys, and what one client may take. The service
stands in a file of its own.
"""

import os
from pathlib import Path
from typing import Any

from stoker.model.errors import InvalidRequest
from stoker.server.config import ListenAddress, tls_context
from stoker.server.config.tree import Tls
from stoker.server.service import Service

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what matters is raised; the rest would go to our standard error

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from stoker.proto import stoker_pb2
from stoker.server.grpc.credit import Accounts
from stoker.server.grpc.handlers import offer
from stoker.server.grpc.queue import QueueService

GRACE_S = 0.5
"""For answers that are under way when the listener closes; what waits for something to happen is cut off then."""
PING_MS_MIN = 10_000
"""The shortest time between two pings of a client; one that pings faster is disconnected."""
PING_ANSWER_MS = 20_000
SERVING = health_pb2.HealthCheckResponse.SERVING
OURS = stoker_pb2.DESCRIPTOR.services_by_name["Queue"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]


class GrpcPort:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._health: Any = health.HealthServicer()
        self._server: Any = None

    async def start(self) -> str:
        config = self._service.config
        address = config.grpc.address
        assert address is not None
        server = self._server = grpc.aio.server(options=self._options())
        offer(server, self._service, OURS, QueueService(self._service, Accounts(config.server.streams_max)))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        services = (OURS.full_name, HEALTH.full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(services, server)
        port = self._bind(server, address, config.grpc.tls)
        await self._health.set(OURS.full_name, SERVING)
        await server.start()
        return f"grpc   {written(address.host, port)}"

    async def stop_accepting(self) -> None:
        """gRPC cannot stop accepting alone, so health checks are answered with "not serving" from now on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        await self.stop_accepting()
        if self._server is not None:
            await self._server.stop(GRACE_S)
            self._server = None

    def _bind(self, server: Any, address: ListenAddress, tls: Tls) -> int:
        where = written(address.host, address.port)
        try:
            if tls.is_on:
                return int(server.add_secure_port(where, credentials(tls)))
            return int(server.add_insecure_port(where))
        except RuntimeError:
            raise InvalidRequest(
                f"cannot listen at {where} for gRPC: choose another address, or end what is there"
            ) from None

    def _options(self) -> tuple[tuple[str, int], ...]:
        config, limits = self._service.config, self._service.config.server
        options = {
            "grpc.max_allowed_incoming_connections": self._service.grpc_connections_max,
            "grpc.max_receive_message_length": limits.frame_bytes_max,
            "grpc.max_send_message_length": -1,  # what was pulled must be sent: it is leased already
            "grpc.max_concurrent_streams": limits.requests_in_flight_max,
            "grpc.max_metadata_size": limits.http_header_bytes_max,
            "grpc.absolute_max_metadata_size": limits.http_header_bytes_max,
            "grpc.so_reuseport": int(config.processes > 1),  # else a second server would quietly take half of all calls
            "grpc.server_handshake_timeout_ms": milliseconds(limits.handshake_s),
            "grpc.keepalive_permit_without_calls": 1,
            "grpc.keepalive_timeout_ms": PING_ANSWER_MS,
            "grpc.http2.min_ping_interval_without_data_ms": PING_MS_MIN,
        }
        if limits.keepalive_s:
            options["grpc.keepalive_time_ms"] = milliseconds(limits.keepalive_s)
        if limits.idle_s:
            options["grpc.max_connection_idle_ms"] = milliseconds(limits.idle_s)
        return tuple(options.items())


def credentials(tls: Tls) -> Any:
    tls_context(tls)  # says which file is bad, and why; gRPC would not
    pair = (Path(tls.key).read_bytes(), Path(tls.cert).read_bytes())
    authority = Path(tls.client_ca).read_bytes() if tls.client_ca else None
    return grpc.ssl_server_credentials((pair,), authority, require_client_auth=authority is not None)


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
