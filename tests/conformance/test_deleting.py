"""Deleting one job that has ended."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import NotFound, WrongState
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import NEVER, check_refused, finish, kill, push, push_many, start


def test_a_job_that_has_ended_is_forgotten(client: Client):
    done, dead, kept, cancelled = finish(client), kill(client), finish(client), push(client)
    client.cancel(cancelled)
    for job in (done, dead, cancelled):
        client.delete_job(job)
        with pytest.raises(NotFound):
            client.get_job(job)
    counts = client.get_counts("q")
    assert (counts.completed, counts.failed, counts.cancelled) == (1, 0, 0)
    assert client.get_job(kept).state == "completed"


def test_one_job_of_a_batch_is_forgotten_and_its_neighbours_stay(client: Client):
    ids = push_many(client, 4)
    pulled = client.pull("q", 4)
    client.ack_batch(pulled.ids, pulled.token)
    client.delete_job(ids[1])
    assert [job.id for job in client.browse("q").jobs] == [ids[3], ids[2], ids[0]]


def test_a_job_that_has_not_ended_stays(world: ContractWorld):
    waiting, delayed = push(world.client), push(world.client, delay_ms=500)
    check_refused(world, WrongState, c.DeleteJob(waiting))
    check_refused(world, WrongState, c.DeleteJob(delayed))
    check_refused(world, WrongState, c.DeleteJob(start(world.client).id))


def test_a_job_that_is_not_there_or_of_another_tenant_is_not_found(world: ContractWorld):
    done = finish(world.client)
    check_refused(world, NotFound, c.DeleteJob(NEVER))
    with pytest.raises(NotFound):
        world.client.as_tenant("other").delete_job(done)
    world.client.delete_job(done)
    check_refused(world, NotFound, c.DeleteJob(done))
