"""Storage for records: an ordered log for each shard, behind one contract."""
