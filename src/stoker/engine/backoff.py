"""How long a failed job waits. The jitter is a hash of (seed, id, k), so it is the same in every replay.

The kinds are `BackoffKind` in `model/options.py`. Redis decides by itself, in `brokers/redis/lua/wide.lua`.
"""

from typing import assert_never

from stoker.model.options import Backoff

_MASK = (1 << 64) - 1


def delay_ms(policy: Backoff, failures: int, seed: int, job_id: int) -> int:
    """The delay after the `failures`-th failed delivery (1-based)."""
    if policy.kind == "exponential":
        # 2**62 ms is beyond any cap, so the shift stays small even if a job without an attempt limit fails for ever
        delay = policy.base_ms << min(failures - 1, 62)
    elif policy.kind == "linear":
        delay = policy.base_ms * failures
    elif policy.kind == "fixed":
        delay = policy.base_ms
    else:
        assert_never(policy.kind)
    delay = min(delay, policy.cap_ms)
    if policy.jitter == "none":
        return delay
    spread = delay if policy.jitter == "full" else delay // 2
    return delay - mix(seed, job_id, failures) % (spread + 1)


def mix(seed: int, job_id: int, failures: int) -> int:
    """64 well-mixed bits (the finaliser of the splitmix generator)."""
    x = (seed * 0x9E3779B97F4A7C15 + job_id * 0xD1342543DE82EF95 + failures * 0xA0761D6478BD642F) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
