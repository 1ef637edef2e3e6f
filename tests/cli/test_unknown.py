"""A job whose name no worker knows: every command that is asked about it says so, and who said it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stoker as public
from stoker.client.sync import Client
from stoker.model.states import State
from stoker.worker.worker import Worker
from tests.cli.conftest import Stoker
from tests.client.serving import ServerThread
from tests.worker.running import WAIT_S, Beside, handler, push


def send() -> None: ...


@contextmanager
def queue_at(where: str, directory: Path) -> Iterator[str]:
    if where == "directory":
        yield f"sqlite:///{directory}/queue"
    else:
        with ServerThread() as server:
            yield server.url


def handed_back(client: Client, job: int) -> None:
    until = time.monotonic() + WAIT_S
    while not (client.get_state(job) is State.DELAYED and client.list_workers()):
        assert time.monotonic() < until, "it was not handed back"
        time.sleep(0.005)


@pytest.mark.parametrize("where", ["directory", "server"])
def test_an_unknown_job_name_is_told_wherever_the_job_is_asked_about(stoker: Stoker, tmp_path: Path, where: str):
    with queue_at(where, tmp_path) as url, public.connect(url) as client:
        handlers = [handler(send, name="mail.send", queue="mail"), handler(send, name="mail.cancel", queue="mail")]
        with Beside(Worker(client, handlers, id="worker-7")):
            job = push(client, "mail.sendd", queue="mail")
            handed_back(client, job)
            said = {command: stoker("job", command, job, "--url", url) for command in ("why", "show", "story")}
            said["doctor"] = stoker("doctor", "--url", url)
            listed = client.list_workers()
    for command, outcome in said.items():
        words = " ".join(outcome.out.split())
        assert outcome.code == 0, (command, outcome.err)
        assert "know the job name 'mail.sendd'" in words or "knows the job name 'mail.sendd'" in words, command
        assert "known: mail.cancel, mail.send" in words, command
        assert "did you mean 'mail.send'?" in words, command
        assert "worker-7" in words, command
    assert "no worker of mail knows the job name 'mail.sendd'" in " ".join(said["why"].out.split())
    assert [one.names for one in listed] == [("mail.cancel", "mail.send")]


def test_a_name_that_one_of_the_workers_knows_is_not_unknown(at: Stoker, client: Client):
    one = Worker(client, [handler(send, name="old", queue="mail")], id="one")
    two = Worker(client, [handler(send, name="new", queue="mail")], id="two")
    with Beside(one):
        job = push(client, "new", queue="mail")
        handed_back(client, job)
        with Beside(two):
            until = time.monotonic() + WAIT_S
            while len(client.list_workers()) < 2:
                assert time.monotonic() < until
                time.sleep(0.005)
            assert "knows the job name" not in " ".join(at("job", "why", job).out.split())
            assert "cannot run" not in at("doctor").out


def test_a_dead_job_of_an_unknown_name_names_the_worker(at: Stoker, client: Client, caplog: pytest.LogCaptureFixture):
    worker = Worker(client, [handler(send, name="mail.send", queue="mail")], id="worker-7", unknown_for=0)
    with Beside(worker):
        job = push(client, "nothing like it", queue="mail")
        assert client.wait_job(job, 50_000).state is State.FAILED
    shown = " ".join(at("job", "show", job).out.split())
    assert "worker worker-7 does not know the job name 'nothing like it'; known: mail.send" in shown
    assert "did you mean" not in shown
    assert any(f"job {job} (nothing like it) failed in attempt 1" in one.getMessage() for one in caplog.records)


def test_a_snoozed_job_tells_why(at: Stoker, client: Client):
    def later() -> None:
        raise public.Snooze("10m", "the shop is closed")

    with Beside(Worker(client, [handler(later)])):
        job = push(client, "later")
        handed_back(client, job)
    assert "handed back: the shop is closed" in " ".join(at("job", "why", job).out.split())
    assert "the shop is closed" in at("job", "story", job).out
