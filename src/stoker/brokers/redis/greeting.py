"""What a server says of itself: whether a queue may live there, what its answers are worth, what its errors mean."""

import msgspec

from stoker.brokers.redis.links import RedisNode, RedisRefusal
from stoker.model import errors
from stoker.model.replies import Level

OLDEST = (6, 2)
AGAIN_S = 60.0
"""After this time, and after a lost connection, the next call asks the server again."""


class ServerFacts(msgspec.Struct, frozen=True):
    """What `INFO` and `CONFIG` say."""

    version: str
    is_replica: bool
    eviction: str | None
    """The policy by which it drops keys when its memory is full; None if its memory has no bound."""
    level: Level
    replicas: int = 0
    is_cluster: bool = False


def server_of(info: bytes, config: list[bytes] | None) -> ServerFacts:
    """`config` is the answer of CONFIG GET *appendfsync*; None if the user may not ask."""
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    said = {name: value for name, _, value in lines}
    has_bound = int(said.get("maxmemory", "0")) > 0
    return ServerFacts(
        said.get("valkey_version") or said.get("redis_version", "0"),
        said.get("role", "master") != "master",
        said.get("maxmemory_policy", "noeviction") if has_bound else None,
        level_of(said.get("aof_enabled") == "1", config),
        int(said.get("connected_slaves", "0")),
        said.get("cluster_enabled") == "1",
    )


def level_of(has_log: bool, config: list[bytes] | None) -> Level:
    """What has happened to a change when Redis answers. What cannot be known counts as the least."""
    if not has_log or config is None:
        return "memory"
    said = dict(zip(config[::2], config[1::2], strict=True))
    policy = said.get(b"appendfsync")
    if policy == b"always":
        return "fsync" if said.get(b"no-appendfsync-on-rewrite") == b"no" else "commit"
    return "commit" if policy == b"everysec" else "memory"


def check(node: RedisNode, server: ServerFacts, *, is_first: bool, cluster: bool) -> None:
    """Raise if a queue cannot live there."""
    version = tuple(int(part) for part in server.version.split(".")[:2] if part.isdecimal())
    if version < OLDEST:
        raise errors.CannotOpen(
            f"the Redis at {node} has version {server.version}: Stoker needs Redis 6.2 or newer, or Valkey"
        )
    if server.is_replica:
        said = f"the Redis at {node} is a replica, which takes no changes: connect to its master"
        raise errors.CannotOpen(said) if is_first else errors.Unreachable(said)
    if server.eviction not in (None, "noeviction"):
        raise errors.CannotOpen(
            f"the Redis at {node} deletes jobs when its memory is full (maxmemory-policy {server.eviction}):"
            " set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in its configuration)"
        )
    if server.is_cluster and not cluster:
        raise errors.CannotOpen(f"the Redis at {node} belongs to a Redis Cluster: add ?cluster=true to the URL")


AWAY = {
    "LOADING": "loads its data",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MASTERDOWN": "is a replica without a master",
    "TRYAGAIN": "is moving this tenant to another server",
    "READONLY": "has become a replica",
    "UNBLOCKED": "has become a replica",
    "BUSY": "runs a script that takes too long: see SCRIPT KILL",
    "MOVED": "has given this tenant to another server",
    "ASK": "is moving this tenant to another server",
}
"""Errors before anything was changed, which pass: the call is tried again as if no server had answered."""


def meaning(node: RedisNode, refusal: RedisRefusal) -> errors.StokerError:
    """The error that a caller gets for one of Redis."""
    code, said = refusal.code, str(refusal)
    if code in AWAY:
        return errors.Unreachable(f"the Redis at {node} {AWAY[code]} ({said})")
    if code == "OOM":
        return errors.MemoryFull(f"the memory of Redis is full: work off jobs, or raise its maxmemory ({said})")
    if code in ("MISCONF", "NOREPLICAS"):
        return errors.Unavailable(f"the Redis at {node} takes no changes: {said}")
    if code in ("NOAUTH", "WRONGPASS"):
        return errors.Unauthenticated(f"the Redis at {node} wants a user and a password: {said}")
    if code == "NOPERM":
        return errors.Forbidden(f"the Redis at {node} does not allow this user what Stoker needs: {said}")
    if code == "WRONGTYPE":
        return errors.Damaged(
            f"the Redis at {node} holds something else under Stoker's keys ({said}): use another ?prefix= or database"
        )
    return errors.Damaged(f"a script failed in the Redis at {node}: {said}")
