"""How a job id is made, and which shard a queue lives in.

An id is `sequence << 6 | shard`. It names its shard, grows in push order within it, and stays below 2**53, so JSON
readers keep every digit.
"""

from zlib import crc32

SHARD_BITS = 6
STEP = 1 << SHARD_BITS
"""The distance between neighbouring ids of one shard."""

SHARDS_MAX = STEP
SHARD_MASK = STEP - 1

SYSTEM_TENANT = "$system"
"""The tenant that owns the server's own data. Clients cannot send this name, so only code inside the process can act
for it.
"""

KV_HOME = "$kv"
"""The key-value entries of a tenant live in the shard that a queue of this name would have."""


def make_id(sequence: int, shard: int) -> int:
    return sequence << SHARD_BITS | shard


def sequence_of(job_id: int) -> int:
    return job_id >> SHARD_BITS


def shard_of(job_id: int) -> int:
    return job_id & SHARD_MASK


def shard_for(tenant: str, queue: str, shards: int) -> int:
    """The shard of a queue. It uses CRC-32 because Python's own hash differs between processes."""
    return crc32(f"{tenant}\0{queue}".encode()) & (shards - 1)


def process_of(shard: int, processes: int) -> int:
    """The process that a shard lives in, when this many processes share a data directory."""
    return shard % processes
