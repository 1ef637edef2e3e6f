"""Tests of the jobs: the real queue in memory, under a clock that only the test moves."""

from jobs import app, remind, remove, welcome

from stoker.testing import harness


def test_a_new_user_is_welcome() -> None:
    with harness(app) as world:
        job = welcome.push_sync(7)
        world.assert_pushed(welcome, user_id=7)
        world.drain()
        assert job.result_sync() == "welcome, number 7"


def test_a_reminder_goes_out_as_soon_as_mail_works_again() -> None:
    with harness(app) as world:
        job = remind.options(delay="1d").push_sync(7)
        assert world.drain().ran == 0, "it is not due before tomorrow"
        world.advance("1d")
        assert world.drain().retried == (job.id,)
        world.run_for("1m")  # includes all attempts
        assert job.result_sync() == "reminded number 7 in attempt 3"


def test_nobody_is_removed() -> None:
    with harness(app) as world:
        job = remove.push_sync(7)
        assert world.drain().failed == (job.id,)
        assert world.client.list_dead("mail").jobs[0].error == "number 7 must not be removed"
