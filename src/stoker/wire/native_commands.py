"""The commands of Stoker's own dialect, by the names that they have on the wire.

Transports, OpenAPI, gRPC, the reference pages and the tests of permissions and tenants are made from these rows, which
add names and replies to the table of commands.
"""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.command_table import TABLE, Permission, Resend
from stoker.wire.native import name_of, reply_of


class CommandName(msgspec.Struct, frozen=True):
    """One command of the native dialect."""

    name: str
    command: type[c.Command[Any]]
    reply: Any
    permission: Permission
    again: Resend
    keys: tuple[str, ...]
    """The fields of which any makes a second sending harmless."""


ROWS: dict[str, CommandName] = {
    name_of(kind): CommandName(name_of(kind), kind, reply_of(kind), row.permission, row.resend, row.keys)
    for kind, row in TABLE.items()
}
