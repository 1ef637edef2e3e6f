"""flashQ's dialect: UPPERCASE commands with flat fields, jobs as maps, answers that its published clients read.

Without sockets and without a server: a frame becomes a typed request (`decode`), a request becomes a plan of engine
commands (`DialectRow.plan`, or `DialectRow.build` and `DialectRow.answer`), and a plan ends with an answer that the
caller encodes.
"""

from stoker.wire.flashq.answers import Answer, Plan, done, failure
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.rows import BY_NAME, ROWS, DialectRow, decode, row_of
from stoker.wire.flashq.spelling import UnknownField

__all__ = [
    "BY_NAME",
    "ROWS",
    "Answer",
    "DialectRow",
    "Plan",
    "RequestContext",
    "UnknownField",
    "decode",
    "done",
    "failure",
    "row_of",
]
