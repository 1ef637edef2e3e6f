"""Renews the leases of claims from a thread while their jobs are worked on. It knows nothing of Spark."""

import threading

from stoker.model.errors import NotFound, StokerError
from stoker.spark.connecting import connect
from stoker.spark.options import QueueConnection


class Leases:
    """Renews claims three times per lease, over its own connection.

    If the server is away for a moment, renewal is tried again. If it is away for longer than a lease, the jobs may have
    gone to another worker; settling them then says so.
    """

    def __init__(self, connection: QueueConnection, lease_ms: int) -> None:
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
                        self.drop(claim)  # all its jobs were settled or lost long ago
        except StokerError:
            pass  # the next renewal comes soon, or it is too late anyway
