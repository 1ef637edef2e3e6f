"""How large the benchmarks are: full, or as small as they still run (`--smoke`), which is what the tests do.

Programs that a benchmark starts read the same variable, so they are as small as the benchmark itself.
"""

import os

from benchmarks import SMOKE_VARIABLE

IS_SMOKE = bool(os.environ.get(SMOKE_VARIABLE))


def sized(full: int, smoke: int, variable: str = "") -> int:
    """The size of something; `variable` names the environment variable that users can set instead."""
    given = os.environ.get(variable) if variable else None
    return int(given) if given else smoke if IS_SMOKE else full


SECONDS = float(os.environ.get("STOKER_BENCH_SECONDS", "0.05" if IS_SMOKE else "1"))
"""For each figure of a run."""
