"""From a name to a connected socket, within a time: also the time that a name server takes, which no socket bounds."""

import socket
import threading
import time
from typing import Any


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """A TCP connection to the first address that answers. Raises `OSError` or `ValueError`."""
    deadline = time.monotonic() + timeout_s
    last: OSError | None = None
    for family, kind, protocol, _, address in addresses_of(host, port, timeout_s):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(max(deadline - time.monotonic(), 0.001))  # 0 would mean: do not wait at all
            plain.connect(address)
            return plain
        except OSError as error:
            last = error
            plain.close()
        except BaseException:
            plain.close()
            raise
    raise last or OSError(f"the name {host} has no address")


def addresses_of(host: str, port: int, timeout_s: float) -> list[Any]:
    if is_numeric(host):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: list[Any] = []
    failed: list[Exception] = []

    def ask() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            failed.append(error)

    # A thread that is left alone if it takes too long: nothing else can end the question.
    asking = threading.Thread(target=ask, name="stoker-resolving", daemon=True)
    asking.start()
    asking.join(timeout_s)
    if failed:
        raise failed[0]
    if asking.is_alive():
        raise TimeoutError(f"no name server has said within {timeout_s:g} s where {host} is")
    return found


def is_numeric(host: str) -> bool:
    """Whether the host is an address already, so that no name has to be resolved."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except (OSError, ValueError):
            pass
    return False
