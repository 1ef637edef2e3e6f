"""Values that have fields of their own: as the model has them, but strict.

A misspelt field must be noticed, so that it is spelt anew.
"""

from stoker.model import options as model


class Backoff(model.Backoff, frozen=True, forbid_unknown_fields=True):
    """How long to wait after a failed delivery."""


class Dependency(model.Dependency, frozen=True, forbid_unknown_fields=True):
    """A job to wait for, and what its failure means."""


class RateLimit(model.RateLimit, frozen=True, forbid_unknown_fields=True):
    """So many deliveries in a time; a count of 0 lifts the limit."""


class DeadLetterPolicy(model.DeadLetterPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue does with jobs that will not be tried again."""
