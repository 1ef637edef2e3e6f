"""Between the messages of `stoker.proto` and the values of the contract. Nothing is decided here.

What comes in is checked as every transport's input is: by the types of the contract, then by the queue.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest
from stoker.model.options import DEFAULT_OPTIONS, Backoff, Dependency, Options
from stoker.proto import stoker_pb2 as pb

IDS_MAX = 1_000_000
"""A range is a few bytes however long it is; the queue's own limit on a batch is far below."""

# --- what comes in -----------------------------------------------------------------------------------


def read_options(message: Any) -> Options:
    said = {field.name: value for field, value in message.ListFields()}
    if not said:
        return DEFAULT_OPTIONS
    if "backoff" in said:
        said["backoff"] = {field.name: value for field, value in said["backoff"].ListFields()}
    if "depends_on" in said:
        said["depends_on"] = [{field.name: value for field, value in edge.ListFields()} for edge in said["depends_on"]]
    if "tags" in said:
        said["tags"] = list(said["tags"])
    options: Options = converted(said, Options)
    return options


def converted(value: Any, kind: type) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid {kind.__name__.lower()}: {error}") from None


def read_ids(message: Any) -> Sequence[int]:
    ranges, listed = message.ranges, message.list
    if len(ranges) == 1 and not listed:
        return read_range(ranges[0])
    if not ranges:
        return list(listed)
    total = len(listed) + sum(part.count for part in ranges)
    if total > IDS_MAX:
        raise InvalidRequest(f"invalid ids: {total} of them, at most {IDS_MAX} are taken")
    return [job_id for part in ranges for job_id in read_range(part)] + list(listed)


def read_range(message: Any) -> range:
    start, count, step = message.start, message.count, message.step or 1
    if count < 0 or start < 0 or step < 0:
        raise InvalidRequest("invalid ids: the start, the count and the step of a range are not negative")
    if count > IDS_MAX:
        raise InvalidRequest(f"invalid ids: {count} of them, at most {IDS_MAX} are taken")
    return range(start, start + count * step, step)


def read_tokens(tokens: Any) -> int | list[int] | None:
    """None where there is none: whether that is allowed is not ours to say."""
    if len(tokens) == 1:
        return int(tokens[0])
    return list(tokens) or None


def optional(message: Any, *names: str) -> dict[str, Any]:
    """Those of the fields that are set."""
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def level_of(message: Any) -> dict[str, Any]:
    return {"durability": converted(message.durability, r.Level)} if message.HasField("durability") else {}  # type: ignore[arg-type]


def push(message: Any) -> c.Push:
    return c.Push(message.queue, message.payload, read_options(message.options), **level_of(message))


def push_batch(message: Any) -> c.PushBatch:
    return c.PushBatch(
        message.queue,
        list(message.payloads),
        read_options(message.options),
        [read_options(each) for each in message.each] if message.each else None,
        message.atomic,
        **optional(message, "request_key"),
        **level_of(message),
    )


def pull(message: Any) -> c.Pull:
    return c.Pull(list(message.queues), 1, message.wait_ms, message.worker, **optional(message, "lease_ms"))


def pull_batch(message: Any) -> c.Pull:
    return c.Pull(
        list(message.queues),
        message.count,
        message.wait_ms,
        message.worker,
        **optional(message, "lease_ms", "claim"),
    )


def ack(message: Any) -> c.Ack:
    results = [message.result] if message.HasField("result") else None
    return c.Ack([message.id], message.token, results, **optional(message, "codec"))


def ack_batch(message: Any) -> c.Ack:
    ids, tokens = read_ids(message.ids), read_tokens(message.tokens)
    return c.Ack(ids, tokens, list(message.results) or None, **optional(message, "codec"))


def fail(message: Any) -> c.Fail:
    return c.Fail(
        read_ids(message.ids),
        read_tokens(message.tokens),
        message.error,
        message.error_class,
        message.stack,
        reason=message.reason,
        **optional(message, "retry", "delay_ms"),
    )


def release(message: Any) -> c.Release:
    return c.Release(read_ids(message.ids), read_tokens(message.tokens), message.delay_ms)


def extend(message: Any) -> c.Extend:
    return c.Extend(read_ids(message.ids), read_tokens(message.tokens), **optional(message, "lease_ms"))


def get_job(message: Any) -> c.GetJob:
    return c.GetJob(message.id)


def get_stats(message: Any) -> c.GetStats:
    return c.GetStats(**optional(message, "queue"))


def result(message: Any) -> c.Ack | c.Fail | c.Release:
    """One of a worker's results on its stream."""
    outcome = message.WhichOneof("outcome")
    ids, token = [message.id], message.token
    if outcome == "done":
        done = message.done
        return c.Ack(ids, token, [done.result] if done.HasField("result") else None, **optional(done, "codec"))
    if outcome == "failure":
        told = message.failure
        said = optional(told, "retry", "delay_ms")
        return c.Fail(ids, token, told.error, told.error_class, told.stack, reason=told.reason, **said)
    if outcome == "handback":
        return c.Release(ids, token, message.handback.delay_ms)
    raise InvalidRequest("invalid result: expected one of done, failure and handback")


# --- what goes out -----------------------------------------------------------------------------------


def shown_options(options: Options) -> Any:
    """Only what differs from the defaults, as on every transport."""
    if options is DEFAULT_OPTIONS:
        return None
    message = pb.Options()
    for name in Options.__struct_fields__:
        value = getattr(options, name)
        if value == getattr(DEFAULT_OPTIONS, name):
            continue
        if name == "backoff":
            message.backoff.CopyFrom(shown_backoff(value))
        elif name == "depends_on":
            message.depends_on.extend(shown_edge(edge) for edge in value)
        elif name == "tags":
            message.tags.extend(value)
        else:
            setattr(message, name, value)
    return message


def shown_backoff(backoff: Backoff) -> Any:
    return pb.Backoff(kind=backoff.kind, base_ms=backoff.base_ms, cap_ms=backoff.cap_ms, jitter=backoff.jitter)


def shown_edge(edge: Dependency) -> Any:
    return pb.Dependency(id=edge.id, on_failure=edge.on_failure, item=edge.item)


def shown_ids(ids: Sequence[int]) -> Any:
    if type(ids) is range:
        return pb.Ids(ranges=(pb.IdRange(start=ids.start, count=len(ids), step=ids.step),))
    return pb.Ids(list=ids)


def pushed(reply: r.Pushed) -> Any:
    return pb.PushReply(id=reply.id, created=reply.created, duplicate_by=reply.duplicate_by, level=reply.level)


def pushed_batch(reply: r.PushedBatch) -> Any:
    refused = {item: pb.Refusal(code=refusal.code, message=refusal.message) for item, refusal in reply.refused.items()}
    return pb.PushBatchReply(
        ids=shown_ids(reply.ids), refused=refused, duplicates=dict(reply.duplicates), level=reply.level
    )


def pulled(delivery: r.Delivery) -> Any:
    message = pb.PullReply(next_at=delivery.next_at)
    for job in delivery:
        message.job.CopyFrom(shown_job(job))
    return message


def shown_job(job: r.DeliveredJob) -> Any:
    return pb.Job(
        id=job.id,
        token=job.token,
        queue=job.queue,
        payload=job.payload,
        options=shown_options(job.options),
        attempt=job.attempt,
        pushed_at=job.pushed_at,
        lease_until=job.lease_until,
    )


def delivered(delivery: r.Delivery) -> Any:
    return pb.Delivery(token=delivery.token, runs=[shown_run(run) for run in delivery.runs], next_at=delivery.next_at)


def shown_run(run: r.Run) -> Any:
    return pb.Run(
        queue=run.queue,
        ids=shown_ids(run.ids),
        payloads=run.payloads,
        options=shown_options(run.options),
        attempt=run.attempt,
        pushed_at=run.pushed_at,
        lease_until=run.lease_until,
    )


def settled(reply: r.Settled) -> Any:
    return pb.Settled(count=reply.count, refused=dict(reply.refused), level=reply.level)


def failed(reply: r.Failed) -> Any:
    jobs = [pb.FailedJob(id=job.id, state=job.state, due=job.due) for job in reply.jobs]
    return pb.Failed(jobs=jobs, refused=dict(reply.refused), level=reply.level)


def settled_by(reply: r.Settled | r.Failed) -> Any:
    """The outcome of a worker's result of any kind."""
    count = len(reply.jobs) if isinstance(reply, r.Failed) else reply.count
    return pb.Settled(count=count, refused=dict(reply.refused), level=reply.level)


def extended(reply: r.Extended) -> Any:
    return pb.Extended(
        count=reply.count, lease_until=reply.lease_until, refused=dict(reply.refused), cancelled=reply.cancelled
    )


def job_view(view: r.JobView) -> Any:
    message = pb.JobView(**plain(view, skip=("options", "progress", "history", "dead")))
    message.progress.CopyFrom(pb.Progress(percent=view.progress.percent, message=view.progress.message))
    message.history.extend(pb.Attempt(**plain(attempt)) for attempt in view.history)
    options = shown_options(view.options)
    if options is not None:
        message.options.CopyFrom(options)
    if view.dead is not None:
        message.dead.CopyFrom(pb.DeadLetter(**plain(view.dead)))
    return message


def state(view: r.JobView) -> Any:
    return pb.GetStateReply(state=view.state)


def stats(reply: r.Stats) -> Any:
    return pb.StatsReply(
        counts=pb.Counts(**plain(reply.counts)),
        totals=pb.Totals(**plain(reply.totals)),
        **plain(reply, skip=("counts", "totals")),
    )


def plain(value: Any, skip: Sequence[str] = ()) -> Mapping[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__ if name not in skip}
