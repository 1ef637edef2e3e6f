"""From a URL to a broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.brokers.connect import SCHEMES, open_broker
from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.model.errors import Closed, InvalidRequest


def local(url: str, settings: LocalSettings | None = None) -> LocalBroker:
    broker = open_broker(url, settings)
    assert type(broker) is LocalBroker
    return broker


@pytest.mark.parametrize("url", ["ftp://localhost", "amqp://x", "memory", "", "//x", "mem ory://"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(url: str):
    with pytest.raises(InvalidRequest) as caught:
        open_broker(url)
    assert repr(url) in caught.value.message
    assert all(f"{scheme}://" in caught.value.message for scheme in SCHEMES)


def test_memory_without_a_name_is_a_new_broker_each_time():
    first, second = stoker.connect("memory://"), stoker.connect("memory://")
    first.push("q", b"")
    assert second.get_counts().waiting == 0


def test_memory_with_a_name_is_shared_in_the_process():
    first, second = stoker.connect("memory://shared"), stoker.connect("memory://shared", tenant="default")
    first.push("q", b"here")
    assert [job.payload for job in second.pull("q")] == [b"here"]
    first.close()
    second.close()


def test_other_names_are_other_brokers():
    first, second = stoker.connect("memory://one"), stoker.connect("memory://two")
    first.push("q", b"")
    assert second.get_counts().waiting == 0
    first.close()
    second.close()


def test_a_shared_broker_stays_open_until_the_last_user_closes_it():
    first, second = stoker.connect("memory://kept"), stoker.connect("memory://kept")
    first.close()
    second.push("q", b"")
    second.close()
    with pytest.raises(Closed):
        second.push("q", b"")


def test_a_name_whose_broker_was_closed_begins_anew():
    first = stoker.connect("memory://again")
    first.push("q", b"")
    first.close()
    with stoker.connect("memory://again") as second:
        assert second.get_counts().waiting == 0


def test_the_number_of_shards_is_a_parameter():
    assert len(local("memory://?shards=4").runtime.shards) == 4
    assert len(local("memory://", LocalSettings(shards=2)).runtime.shards) == 2
    assert len(local("memory://?shards=8", LocalSettings(shards=2)).runtime.shards) == 8, "the URL says it last"


@pytest.mark.parametrize("shards", ["0", "3", "128", "-1", "two", "", "4.0"])
def test_a_number_of_shards_that_cannot_be_is_refused(shards: str):
    with pytest.raises(InvalidRequest):
        open_broker(f"memory://?shards={shards}")


@pytest.mark.parametrize("parameters", ["colour=red", "shards=2&speed=9", "colour="])
def test_unknown_parameters_are_refused_not_ignored(parameters: str):
    with pytest.raises(InvalidRequest, match="unknown parameters"):
        open_broker(f"memory://?{parameters}")


def test_a_refused_url_leaves_no_shared_broker_behind():
    with pytest.raises(InvalidRequest):
        open_broker("memory://spoiled?shards=3")
    with stoker.connect("memory://spoiled") as client:
        assert client.get_counts().waiting == 0


def test_sqlite_needs_a_path_and_no_host(tmp_path: Path):
    for url in (
        "sqlite://",
        "sqlite:///",
        "sqlite://host/path",
        f"sqlite:///{tmp_path}?shards=3",
        f"sqlite:///{tmp_path}?x=1",
    ):
        with pytest.raises(InvalidRequest):
            open_broker(url)


def test_a_data_directory_is_opened_once_and_shared_in_the_process(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/data"
    with stoker.connect(url) as first, stoker.connect(url) as second:
        first.push("q", b"here")
        assert [job.payload for job in second.pull("q")] == [b"here"]
        with pytest.raises(InvalidRequest, match="other settings"):
            stoker.connect(url, settings=LocalSettings(durability="fsync"))


def test_the_number_of_shards_is_fixed_for_a_directory(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/data"
    stoker.connect(f"{url}?shards=4").close()
    stoker.connect(url).close()
    with pytest.raises(InvalidRequest, match="has 4 shards, but 8 were asked for"):
        stoker.connect(f"{url}?shards=8")


def test_files_of_somebody_else_are_left_alone(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InvalidRequest, match=r"letter\.txt"):
        stoker.connect(f"sqlite:///{tmp_path}")
    with pytest.raises(InvalidRequest, match="is a file"):
        stoker.connect(f"sqlite:///{tmp_path}/letter.txt")
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_the_default_is_a_data_directory_or_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STOKER_URL", raising=False)
    with stoker.connect() as queue:
        assert queue.push("q", b"").level == "commit"
    assert (tmp_path / "stoker.db" / "manifest.json").exists()
    monkeypatch.setenv("STOKER_URL", "memory://")
    with stoker.connect() as queue:
        assert queue.push("q", b"").level == "memory"


def test_a_forked_process_leaves_the_directory_to_its_parent(tmp_path: Path):
    """Here without anybody who would let it in; that a child is served by its parent is shown in tests/sharing."""
    broker = open_sqlite(f"{tmp_path}/data", {})
    queue = stoker.Client(broker)
    queue.push("q", b"before")
    child = os.fork()
    if not child:
        try:
            queue.push("q", b"in the child")
        except Closed as error:
            os._exit(0 if "forked" in error.message else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    queue.push("q", b"after")
    assert queue.pull("q", 5).payloads == [b"before", b"after"]
    queue.close()


FORGETFUL = """
import sys, stoker
queue = stoker.connect(sys.argv[1])
queue.push("q", b"")
"""


def test_a_broker_that_nobody_closed_is_closed_in_good_order_at_exit(tmp_path: Path):
    subprocess.run([sys.executable, "-c", FORGETFUL, f"sqlite:///{tmp_path}/data"], check=True, timeout=60)
    assert json.loads((tmp_path / "data" / "manifest.json").read_text())["clean"] is True
