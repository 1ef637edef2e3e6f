"""How much a test tries: enough to be a claim in the suite, and far more in the soak."""

import os

from hypothesis import settings

SOAKS = os.environ.get("STOKER_SOAK") == "1"


def drawing(examples: int) -> settings:
    """So many examples. The machine may be busy: a test is judged by what it finds, not by how long it took."""
    return settings(max_examples=examples * 20 if SOAKS else examples, deadline=None)
