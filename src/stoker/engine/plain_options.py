"""Which options let jobs share a batch, and which take the short paths of `fast_path.py`."""

from operator import attrgetter

from stoker.model.option_table import batched
from stoker.model.options import DEFAULT_OPTIONS, Options

_own = attrgetter(*batched("never"))
_NOT_SET = _own(DEFAULT_OPTIONS)
_general = attrgetter(*batched("general"))
_NOT_GENERAL = _general(DEFAULT_OPTIONS)


def is_plain(options: Options) -> bool:
    """Whether many jobs with these options can share one batch, because none of them needs data of its own."""
    return options is DEFAULT_OPTIONS or bool(_own(options) == _NOT_SET)


def is_simple(options: Options) -> bool:
    """Whether plain options only affect the order, the lease and what happens after a failure."""
    return bool(_general(options) == _NOT_GENERAL)
