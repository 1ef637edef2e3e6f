"""A row of the inbox as a program inserts it."""

from uuid import uuid4

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.limits import NAME_PATTERN
from stoker.model.options import DEFAULT_OPTIONS, Options

NAME_RULE = "a name has 1 to 256 letters, digits and _ . : -"
CUSTOM_ID = "inbox-"
"""How custom ids begin that are made here."""
QUOTED_CHARS = 64
"""How much of a bad name an error repeats."""


class NewRow(msgspec.Struct, frozen=True):
    """A push as a row. The options always have a custom id, because the job gets its id only later."""

    queue: str
    payload: bytes
    options: Options
    tenant: str = "default"

    @classmethod
    def of(cls, queue: str, payload: bytes, options: Options = DEFAULT_OPTIONS, tenant: str = "default") -> "NewRow":
        """Check the names, and fill in a custom id. Raises `InvalidRequest`."""
        problem = name_problem(tenant, queue)
        if problem is not None:
            raise InvalidRequest(problem)
        if options.custom_id is None:
            options = msgspec.structs.replace(options, custom_id=CUSTOM_ID + uuid4().hex)
        return cls(queue, payload, options, tenant)

    @property
    def custom_id(self) -> str:
        assert self.options.custom_id is not None
        return self.options.custom_id

    @property
    def values(self) -> tuple[str, str, bytes, str]:
        """The values of the INSERT, in the order of its columns."""
        return self.tenant, self.queue, self.payload, msgspec.json.encode(self.options).decode()


def name_problem(tenant: str, queue: str) -> str | None:
    for what, name in (("tenant", tenant), ("queue", queue)):
        if not NAME_PATTERN.fullmatch(name):
            return f"{what} {name[:QUOTED_CHARS]!r} is not a valid name: {NAME_RULE}"
    return None
