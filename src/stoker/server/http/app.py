"""The parts of the HTTP application, put together."""

from starlette.applications import Starlette

from stoker.server.http.front import Front
from stoker.server.service import Service


def make_app(service: Service) -> Front:
    return Front(service, Starlette())
