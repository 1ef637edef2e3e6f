"""Installing and checking a cluster: every refusal names what is wrong, and what to do."""

import psycopg
import pytest

from stoker.journal.postgres.database import Database
from stoker.journal.postgres.schema import check, install, migrations, remove, upgrade
from stoker.model.errors import CannotOpen, InvalidRequest, NewerFormat, Unreachable
from tests.ports import kept_port


def changed(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_installing_twice_changes_nothing(database: str):
    made = install(database, shards=8, seats=2)
    assert install(database, shards=8, seats=2) == made == check(Database(database))
    assert list(made.shards_of(1)) == [1, 3, 5, 7]


def test_other_numbers_are_refused(database: str):
    install(database, shards=8, seats=2)
    with pytest.raises(InvalidRequest, match="has 8 shards, not 16"):
        install(database, shards=16, seats=2)
    with pytest.raises(InvalidRequest, match="has 2 seats, not 4"):
        check(Database(database), seats=4)


@pytest.mark.parametrize(("shards", "seats"), [(3, 1), (0, 1), (128, 1), (4, 5), (4, 0)])
def test_impossible_numbers_are_refused(database: str, shards: int, seats: int):
    with pytest.raises(InvalidRequest, match="expected"):
        install(database, shards, seats)


def test_a_database_without_a_cluster_is_named(database: str):
    with pytest.raises(CannotOpen, match="stoker cluster init"):
        check(Database(database))


def test_two_clusters_live_in_two_schemas(database: str):
    install(database, 4, 2)
    other = install(database + "?schema=other", 8, 1)
    assert check(Database(database)).shards == 4
    assert check(Database(database + "?schema=other")) == other


def test_another_format_is_refused(database: str):
    install(database)
    newest = migrations()[-1].number
    changed(database, f"UPDATE stoker.cluster SET format = {newest + 1}")
    with pytest.raises(NewerFormat, match=f"format {newest + 1}"):
        check(Database(database))
    changed(database, f"UPDATE stoker.cluster SET format = {newest - 1}")
    with pytest.raises(CannotOpen, match="stoker cluster upgrade"):
        check(Database(database))


def test_an_upgrade_of_the_newest_format_changes_nothing(database: str):
    made = install(database)
    assert upgrade(database) == made


def test_what_was_installed_can_be_removed_and_installed_again(database: str):
    install(database, 4, 1)
    remove(database)
    install(database, 8, 2)


def test_a_server_that_is_read_only_is_named(database: str):
    name = database.rpartition("/")[2]
    changed(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(CannotOpen, match="read-only"):
        install(database)


def test_a_server_that_is_away_is_unreachable():
    with kept_port() as port, pytest.raises(Unreachable, match="does not answer"):
        install(f"postgresql://postgres@127.0.0.1:{port}/postgres")


@pytest.mark.parametrize("url", ["mysql://a/b", "postgresql://h/d?schema=a;b", "postgresql://h/d?schema="])
def test_a_malformed_url_is_refused(url: str):
    with pytest.raises(InvalidRequest):
        Database(url)
