"""Finding deliveries: many ids in one call are judged as each of them would be alone."""

from itertools import pairwise
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from stoker.engine import settling
from stoker.engine.jobs import Members
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.options import Options
from tests.unit.support import QUICK


def delivered() -> tuple[Shard, list[int], int]:
    """Two batches and a lifo one, delivered in two pulls; some of them changed or finished before or after."""
    shard = Shard()
    ids: list[int] = []
    for options in (Options(), Options(), Options(lifo=True)):
        ids += shard.execute("t", c.PushBatch("q", [b""] * 12, options), 0).ids
    for job in (ids[3], ids[16], ids[30]):
        shard.execute("t", c.ChangePriority(job, 1), 0)
    first = shard.execute("t", c.Pull(["q"], 20), 0).token
    shard.execute("t", c.Pull(["q"], 9), 0)
    for job in (ids[1], ids[26], ids[27]):
        shard.execute("t", c.Ack([job]), 0)
    return shard, ids, first


SHARD, IDS, TOKEN = delivered()
RUNS = st.tuples(st.integers(0, len(IDS) - 1), st.integers(1, 15), st.sampled_from((1, -1)))


def named(runs: list[tuple[int, int, int]]) -> list[int]:
    places = [range(start, start + count * step, step) for start, count, step in runs]
    return [IDS[place] for run in places for place in run if 0 <= place < len(IDS)]


@QUICK
@given(st.lists(RUNS, min_size=1, max_size=5).map(named), st.sampled_from(("none", "one", "each")), st.randoms())
@example([*IDS[7:10], *IDS[8:12]], "none", Random(0))
def test_many_ids_are_judged_as_each_alone(ids, tokens_for, random):
    tokens: c.Tokens = None
    if tokens_for == "one":
        tokens = TOKEN
    elif tokens_for == "each":
        tokens = [random.choice((TOKEN, TOKEN, TOKEN + 1)) for _ in ids]
    held: list[int] = []
    refused: dict[int, str] = {}
    for place, job in enumerate(ids):
        token = tokens if tokens is None or isinstance(tokens, int) else tokens[place]
        part, code = settling._held_one(SHARD, "t", job, token)
        if part is not None and job not in held:
            held.append(job)
        else:
            refused.setdefault(job, code or ("wrong_state" if token is None else "lost_lease"))
    parts, others = settling.held_deliveries(SHARD, "t", ids, tokens)
    assert [job for part in parts for job in part.ids] == held
    assert others == refused
    for part, after in pairwise(parts):
        if type(part) is Members and type(after) is Members:
            assert not settling._follows(part, after), "neighbours of a slice are one part"


def test_a_delivery_out_of_several_batches_is_a_few_parts():
    shard = Shard()
    for _ in range(3):
        shard.execute("t", c.PushBatch("q", [b""] * 1_000), 0)
    shard.execute("t", c.Cancel(64 * 1_500), 0)
    delivery = shard.execute("t", c.Pull(["q"], 2_500), 0)
    parts, refused = settling.held_deliveries(shard, "t", list(delivery.ids), delivery.token)
    assert [part.jobs for part in parts] == [1_000, 499, 500, 501]
    assert refused == {}
