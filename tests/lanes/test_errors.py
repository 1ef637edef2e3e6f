"""Errors as text that every queue takes."""

import os

import pytest

from stoker.client.sync import Client
from stoker.model.states import State
from stoker.worker.outcomes import Dead
from stoker.worker.worker import Worker
from tests.worker.running import handler, push

NAME = os.fsdecode(b"caf\xe9 \xff")


@pytest.mark.parametrize("error", [ValueError(NAME), Dead(NAME)])
def test_an_error_that_names_an_odd_file_still_ends_its_job(queue: Client, error: Exception):
    def fail() -> None:
        raise error

    job = push(queue, "fail", max_attempts=1)
    Worker(queue, [handler(fail)], registered=False).run_until_idle()
    view = queue.get_job(job)
    assert (view.state, view.error) == (State.FAILED, "caf\\udce9 \\udcff")
