"""Benchmarks: `make bench`, or `python -m benchmarks [part ...]`.

Each figure has a floor from the same run: the least work that Python, the disk and the network must do for the same
jobs. The ratio is the result, the absolute figure is for orientation. Every benchmark checks that the work was really
done. These are not tests: nothing here passes or fails by time.
"""

SMOKE_VARIABLE = "STOKER_BENCH_SMOKE"
"""Set in the environment if everything should be as small as it still runs. `sizes.py` reads it."""
PICTURES_VARIABLE = "STOKER_BENCH_PICTURES"
"""Names the folder in which parts that can draw do so."""
