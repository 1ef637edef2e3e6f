"""The queue's logic: pure, deterministic, synchronous. No I/O, no clock, no randomness, no threads, no logging.

A command is decided against the state and the given `now`. The decision is a list of records, and state changes only
where a record is applied (`engine/apply/`). So replaying the records always rebuilds the state. Start reading at
`shard.py`, then `jobs.py` and `state.py`.
"""
