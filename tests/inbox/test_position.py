"""Where a reader looks: late rows are found, and a long transaction elsewhere does not make it look at dead rows."""

from typing import Any

import psycopg
import pytest

from stoker.inbox import table
from stoker.inbox.position import FULL_LOOK_S, Position, TableLook
from tests.inbox.world import InboxWorld


def look(last_id: int, oldest: int, upcoming: int) -> TableLook:
    return TableLook(last_id, oldest, upcoming, True)


def test_the_floor_waits_for_all_transactions_that_ran_when_the_id_was_given():
    position = Position()
    position.looked(look(10, 100, 105), 0.0)
    position.looked(look(20, 100, 110), 0.1)  # the horizon: all below 110 must end
    position.looked(look(30, 109, 120), 0.2)
    position.claimed(None)
    assert position.floor == 0
    position.looked(look(40, 110, 130), 0.3)
    position.claimed(None)
    assert position.floor == 10


def test_a_transaction_that_runs_for_longer_than_a_full_look_is_away_holds_nothing_up():
    position = Position()
    position.looked(look(10, 100, 105), 0.0)
    position.looked(look(10, 100, 105), 0.1)
    position.looked(look(90, 100, 200), FULL_LOOK_S)
    position.claimed(7)
    assert position.floor == 7  # a claim that was cut off: only so far


def plan(connection: "psycopg.Connection[Any]", statement: str, **values: Any) -> tuple[int, set[str]]:
    """The pages that a statement touches, and the indexes that it uses."""
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement
    found = connection.execute(explain.encode(), values).fetchone()
    assert found is not None
    top = found[0][0]["Plan"]
    indexes: set[str] = set()

    def walk(node: dict[str, Any]) -> None:
        indexes.update({node["Index Name"]} if "Index Name" in node else set())
        for inner in node.get("Plans", ()):
            walk(inner)

    walk(top)
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"], indexes


@pytest.mark.parametrize("elsewhere", ["reads", "writes"])
def test_a_long_transaction_elsewhere_does_not_make_looks_read_more(world: InboxWorld, elsewhere: str):
    reader = world.reader()
    clock, passed = reader._clock, [0.0]
    reader._clock = lambda: clock() + passed[0]
    world.commit(b"first")
    world.read(1, reader)
    with psycopg.connect(world.url) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1" if elsewhere == "reads" else "CREATE TABLE elsewhere (a int)")
        for first in range(0, 10_000, 1_000):
            world.sql(
                "INSERT INTO stoker_inbox (queue, payload) SELECT 'mail', convert_to(n::text, 'UTF8')"
                " FROM generate_series(%s::int, %s::int) AS n",
                first,
                first + 999,
            )
            world.read(1, reader)
            passed[0] += 1.0
        passed[0] += FULL_LOOK_S
        world.read(4, reader)
        assert world.rows() == 0
        assert reader._position.floor >= 9_000
        nothing = {"tenants": [], "queues": [], "rows": table.ROWS_MAX, "bytes": table.BYTES_MAX}
        for statement, values in ((table.LOOK, {}), (table.FREE, nothing)):
            pages, indexes = plan(world.database, statement, after=reader._position.floor, **values)
            all_pages, _ = plan(world.database, statement, after=0, **values)
            assert "stoker_inbox_free" in indexes
            assert pages <= 20 < all_pages, "a look from the floor passes dead rows, or one from 0 passes none"
        other.rollback()
