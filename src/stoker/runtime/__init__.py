"""The runtime: runs engine and journal together, in turns, with a clock."""
