"""A queue with something of everything that a page can show, from texts that a test chooses."""

import time
from typing import Any
from urllib.parse import quote

import msgspec

from stoker.model import commands as c
from stoker.model.filters import JobFilter
from stoker.model.options import Options, RateLimit
from stoker.model.schedules import Schedule
from stoker.model.workers import WORKER_KEYS, WorkerView
from stoker.model.workflows import Edge, Step
from tests.http.support import HttpServer, wait_until


class Furnished(msgspec.Struct):
    """The ids of what was made."""

    waiting: int
    dead: int
    active: int
    completed: int
    workflow: int
    schedule: str

    def pages(self) -> list[str]:
        """Every page that shows any of it."""
        schedule = f"queue=reports&name={quoted(self.schedule)}"
        jobs = [f"/ui/jobs/{job}" for job in (self.waiting, self.dead, self.active, self.completed)]
        return [
            "/ui/",
            "/ui/queues",
            "/ui/queue?name=payments",
            "/ui/jobs",
            "/ui/jobs?state=failed&queue=payments",
            *jobs,
            f"/ui/jobs/{self.dead}/edit",
            "/ui/dead",
            "/ui/dead?queue=payments",
            "/ui/bulk",
            "/ui/bulk/one?key=b1",
            f"/ui/bulk/new?action=cancel&name={quoted(self.schedule)}",
            "/ui/workflows",
            f"/ui/workflows/{self.workflow}",
            "/ui/schedules",
            f"/ui/schedule?{schedule}",
            "/ui/workers",
            "/ui/events",
            "/ui/webhooks",
            "/ui/tenants",
            "/ui/server",
            f"/ui/search?q={quoted(self.schedule)}",
            f"/ui/jobs?name={quoted(self.schedule)}",
            "/ui/help",
            f"/ui/act/cancel?id={self.active}",
            f"/ui/act/copy?id={self.dead}",
            "/ui/act/drain?queue=mail",
            "/ui/act/rate?queue=mail",
            f"/ui/act/schedule-run?{schedule}",
            f"/ui/act/workflow-cancel?id={self.workflow}",
        ]


def quoted(text: str) -> str:
    return quote(text, safe="")


def furnish(server: HttpServer, word: str = "plain", tenant: str = "default") -> Furnished:
    """`word` is put into every field that takes any text."""

    def ask(command: c.Command[Any]) -> Any:
        return server.execute(command, tenant)

    label = "".join(letter for letter in word if letter.isprintable())  # names have nothing else
    options = Options(
        codec="json", name=label, tags=(word,), group_id=word, custom_id=f"{word} 1", trace=word, max_attempts=2
    )
    payload = msgspec.json.encode({word: word, "list": [1, None, {"deep": word}]})
    plain = msgspec.structs.replace(options, custom_id=None, group_id=None)
    dead = ask(c.Push("payments", payload, options)).id
    pulled = ask(c.Pull(["payments"], worker=word))
    ask(c.Fail([dead], pulled.token, word, word, f"Traceback:\n  {word}", retry=False))
    completed = ask(c.Push("payments", payload, plain)).id
    pulled = ask(c.Pull(["payments"], worker=word))
    ask(c.Ack([completed], pulled.token, [payload], "json"))
    active = ask(c.Push("payments", label.encode(), msgspec.structs.replace(plain, codec="bytes"))).id
    (delivered,) = ask(c.Pull(["payments"], worker=word))
    ask(c.SetProgress(active, 40, word, delivered.token))
    ask(c.AppendLog(active, word, word[:32], delivered.token))
    ask(c.AppendPartial(active, payload, None, delivered.token, "json"))
    waiting = ask(c.Push("mail", payload, plain)).id
    ask(c.Push("mail", msgspec.msgpack.encode({word: word}), msgspec.structs.replace(plain, codec="msgpack")))
    ask(c.Pause("mail"))
    ask(c.SetRateLimit("thumbnails", RateLimit(5, 1_000)))
    steps = [
        Step("etl", [payload], plain, key=label),
        Step("etl", [payload] * 3, plain, [Edge(0)], "many"),
        Step("etl", [payload], plain, [Edge(1)], "last"),
    ]
    workflow = ask(c.PushWorkflow(steps, label)).id
    ask(c.PutSchedule("reports", label, Schedule(cron="0 6 * * *", payload=payload, options=plain)))
    ask(c.RunSchedule("reports", label))
    ask(c.StartBulk("b1", "promote", JobFilter(tag=word)))
    wait_until(server, lambda: server.broker.execute(tenant, c.GetBulk("b1")).state == "done")  # pages tell of it
    now = round(time.time() * 1_000)
    view = WorkerView(
        id=word,
        host=word,
        pid=7,
        queues=("mail", "payments"),
        names=(word,),
        slots=8,
        running=1,
        done=12,
        failed=1,
        started_at=now - 60_000,
        seen_at=now,
        version=word,
    )
    ask(c.KvSet(f"{WORKER_KEYS}1", msgspec.json.encode(view), 0, "json"))
    return Furnished(waiting=waiting, dead=dead, active=active, completed=completed, workflow=workflow, schedule=label)
