"""A payload of a job as the settings let a page show it."""

from stoker.model.options import Codec
from stoker.server.dashboard import payloads
from stoker.server.dashboard.page import DashboardPage


def shown(page: DashboardPage, data: bytes, codec: Codec) -> payloads.Shown:
    settings = page.settings
    return payloads.show(data, codec, hidden=settings.payloads == "hidden", redact=settings.redact)
