"""Clients that a stranger could have written with flashQ's protocol and our pages on the protocol and on HTTP alone.

Four small ones, for JSON lines, MessagePack frames, REST and `POST /api/command`. They import nothing of Stoker, and
the conformance suite runs over them (`tests/conformance/dialect`): what they cannot do, the pages do not say.
"""
