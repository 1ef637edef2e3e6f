"""The inbox: a table in the user's PostgreSQL, where a push is a row of the user's own transaction.

`insert` and `insert_sync` write a row over any common driver; `JobType.push_in` of an app uses them. A reader
(`reader.py`) pushes committed rows to any broker, each exactly once. Nothing here knows apps, servers or engines.
"""

from stoker.inbox.connections import AsyncInboxConnection, InboxConnection, insert, insert_sync
from stoker.inbox.rows import NewRow

__all__ = ["AsyncInboxConnection", "InboxConnection", "NewRow", "insert", "insert_sync"]
