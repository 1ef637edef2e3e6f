"""A port that stays reserved for the test while no process listens there: for servers that start later or come back."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


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


@contextmanager
def kept_ports_in_a_row(count: int) -> Iterator[list[int]]:
    """Neighbouring ports, each as `kept_port` gives one."""
    with ExitStack() as stack:
        while True:
            keepers = [stack.enter_context(socket.socket()) for _ in range(count)]
            try:
                for place, keeper in enumerate(keepers):
                    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    keeper.bind(("127.0.0.1", keepers[0].getsockname()[1] + place if place else 0))
                break
            except (OSError, OverflowError):  # the neighbour has an owner, or there is none
                stack.close()
        yield [int(keeper.getsockname()[1]) for keeper in keepers]
