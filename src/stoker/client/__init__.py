"""Synchronous and asynchronous skins over a broker: typed methods that build commands and read replies."""
