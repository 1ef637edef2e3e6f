"""Every example does what it says, run as its reader would: real processes, and no server but the example's own."""

import subprocess
import sys
from pathlib import Path

import httpx2
import msgspec

import stoker
from tests.examples.processes import EXAMPLES, SECONDS, Terminal


def outcome(terminal: Terminal, job: int) -> str:
    """How a job of the example ended, once it has."""
    with stoker.connect(terminal.url) as queue:
        ended = queue.wait_job(job, SECONDS * 1000)
    return ended.state.value


def said_by(example: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_plain_queue_works_off_everything():
    assert "opened again, the data directory still has the dead letter: ['always fails']" in said_by("plain_queue.py")


def test_a_batch_is_one_call_and_has_an_outcome_for_each():
    said = said_by("batches.py")
    assert "called with 64 texts" in said
    assert "200 vectors" in said
    assert "the empty text has failed: there is nothing to embed" in said


def test_the_quick_start_runs_fails_retries_and_can_be_looked_at(tmp_path: Path):
    with Terminal(tmp_path, "quickstart") as terminal:
        terminal.start("stoker", "worker", "jobs:app")
        said = terminal.run(sys.executable, "push.py")
        assert "welcome, number 7" in said
        assert "reminded number 7 in attempt 3" in said
        assert "is failed" in said
        removed = said.split()[-1]
        assert "number 7 must not be removed" in terminal.run("stoker", "job", "show", removed)
        assert removed in terminal.run("stoker", "dlq", "list", "mail")


def test_the_quick_start_is_tested(tmp_path: Path):
    with Terminal(tmp_path, "quickstart") as terminal:
        assert "3 passed" in terminal.run(sys.executable, "-m", "pytest", "-q", "-W", "error")
        assert not (terminal.directory / "stoker.db").exists()


def test_a_web_application_and_a_worker_share_a_directory_with_no_server(tmp_path: Path):
    with Terminal(tmp_path, "fastapi_shop") as terminal:
        web = terminal.serve("shop:api")
        terminal.start("stoker", "worker", "shop:jobs")
        with httpx2.Client(base_url=web, timeout=SECONDS) as browser:
            job = browser.post("/orders/7").raise_for_status().json()["job"]
            assert outcome(terminal, job) == "completed"
            assert browser.get(f"/jobs/{job}").json() == {
                "state": "completed",
                "progress": 50,
                "result": "order 7 is packed",
            }
            assert browser.get("/jobs/640000").status_code == 404
            assert browser.delete(f"/jobs/{job}").status_code == 409
        assert (terminal.directory / "stoker.db").is_dir()


def test_django_enqueues_and_its_worker_runs(tmp_path: Path):
    shop = {"DJANGO_SETTINGS_MODULE": "shop.settings"}
    with Terminal(tmp_path, "django_shop") as terminal:
        terminal.run(sys.executable, "manage.py", "migrate", "-v", "0")
        web = terminal.serve("--factory", "django.core.asgi:get_asgi_application", "--lifespan", "off", **shop)
        terminal.start(sys.executable, "manage.py", "stoker_worker")
        with httpx2.Client(base_url=web, timeout=SECONDS) as browser:
            task = browser.post("/orders/7").raise_for_status().json()["task"]
            assert outcome(terminal, int(task)) == "completed"
            assert browser.get(f"/tasks/{task}").json() == {
                "status": "SUCCESSFUL",
                "attempts": 1,
                "result": "order 7 is packed",
            }
        with stoker.connect(terminal.url) as queue:
            (thanks,) = queue.browse("mail").jobs
            result = queue.wait_job(thanks.id, SECONDS * 1000).result
        assert msgspec.msgpack.decode(result or b"") == "thanks for order 7, in attempt 2"


def test_orders_and_their_mails_are_committed_together(tmp_path: Path, database: str):
    with Terminal(tmp_path, "inbox_shop") as terminal:
        terminal.run("stoker", "inbox", "init", database)
        terminal.start("stoker", "inbox", "run", "--from", database)
        terminal.start("stoker", "worker", "shop:app")
        said = terminal.run(sys.executable, "shop.py", DATABASE=database)
    assert "thank you, Ada, for order 2" in said
    assert "Bob's second order was refused" in said
    assert said.endswith("mails: 2\n")
