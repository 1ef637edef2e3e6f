"""The version of this release, in a module that every layer may import."""

__version__ = "0.1.0"
