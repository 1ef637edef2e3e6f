"""The heart: pure, deterministic, synchronous. No I/O, no clock, no randomness, no threads, no logging.

A command is decided against the state and the given `now`; the decision is a list of records; state
changes only where a record is applied (`apply_*.py`). Replaying the records therefore rebuilds the
state by construction. Start reading at `shard.py`, then `jobs.py` and `state.py`.
"""
