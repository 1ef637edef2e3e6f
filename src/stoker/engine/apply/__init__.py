"""The only places where the state of a shard changes: one function for each record, and the moves they share."""
