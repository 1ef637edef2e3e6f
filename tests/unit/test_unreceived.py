"""What goes back when a client does not receive the jobs of its pull: one function decides it for every transport."""

import re
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Unknown
from stoker.model.options import DEFAULT_OPTIONS
from stoker.model.unreceived import release_of
from stoker.runtime import process_requests

PULL = c.Pull(("q",), 3, 1_000)
CLAIMED = c.Pull(("q",), 3, 1_000, claim="mine")


def run_of(ids: Any) -> r.Run:
    return r.Run("q", ids, [b""] * len(ids), DEFAULT_OPTIONS, 1, 0, 60_000)


ONE_RUN = r.Delivery(7, [run_of(range(1, 4))])
TWO_RUNS = r.Delivery(7, [run_of([1]), run_of([2, 3])])

RELEASES_ELSEWHERE = {
    "model/commands.py",  # the command itself
    "wire/flashq/requests/consuming.py",  # flashQ's request of that name
    "client/sync.py",  # methods of the client
    "client/aio.py",
    "worker/settle_commands.py",  # jobs that a worker received, and hands back
    "wire/flashq/consuming.py",  # requests of clients
    "server/grpc/messages.py",
    "server/grpc/queue.py",
    "proto/stoker_pb2_grpc.py",
    "runtime/runtime.py",  # all running jobs, when a server stops
    "brokers/redis/leases.py",  # those that were pulled through a server, when it stops
}


@pytest.mark.parametrize("delivery", [ONE_RUN, TWO_RUNS])
def test_the_jobs_of_a_pull_go_back_under_their_token(delivery: r.Delivery):
    back = release_of(PULL, delivery)
    assert back is not None
    assert (list(back.ids), back.tokens) == ([1, 2, 3], 7)


@pytest.mark.parametrize(
    ("part", "reply"),
    [
        (process_requests.Take(PULL, 7), process_requests.TakenJobs(TWO_RUNS)),
        (process_requests.Await(PULL, ["q"]), TWO_RUNS),
    ],
    ids=["take", "await"],
)
def test_so_do_those_of_its_part_in_another_process(part: Any, reply: Any):
    assert release_of(part, reply) == c.Release([1, 2, 3], 7)


def test_only_jobs_that_the_client_has_not_received_go_back():
    assert release_of(PULL, TWO_RUNS, received=2) == c.Release([3], 7)
    assert release_of(PULL, TWO_RUNS, received=3) is None


def test_a_claim_stays_because_it_can_be_asked_for_again():
    assert release_of(CLAIMED, TWO_RUNS) is None
    assert release_of(process_requests.Await(CLAIMED, ["q"]), TWO_RUNS) is None
    assert release_of(CLAIMED, TWO_RUNS, claimed=True) == c.Release([1, 2, 3], 7)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (PULL, r.Delivery(next_at=5)),
        (process_requests.Take(PULL, 7), process_requests.TakenJobs(r.Delivery(), late=True)),
        (PULL, Unknown("it is not known")),
        (PULL, None),
        (c.GetJob(1), TWO_RUNS),
    ],
)
def test_where_no_job_was_given_out_nothing_goes_back(command: Any, reply: Any):
    assert release_of(command, reply, claimed=True) is None


def test_no_other_module_decides_what_goes_back():
    """A new transport asks `release_of`. A module that releases jobs for another reason stands in the list above."""
    source = Path(stoker.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\bRelease\(", path.read_text(encoding="utf-8"))
    }
    assert found - RELEASES_ELSEWHERE == {"model/unreceived.py"}
