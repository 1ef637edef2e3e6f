"""From the URL of a server to a broker. A transport's libraries are loaded only when its scheme is asked for."""

from typing import Any
from urllib.parse import SplitResult

from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.links import StreamLinks, TransportLinks
from stoker.brokers.remote.settings import RemoteSettings, read_url
from stoker.model.errors import InvalidRequest


def open_remote(parts: SplitResult, settings: Any) -> RemoteBroker:
    if settings is not None and not isinstance(settings, RemoteSettings):
        raise InvalidRequest(
            f"{parts.scheme}:// takes RemoteSettings, not {type(settings).__name__}, which is for embedded brokers"
        )
    address, settings = read_url(parts, settings)
    return RemoteBroker(links_for(parts.scheme), address, settings)


def links_for(scheme: str) -> TransportLinks:
    if scheme.startswith("http"):
        from stoker.brokers.remote.http import HttpLinks

        return HttpLinks()
    if scheme.startswith("grpc"):
        from stoker.brokers.remote.grpc import GrpcLinks

        return GrpcLinks()
    return StreamLinks()
