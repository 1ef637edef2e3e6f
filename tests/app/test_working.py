"""An app and a worker: declared jobs run."""

import os
from collections.abc import Iterator

import pytest

from stoker import JobFailed, State, workflow
from stoker.worker.errors import BadArguments
from tests.app import shop
from tests.app.kinds import Address, User

ANN = User("Ann", [Address("High St", 7)])


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STOKER_TEST_PID", str(os.getpid()))
    shop.diary.clear()
    with shop.app:
        yield


def work(*names: str) -> None:
    shop.app.worker(jobs=names, registered=False).run_until_idle()


def test_a_coroutine_gets_its_arguments_as_their_types():
    job = shop.welcome.push_sync(ANN, loud=True)
    work("welcome")
    assert job.result_sync(5) == "WELCOME ANN OF HIGH ST"


def test_jobs_under_an_old_name_are_still_run():
    payload, options = shop.welcome.written((ANN,), {})
    old = shop.app.client.push("mail", payload, options, name="greet")
    work("welcome")
    assert shop.app.handle(old.id).result_sync(5) == "welcome Ann of High St"


def test_json_of_another_language_is_run():
    pushed = shop.app.client.push(
        "mail", b'{"user": {"name": "Bob", "address": [{"street": "Low St", "zip": 1}]}}', codec="json"
    )
    work("welcome")
    assert shop.app.handle(pushed.id).result_sync(5) == "welcome Bob of Low St"


def test_json_that_does_not_fit_is_a_dead_letter_that_says_why():
    pushed = shop.app.client.push(
        "mail", b'{"user": {"name": "Bob", "address": [{"street": "x", "zip": "y"}]}}', codec="json", name="welcome"
    )
    work("welcome")
    with pytest.raises(JobFailed, match=r"user.address\[0\].zip: expected `int`, got `str`") as caught:
        shop.app.handle(pushed.id).result_sync(5)
    assert caught.value.attempts == 1
    assert caught.value.error_class == f"{BadArguments.__module__}.{BadArguments.__name__}"


def test_a_plain_function_with_a_context_tells_of_itself():
    job = shop.where.push_sync("High St", zip=7)
    work("where")
    assert job.result_sync(5) == Address("High St", 7)
    assert (job.progress_sync().percent, job.progress_sync().message) == (50, "half way")
    assert "in High St" in [line.message for line in job.logs_sync()]
    assert list(job.stream_sync()) == [{"street": "High St"}, b"raw"]


def test_dependencies_are_made_and_cleaned_up():
    found, missing = shop.look_up.push_sync("Ann"), shop.look_up.options(max_attempts=1).push_sync("Bob")
    shop.write.push_sync("hello")
    work("look_up", "write")
    assert found.result_sync(5) == 1
    with pytest.raises(JobFailed, match="KeyError"):
        missing.result_sync(5)
    assert sorted(shop.diary) == [
        "before look_up", "before look_up", "closed", "closed", "opened", "opened", "written ['hello']",
    ]  # fmt: skip


def test_a_function_in_another_process_is_the_same_function():
    jobs = shop.heavy.push_batch_sync([3, 4])
    flow = workflow([shop.heavy.s(1), shop.heavy.s(2)] >> shop.heavy_sum.s()).push_sync()
    work("heavy", "heavy_sum")
    assert jobs.results_sync(10) == [(9, True), (16, True)]
    assert flow.result_sync(10) == 5


def test_a_batch_has_a_result_or_an_error_for_each():
    jobs = shop.lengths.options(max_attempts=1).push_batch_sync(["a", "", "ccc"])
    work("lengths")
    assert (jobs[0].result_sync(5), jobs[2].result_sync(5)) == (1, 3)
    with pytest.raises(JobFailed, match="ValueError: empty"):
        jobs[1].result_sync(5)


def test_a_failing_attempt_is_tried_again():
    good, bad = shop.flaky.push_sync(2), shop.flaky.push_sync(3)
    work("flaky")
    assert good.result_sync(5) == 3
    with pytest.raises(JobFailed, match=r"has failed after 3 attempts.*ConnectionError: attempt 3"):
        bad.result_sync(5)


def test_a_handler_decides_how_its_job_ends():
    cancelled, dead = shop.unwanted.push_batch_sync(["cancel", "dead"])
    work("unwanted")
    assert cancelled.wait_sync(5) is State.CANCELLED
    with pytest.raises(JobFailed, match=r"has failed after 1 attempt \(explicit_fail\).*bad address"):
        dead.result_sync(5)
