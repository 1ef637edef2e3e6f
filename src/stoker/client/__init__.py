"""Synchronous and asynchronous clients over a broker: typed methods that build commands and read replies."""
