"""Brokers execute the commands of the contract: the engine in this process, or a server."""
