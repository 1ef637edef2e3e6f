"""Where records go: an ordered log for each shard, behind one contract."""
