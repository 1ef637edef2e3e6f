"""The server's log on standard error. No secret is ever passed to a logger."""

import logging

from stoker import logs
from stoker.server.config.tree import LogSettings


def set_up(settings: LogSettings) -> None:
    """Let the root logger write as the settings say. Called once, by the process that serves."""
    logs.set_up(settings.format, settings.level)
    logging.getLogger("uvicorn").setLevel("WARNING")
