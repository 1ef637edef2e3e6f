"""The version of this release, where everybody may read it."""

__version__ = "0.1.0"
