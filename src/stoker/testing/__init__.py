"""For tests of code that uses Stoker, ours included: the true engine under a clock that tests move."""

from stoker.testing.clock import FakeClock
from stoker.testing.world import World

__all__ = ["FakeClock", "World"]
