"""Cuts many jobs into batches that a server takes, and joins the replies into one."""

from collections.abc import Iterable, Iterator, Sequence

from stoker.model import replies as r
from stoker.model.errors import InvalidRequest

BATCH_JOBS = 1_000
"""A tenth of a server's default limit; larger batches are hardly faster."""
BATCH_BYTES = 8 * 1024 * 1024
"""Payload bytes in a batch: far below the frame limit, and a fraction of a second on a slow line."""


def pieces(payloads: Iterable[bytes], jobs_max: int, bytes_max: int = BATCH_BYTES) -> Iterator[list[bytes]]:
    """Cut always in the same places, so that each piece has the same request key when all is sent again."""
    if jobs_max < 1:
        raise InvalidRequest(f"batch_jobs={jobs_max}: expected at least 1")
    piece: list[bytes] = []
    size = 0
    for number, payload in enumerate(payloads):
        if not isinstance(payload, bytes):
            raise InvalidRequest(
                f"item {number}: invalid payload: expected bytes, got {type(payload).__name__}; encode it first"
            )
        if piece and (len(piece) >= jobs_max or size + len(payload) > bytes_max):
            yield piece
            piece, size = [], 0
        piece.append(payload)
        size += len(payload)
    if piece:
        yield piece


def joined(replies: Sequence[r.PushedBatch]) -> r.PushedBatch:
    """The replies as if it had been one batch, with the weakest durability of all."""
    if len(replies) == 1:
        return replies[0]
    ids: list[int] = []
    refused: dict[int, r.Refusal] = {}
    duplicates: dict[int, r.DuplicateBy] = {}
    for reply in replies:
        before = len(ids)
        refused.update((before + item, refusal) for item, refusal in reply.refused.items())
        duplicates.update((before + item, by) for item, by in reply.duplicates.items())
        ids.extend(reply.ids)
    levels = {reply.level for reply in replies}
    weakest: r.Level = next((level for level in r.LEVELS if level in levels), "memory")
    return r.PushedBatch(ids, refused, duplicates, weakest)
