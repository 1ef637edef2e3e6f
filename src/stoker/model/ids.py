"""How a job id is made, and which shard a queue lives in.

An id is `sequence << 6 | shard`: it names its shard, grows in push order inside it, and stays below
2**53, so that JSON readers keep every digit.
"""

from zlib import crc32

SHARD_BITS = 6
STEP = 1 << SHARD_BITS
"""The distance between two neighbouring ids of one shard."""

SHARDS_MAX = STEP
SHARD_MASK = STEP - 1

SYSTEM_TENANT = "$system"
"""Who owns what the server keeps for itself. No name that a client may send, so only callers inside the process
can be it."""

KV_HOME = "$kv"
"""All key-value entries of a tenant live in the shard where a queue of this name would."""


def make_id(sequence: int, shard: int) -> int:
    return sequence << SHARD_BITS | shard


def sequence_of(job_id: int) -> int:
    return job_id >> SHARD_BITS


def shard_of(job_id: int) -> int:
    return job_id & SHARD_MASK


def shard_for(tenant: str, queue: str, shards: int) -> int:
    """The home of a queue. CRC-32 because Python's own hash changes with every process."""
    return crc32(f"{tenant}\0{queue}".encode()) & (shards - 1)


def process_of(shard: int, processes: int) -> int:
    """Which of so many processes a shard lives in, when they share a data directory."""
    return shard % processes
