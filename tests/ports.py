"""A port that stays reserved for the test while no process listens there: for servers that start later or come back."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_port() -> Iterator[int]:
    """Bound, and not listened at: whoever connects is refused, and a server that names it gets it, however often.

    A free port that is only looked up may be taken when it is needed, by whoever asks for any: a server of another
    test, or a client, whose end of a connection has a port, too. Nobody who asks for any is given one that is bound.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        keeper.bind(("127.0.0.1", 0))
        yield int(keeper.getsockname()[1])
