"""The suite over clients that know nothing but the published protocol (`tests/reference_clients`).

A broker here takes the contract's commands and says them in flashQ's words, through a client written from the
documentation. Payloads that are no JSON travel as the documentation says, and so come back; everything that the test
sees is read from answers. What cannot be said in this dialect is named in `dialect_gaps.py`.
"""

from tests.conformance.dialect.worlds import api_command, frames, lines, rest

__all__ = ["api_command", "frames", "lines", "rest"]
