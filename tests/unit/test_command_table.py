"""The table of commands is the one place that says what a command is; all else derives from it."""

import ast
from pathlib import Path

import pytest

from stoker.model import commands as c
from stoker.model.command_table import FENCED, TABLE, at_home
from stoker.runtime.routing import ALL_OF, SPECIAL, query
from tests.unit.literal_sets import HOUSE, is_attribute_of, literal_sets, modules

IS_COMMAND = is_attribute_of(("c", "commands"), frozenset(kind.__name__ for kind in c.ALL))


def test_every_command_has_a_row() -> None:
    assert set(TABLE) == set(c.ALL)


def test_the_keys_of_a_row_are_fields_of_its_command() -> None:
    for command, row in TABLE.items():
        assert set(row.keys) <= set(command.__struct_fields__), command
        assert bool(row.keys) == (row.resend == "keyed"), command
        assert not row.takes_level or "durability" in command.__struct_fields__, command


def test_the_home_of_a_command_is_a_field_that_names_it() -> None:
    fields = {"queue": "queue", "job": "id", "jobs": "ids", "claim": "claim", "shard": "shard"}
    for command, row in TABLE.items():
        if row.home in fields:
            assert fields[row.home] in command.__struct_fields__, command


def test_replies_of_several_shards_can_be_put_together() -> None:
    """Where nothing says how, a command about a whole tenant would fail on a broker with several shards."""
    assert {command for command in at_home("tenant") if SPECIAL[command] is query} == ALL_OF.keys()


def test_what_settles_names_a_delivery_or_a_claim() -> None:
    for command, row in TABLE.items():
        if row.kind == "settles":
            assert command in FENCED or row.home == "claim", command


@pytest.mark.parametrize("path", modules("command_table.py"), ids=lambda path: str(path.relative_to(HOUSE)))
def test_no_module_keeps_a_set_of_commands_of_its_own(path: Path) -> None:
    found = [f"{path.name}:{node.lineno}: {ast.unparse(node)[:100]}" for node in literal_sets(path, IS_COMMAND)]
    assert not found, "derive these from stoker.model.command_table: " + "; ".join(found)


def test_a_literal_set_would_be_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "A = frozenset((c.Push, c.PushBatch))\nB = {c.Ack, c.Fail}\nC = {c.Ack: 'x', c.Fail: 'y'}\n"
        "D = isinstance(x, c.Ack | c.Fail)\nE = {c.Ack: settle, c.Fail: settle}\nF = (c.Ack, 1)\n"
    )
    assert sorted(node.lineno for node in literal_sets(module, IS_COMMAND)) == [1, 2, 3, 4]
