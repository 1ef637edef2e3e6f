"""A row of the inbox as a reader finds it, and what may be wrong with it.

It may come from any program in any language, so nothing in it is trusted.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from stoker.inbox.rows import name_problem
from stoker.model.errors import InvalidRequest
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.wire.unknown_fields import NameCheck

_check_names = NameCheck(Options, msgspec.json.Decoder)
_decode = msgspec.json.Decoder(Options).decode


class InboxRow(msgspec.Struct, gc=False):
    """A committed row, as a reader finds it."""

    id: int
    tenant: str
    queue: str
    payload: bytes
    options_text: str
    options: Options = DEFAULT_OPTIONS

    @classmethod
    def of(cls, found: Sequence[Any]) -> "InboxRow":
        return cls(*found)


def problem_of(row: InboxRow, tenants: Collection[str]) -> str | None:
    """Decode the row's options in place. Returns what is wrong with the row, or None."""
    problem = name_problem(row.tenant, row.queue)
    if problem is not None:
        return problem
    if tenants and row.tenant not in tenants:
        return (
            f"rows of this inbox may not name tenant {row.tenant!r}: allowed are {', '.join(sorted(tenants))};"
            " see `tenants` of the reader"
        )
    try:
        _check_names("options", msgspec.Raw(row.options_text.encode()))
        row.options = _decode(row.options_text)
    except InvalidRequest as error:
        return error.message.removeprefix("invalid ")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return f"the options are not those of a job: {error}"
    if any(edge.item is not None for edge in row.options.depends_on):
        return "depends_on names an item of a batch: rows of the inbox can only depend on jobs by their ids"
    return None
