"""Whether a Bloom filter in front of a push with a key pays: `python -m benchmarks.filters`.

Each key is new, which is the best case for a filter. It stands in Redis (7 bits of 2^24) or in the process.
"""

import statistics
import zlib
from collections.abc import Callable
from typing import Any

from benchmarks.measure import PAYLOAD
from benchmarks.redis import both
from stoker.cli.measuring import times_us

CALLS = 5_000
ROUNDS = 3
HASHES = 7
BITS = 1 << 24
SCRIPT = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then return held end
redis.call('HSET', KEYS[1], ARGV[1], '1')
redis.call('RPUSH', KEYS[2], ARGV[2])
return '1'
"""

Run = Callable[[str], object]


def places(key: str) -> list[int]:
    return [zlib.crc32(key.encode(), seed) % BITS for seed in range(HASHES)]


def filtered(raw: Any, run: Run) -> Run:
    """Ask a filter in Redis first, and add the key to it."""

    def step(key: str) -> object:
        asked = raw.pipeline(transaction=False)
        for place in places(key):
            asked.getbit("filter", place)
        if not all(asked.execute()):
            adding = raw.pipeline(transaction=False)
            for place in places(key):
                adding.setbit("filter", place, 1)
            adding.execute()
        return run(key)

    return step


def median_us(run: Run, name: str) -> float:
    keys = iter([f"{name}:{number}" for number in range(CALLS)])
    return statistics.median(times_us(lambda: run(next(keys)), CALLS))


def main() -> None:
    with both() as (client, raw):
        sha = raw.script_load(SCRIPT)
        seen: set[str] = set()

        def bare(key: str) -> object:
            return raw.evalsha(sha, 2, "keys", "list", key, PAYLOAD)

        def keyed(key: str) -> object:
            return client.push("q", PAYLOAD, unique_key=key)

        def in_process(key: str) -> object:
            if key not in seen:
                seen.add(key)
            return keyed(key)

        runs: dict[str, Run] = {
            "bare script": bare,
            "bare script behind a filter in Redis": filtered(raw, bare),
            "push without a key": lambda key: client.push("q", PAYLOAD),
            "push with a key": keyed,
            "push with a key behind a filter in Redis": filtered(raw, keyed),
            "push with a key behind a filter in the process": in_process,
        }
        found: dict[str, list[float]] = {name: [] for name in runs}
        for round_ in range(ROUNDS):
            for name, run in runs.items():
                found[name].append(median_us(run, f"{name}:{round_}"))
        assert client.get_counts("q").waiting == CALLS * ROUNDS * 4
    for name, figures in found.items():
        print(f"{name:<50} {min(figures):6.0f} to {max(figures):.0f} us")


if __name__ == "__main__":
    main()
