"""What is said about how payloads and results are written comes back as it was said, and decides nothing."""

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.events import EventKind
from stoker.model.options import CODECS, Codec, Options
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import all_events, check_refused, finish, kill, push, push_many, start

every_codec = pytest.mark.parametrize("codec", CODECS)


def test_payloads_and_results_are_bytes_unless_somebody_says_otherwise(client: Client):
    job = client.get_job(finish(client, result=b"done"))
    assert (job.options.codec, job.result_codec) == ("bytes", "bytes")


@every_codec
def test_a_payload_keeps_its_codec_through_its_life(client: Client, codec: Codec):
    job = push(client, payload=b"1", codec=codec)
    assert client.get_job(job).options.codec == codec
    assert start(client).options.codec == codec
    client.fail(job, delay_ms=0)
    assert start(client).options.codec == codec
    client.fail(job, retry=False)
    assert client.list_dead("q").jobs[0].options.codec == codec
    client.retry_dead("q", [job])
    assert start(client).options.codec == codec


def test_jobs_of_a_batch_may_differ_in_their_codecs(client: Client):
    each = [Options(codec=codec) for codec in CODECS]
    client.push_batch("q", [b"1"] * 3, each=each)
    assert [job.options.codec for job in client.pull("q", 3)] == list(CODECS)


def test_a_codec_does_not_change_the_order(client: Client):
    jobs = [push(client, codec=codec) for codec in ("json", "bytes", "msgpack", "json")]
    assert list(client.pull("q", 4).ids) == jobs


def test_staged_payloads_keep_their_codec(client: Client):
    client.stage("tx", "a", "q", [b"1", b"2"], codec="json")
    client.publish("tx", ["a"])
    assert [job.options.codec for job in client.pull("q", 2)] == ["json", "json"]


@every_codec
def test_a_result_keeps_its_codec(world: ContractWorld, codec: Codec):
    client = world.client
    job = push(client)
    start(client)
    client.ack(job, result=b"1", codec=codec)
    assert (client.get_job(job).result, client.get_job(job).result_codec) == (b"1", codec)
    assert client.wait_job(job).result_codec == codec


@every_codec
def test_results_of_a_batch_keep_their_codec_and_missing_ones_have_none(client: Client, codec: Codec):
    ids = push_many(client, 4)
    client.pull("q", 4)
    client.ack_batch(ids, results=[b"1", None, b"", b"3"], codec=codec)
    found = [client.get_job(job) for job in ids]
    assert [job.result for job in found] == [b"1", None, b"", b"3"]
    assert [job.result_codec for job in found] == [codec, "bytes", codec, codec]


def test_a_codec_without_a_result_says_nothing(client: Client):
    job = push(client)
    start(client)
    client.execute(c.Ack([job], codec="json"))
    assert client.get_job(job).result_codec == "bytes"


@every_codec
def test_results_of_a_claim_keep_their_codec(client: Client, codec: Codec):
    first, second = push_many(client, 2)
    client.pull("q", 2, claim="mine")
    client.ack_claim("mine", {first: b"1"}, codec=codec)
    assert client.get_job(first).result_codec == codec
    assert client.get_job(second).result_codec == "bytes"


@every_codec
def test_partial_results_keep_their_codecs(client: Client, codec: Codec):
    job = push(client)
    start(client)
    client.append_partial(job, b"a", codec=codec)
    client.append_partial(job, b"b")
    assert [(chunk.data, chunk.codec) for chunk in client.get_partials(job)] == [(b"a", codec), (b"b", "bytes")]
    events = [event for event in all_events(client) if event.kind == EventKind.PARTIAL]
    assert [(event.data, event.codec) for event in events] == [(b"a", codec), (b"b", "bytes")]


@every_codec
def test_a_new_payload_may_bring_a_new_codec(client: Client, codec: Codec):
    job = push(client, codec="json")
    client.update_payload(job, b"2", codec)
    found = start(client)
    assert (found.payload, found.options.codec) == (b"2", codec)


def test_a_new_payload_without_a_codec_keeps_the_one_before(client: Client):
    job, dead = push(client, codec="json"), kill(client, "r", codec="msgpack")
    for one in (job, dead):
        client.update_payload(one, b"2")
    assert (client.get_job(job).options.codec, client.get_job(dead).options.codec) == ("json", "msgpack")


def test_another_codec_for_one_of_a_batch_leaves_the_others_alone(client: Client):
    ids = push_many(client, 3, codec="json")
    client.update_payload(ids[1], b"new", "msgpack")
    assert [job.options.codec for job in client.pull("q", 3)] == ["json", "msgpack", "json"]


@pytest.mark.parametrize("codec", ["xml", "", None, 1])
def test_an_unknown_codec_is_refused(world: ContractWorld, codec: Codec):
    job = push(world.client)
    start(world.client, claim="mine" if world.has_claims else None)
    commands: list[c.Command[object]] = [
        c.Push("q", b"", Options(codec=codec)),
        c.PushBatch("q", [b""], Options(codec=codec), atomic=True),
        c.Ack([job], codec=codec),
        c.Ack([job], results=[b""], codec=codec),
        c.AppendPartial(job, b"", codec=codec),
    ]
    if world.has_claims:
        commands.append(c.AckClaim("mine", {job: b""}, codec))
    if codec is not None:
        commands.append(c.UpdatePayload(job, b"", codec))
    for command in commands:
        check_refused(world, InvalidRequest, command)
