"""Engine and journal in motion: shards, turns, time."""
