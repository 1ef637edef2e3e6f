"""Posts events to URLs that tenants have registered: signed, retried, at least once, and never into private networks.

The log is the outbox. Registrations and positions are key-value entries of the system's own tenant, so both survive
restarts and are part of backups. The rest of the server uses `Webhooks`.
"""

from stoker.server.webhooks.hooks import HookRequest, HookView
from stoker.server.webhooks.registry import Webhooks

__all__ = ["HookRequest", "HookView", "Webhooks"]
