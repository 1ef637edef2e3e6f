"""Leases of claims, renewed from a thread for as long as somebody works on their jobs. It knows nothing of Spark."""

import threading

from stoker.model.errors import NotFound, StokerError
from stoker.spark.connecting import connect
from stoker.spark.options import Connection


class Leases:
    """Renews claims three times a lease, over a connection of its own.

    A server that is away for a moment is asked again; one that is away for longer than a lease has given the jobs to
    somebody else, and says so when they are settled.
    """

    def __init__(self, connection: Connection, lease_ms: int) -> None:
        self._connection, self._lease_ms = connection, lease_ms
        self._claims: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Leases":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def hold(self, *claims: str) -> None:
        with self._lock:
            self._claims.update(claims)
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name="stoker-fleet-leases", daemon=True)
                self._thread.start()

    def drop(self, *claims: str) -> None:
        with self._lock:
            self._claims.difference_update(claims)

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._lease_ms / 3000):
            with self._lock:
                claims = list(self._claims)
            if claims:
                self._renew(claims)

    def _renew(self, claims: list[str]) -> None:
        try:
            with connect(self._connection) as client:
                for claim in claims:
                    try:
                        client.extend_claim(claim, self._lease_ms)
                    except NotFound:
                        self.drop(claim)  # all its jobs are settled or lost, and that is long ago
        except StokerError:
            pass  # the next time comes soon enough, or it is too late anyway
