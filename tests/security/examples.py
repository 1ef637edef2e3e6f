"""One example of every command in both dialects, about things that a tenant has. A command without one fails a test."""

from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker
from stoker.model import commands as c
from stoker.model.options import Dependency, Options
from stoker.model.schedules import Schedule
from stoker.model.workflows import Edge, Step
from tests.security.support import CANARY


class Things(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has, by the names and numbers that others may guess."""

    waiting: int = 64 * 900
    delayed: int = 64 * 901
    active: int = 64 * 902
    token: int = 7
    claimed: int = 64 * 903
    dead: int = 64 * 904
    ended: int = 64 * 905
    parent: int = 64 * 906
    queue: str = "work"
    custom_id: str = "mine"
    claim: str = "claim"
    transaction: str = "tx"
    stage: str = "stage"
    key: str = "key"
    request_key: str = "once"
    schedule: str = "nightly"
    workflow: int = 64 * 907
    step: int = 64 * 908
    step_token: int = 0


def furnish(broker: LocalBroker, tenant: str) -> Things:
    """One thing of every kind, with a word in each that nobody else may see."""

    def ask(command: c.Command[Any]) -> Any:
        return broker.execute(tenant, command)

    secret = CANARY.encode()

    def push(queue: str = "work", **options: Any) -> int:
        return int(ask(c.Push(queue, secret, Options(tags=(CANARY,), **options))).id)

    def pull(**more: Any) -> Any:
        return ask(c.Pull(["work"], worker=CANARY, lease_ms=3_600_000, **more))

    ended, dead = push(), push(max_attempts=1)
    delivery = pull(count=2)
    ask(c.Ack([ended], delivery.token, [secret]))
    ask(c.Fail([dead], delivery.token, error=CANARY))
    active, claimed = push(), push()
    delivery, _ = pull(), pull(claim="claim")
    ask(c.SetProgress(active, 50, CANARY, delivery.token))
    ask(c.AppendLog(active, CANARY, token=delivery.token))
    ask(c.AppendPartial(active, secret, token=delivery.token))
    waiting = push(custom_id="mine", unique_key="unique", group_id="group")
    delayed = push(delay_ms=3_600_000, debounce_id="debounce")
    parent = push(depends_on=(Dependency(waiting),))
    push("other")
    ask(c.PushBatch("other", [secret], request_key="once"))
    ask(c.Stage("tx", "stage", "work", [secret]))
    ask(c.KvSet("key", secret))
    ask(c.KvSet("number", b"5"))
    ask(c.SetConcurrency("other", 3))
    steps = [Step("steps", [secret], key="first"), Step("steps", after=(Edge(0),), key="later", open=True)]
    pushed = ask(c.PushWorkflow(steps, name=CANARY))
    workflow, (step, _) = pushed.id, pushed.steps[0]
    step_token = ask(c.Pull(["steps"], lease_ms=3_600_000)).token
    ask(c.PutSchedule("work", "nightly", Schedule(every_ms=3_600_000, payload=secret, options=Options(tags=(CANARY,)))))
    return Things(
        waiting=waiting,
        delayed=delayed,
        active=active,
        token=delivery.token,
        claimed=claimed,
        dead=dead,
        ended=ended,
        parent=parent,
        workflow=workflow,
        step=step,
        step_token=step_token,
    )


def native_examples(at: Things) -> dict[str, dict[str, Any]]:
    queue, proof = {"queue": at.queue}, {"ids": [at.active], "tokens": at.token}
    named = {**queue, "name": at.schedule}
    return {
        "push": {**queue, "payload": "", "options": {"custom_id": at.custom_id}},
        "push_batch": {"queue": "other", "payloads": ["", ""], "request_key": at.request_key},
        "stage": {"transaction": at.transaction, "stage": at.stage, **queue, "payloads": [""]},
        "push_workflow": {"steps": [{**queue, "payloads": [""]}]},
        "fill_step": {"id": at.step, "step": "later", "payloads": [""], "token": at.step_token},
        "get_inputs": {"id": at.step},
        "get_workflow": {"id": at.workflow},
        "list_workflows": {},
        "cancel_workflow": {"id": at.workflow},
        "retry_workflow": {"id": at.workflow},
        "read_records": {},
        "publish": {"transaction": at.transaction, "stages": [at.stage]},
        "abort": {"transaction": at.transaction},
        "pull": {"queues": [at.queue], "claim": at.claim, "count": 5},
        "ack": proof,
        "fail": {**proof, "error": "x"},
        "release": proof,
        "extend": {**proof, "lease_ms": 1},
        "ack_claim": {"claim": at.claim},
        "release_claim": {"claim": at.claim},
        "extend_claim": {"claim": at.claim, "lease_ms": 1},
        "set_progress": {"id": at.active, "percent": 1, "token": at.token},
        "append_log": {"id": at.active, "message": "x", "token": at.token},
        "append_partial": {"id": at.active, "data": "", "token": at.token},
        "get_job": {"id": at.active},
        "find_job": {"custom_id": at.custom_id},
        "get_logs": {"id": at.active},
        "get_partials": {"id": at.active},
        "wait_job": {"id": at.ended, "wait_ms": 0},
        "browse": {},
        "count_jobs": {},
        "why": {"id": at.waiting},
        "list_queues": {},
        "get_queue": queue,
        "get_stats": {},
        "get_story": {"id": at.active},
        "read_events": {},
        "pause": queue,
        "resume": queue,
        "set_rate_limit": {**queue, "limit": {"count": 1}},
        "set_concurrency": {**queue, "limit": 1},
        "set_queue_policy": {**queue, "group_on_retry": "skip"},
        "cancel": {"id": at.active},
        "promote": {"id": at.delayed},
        "change_priority": {"id": at.waiting, "priority": 9},
        "move_to_delayed": {"id": at.active, "delay_ms": 1, "token": at.token},
        "update_payload": {"id": at.waiting, "payload": ""},
        "discard": {"id": at.waiting},
        "delete_job": {"id": at.dead},
        "drain": {**queue, "delayed": True},
        "clean": {**queue, "state": "completed"},
        "obliterate": {**queue, "force": True},
        "list_dead": queue,
        "get_dead_stats": queue,
        "get_dead_groups": queue,
        "get_priorities": queue,
        "get_timings": queue,
        "start_bulk": {"key": "bulk", "action": "retry", "filter": queue},
        "get_bulk": {"key": "bulk"},
        "stop_bulk": {"key": "bulk"},
        "list_bulks": {},
        "get_history": queue,
        "get_queues": {},
        "get_trends": {"queues": [queue["queue"]]},
        "retry_dead": {**queue, "ids": [at.dead]},
        "purge_dead": {**queue, "ids": [at.dead]},
        "kv_set": {"key": at.key, "value": ""},
        "kv_set_many": {"entries": [{"key": at.key, "value": ""}]},
        "kv_get": {"key": at.key},
        "kv_get_many": {"keys": [at.key]},
        "kv_exists": {"keys": [at.key]},
        "kv_ttl": {"key": at.key},
        "kv_keys": {"pattern": "*"},
        "kv_delete": {"keys": [at.key]},
        "kv_expire": {"key": at.key, "ttl_ms": 1_000_000},
        "kv_increment": {"key": "number"},
        "put_schedule": {**named, "schedule": {"every_ms": 60_000}},
        "get_schedule": named,
        "list_schedules": {},
        "pause_schedule": named,
        "resume_schedule": named,
        "run_schedule": named,
        "delete_schedule": named,
    }


def flashq_examples(at: Things) -> dict[str, dict[str, Any]]:
    queue, active = {"queue": at.queue}, {"id": at.active, "token": at.token}
    waiting, key = {"id": at.waiting}, {"key": at.key}
    return {
        "PUSH": {**queue, "data": 1, "jobId": at.custom_id},
        "PUSHB": {**queue, "jobs": [{"data": 1}]},
        "FLOW": {**queue, "data": 1, "children": [{"data": 2}]},
        "WORKFLOW": {"steps": [{**queue, "jobs": [{"data": 1}]}]},
        "PULL": {**queue, "timeout": 0, "claim": at.claim},
        "PULLB": {**queue, "count": 3, "timeout": 0},
        "ACK": active,
        "ACKB": {"ids": [at.active], "tokens": at.token},
        "FAIL": active,
        "RELEASE": active,
        "HEARTBEAT": active,
        "PROGRESS": {**active, "progress": 3},
        "LOG": {**active, "message": "x"},
        "PARTIAL": {**active, "data": 1},
        "FILLSTEP": {"id": at.step, "step": "later", "jobs": [{"data": 1}], "token": at.step_token},
        "GETINPUTS": {"id": at.step},
        "WORKFLOWLIST": {},
        "WORKFLOWGET": {"id": at.workflow},
        "WORKFLOWCANCEL": {"id": at.workflow},
        "WORKFLOWRETRY": {"id": at.workflow},
        "GETJOB": {"id": at.active},
        "GETSTATE": {"id": at.active},
        "GETRESULT": {"id": at.ended},
        "GETJOBBYCUSTOMID": {"job_id": at.custom_id},
        "GETJOBSBATCH": {"ids": [at.active, at.waiting, at.dead]},
        "GETJOBS": {},
        "GETJOBCOUNTS": queue,
        "COUNT": queue,
        "ISPAUSED": {"queue": "other"},
        "WAITJOB": {"id": at.ended, "timeout": 0},
        "GETPROGRESS": {"id": at.active},
        "GETLOGS": {"id": at.active},
        "GETPARTIALS": {"id": at.active},
        "GETCHILDREN": {"parent_id": at.parent},
        "WHY": waiting,
        "STORY": {"id": at.active},
        "LISTQUEUES": {},
        "QUEUE": {"queue": "other"},
        "STATS": {},
        "METRICS": {},
        "DLQ": queue,
        "DLQSTATS": queue,
        "PRIORITIES": queue,
        "TIMINGS": queue,
        "BULKSTART": {"key": "bulk", "action": "retry", "filter": queue},
        "BULKGET": {"key": "bulk"},
        "BULKSTOP": {"key": "bulk"},
        "BULKLIST": {},
        "DLQGROUPS": queue,
        "COUNTJOBS": {},
        "HISTORY": queue,
        "CRONLIST": {},
        "CANCEL": waiting,
        "PROMOTE": {"id": at.delayed},
        "DISCARD": waiting,
        "UPDATEJOB": {**waiting, "data": 1},
        "CHANGEPRIORITY": {**waiting, "priority": 1},
        "MOVETODELAYED": {**active, "delay": 1},
        "PAUSE": queue,
        "RESUME": queue,
        "RATELIMIT": {**queue, "limit": 1},
        "RATELIMITCLEAR": queue,
        "SETCONCURRENCY": {**queue, "limit": 1},
        "CLEARCONCURRENCY": queue,
        "SETPOLICY": {**queue, "concurrency": 2},
        "DRAIN": {**queue, "delayed": True},
        "CLEAN": queue,
        "OBLITERATE": queue,
        "RETRYDLQ": {**queue, "id": at.dead},
        "PURGEDLQ": queue,
        "CRON": {"name": "c", **queue, "schedule": "* * * * *"},
        "CRONGET": {"name": at.schedule},
        "CRONPAUSE": {"name": at.schedule},
        "CRONRESUME": {"name": at.schedule},
        "CRONRUN": {"name": at.schedule},
        "CRONDELETE": {"name": at.schedule},
        "KVSET": {**key, "value": 1},
        "KVMSET": {"entries": [{**key, "value": 1}]},
        "KVGET": key,
        "KVMGET": {"keys": [at.key]},
        "KVEXISTS": key,
        "KVTTL": key,
        "KVKEYS": {},
        "KVDEL": key,
        "KVEXPIRE": {**key, "ttl": 1_000_000},
        "KVINCR": {"key": "number"},
        "PING": {},
        "HELLO": {},
        "SUBSCRIBE": {},
        "UNSUBSCRIBE": {},
    }


NOT_SENT = {"AUTH": "it changes who asks, and has tests of its own"}


def requests_of(at: Things) -> list[tuple[str, dict[str, Any]]]:
    """Every command, in the order of the examples."""
    native = [(cmd, {"body": body}) for cmd, body in native_examples(at).items()]
    return [*native, *flashq_examples(at).items()]
