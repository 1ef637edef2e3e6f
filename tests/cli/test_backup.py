"""`stoker backup` and `stoker restore`: a restored directory has everything that was backed up."""

import json
from pathlib import Path

from stoker.cli import exit_codes
from tests.cli.conftest import Stoker


def test_a_backup_brings_everything_back(stoker: Stoker):
    job = int(stoker("push", "mail", '{"to": "ada"}').out)
    made = json.loads(stoker("backup", "safe", "--json").out)
    assert made["name"].startswith("stoker-")
    stoker("pull", "mail", "--ack")
    (listed,) = json.loads(stoker("restore", "safe", "--list", "--json").out)
    assert listed["name"] == made["name"]
    assert made["name"] in stoker("restore", "safe", "--list").out
    outcome = stoker("restore", "safe", "again")
    assert (outcome.code, outcome.err) == (0, "")
    assert "sqlite:///again" in outcome.out
    assert stoker("pull", "mail", "--ack", "--url", "sqlite:///again").out == f'{job}\t{{"to": "ada"}}\n'


def test_a_backup_may_be_named(stoker: Stoker):
    stoker("push", "mail", "1")
    first = json.loads(stoker("backup", "safe", "--json").out)["name"]
    stoker("push", "mail", "2")
    stoker("backup", "safe")
    assert json.loads(stoker("restore", "safe", "again", "--name", first, "--json").out)["name"] == first
    assert json.loads(stoker("stats", "--json", "--url", "sqlite:///again").out)["counts"]["waiting"] == 1


def test_what_is_there_is_not_replaced(stoker: Stoker):
    stoker("push", "mail", "1")
    stoker("backup", "safe")
    outcome = stoker("restore", "safe", "stoker.db")
    assert outcome.code != 0
    assert stoker("pull", "mail", "--ack").code == 0


def test_only_a_data_directory_can_be_backed_up(stoker: Stoker, tmp_path: Path):
    assert stoker("backup", "safe", "--url", "tcp://127.0.0.1:6789").code == exit_codes.USAGE
    assert stoker("backup", "safe").code == exit_codes.REFUSED
    assert not (tmp_path / "stoker.db").exists()


def test_a_place_without_backups_has_none(stoker: Stoker, tmp_path: Path):
    (tmp_path / "safe").mkdir()
    assert stoker("restore", "safe", "--list") == (exit_codes.NOTHING, "no backups there\n", "")
    assert stoker("restore", "safe").code == exit_codes.USAGE
