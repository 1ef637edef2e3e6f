"""What the pages tell: filters, counts, reasons, groups of dead letters, payloads that can be edited or not."""

import json
import re
from html import unescape
from pathlib import Path

import msgspec
import pytest

from stoker.journal import doctor
from stoker.model import commands as c
from stoker.model.options import DeadLetterPolicy, Options, RateLimit
from stoker.model.replies import Counts, QueueSummary, QueueView, Stats, Totals
from stoker.server.config.tree import DashboardSettings
from stoker.server.dashboard import payloads
from stoker.server.dashboard.drawing import spans_of, timeline
from stoker.server.dashboard.facts import attention
from tests.dashboard.visitor import Visitor
from tests.http.support import HttpServer, wait_until

HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def failed(server: HttpServer, queue: str, error: str, count: int = 1) -> list[int]:
    ids = server.execute(c.PushBatch(queue, [b"{}"] * count)).ids
    pulled = server.execute(c.Pull([queue], count))
    server.execute(c.Fail(list(pulled.ids), pulled.token, error, "ValueError", retry=False))
    return list(ids)


def test_jobs_are_found_by_what_is_in_them_and_counted(serve):
    server: HttpServer = serve(shards=1)
    for number in range(120):
        server.execute(c.Push("mail", json.dumps({"order": f"order-{number}"}).encode()))
    visitor = Visitor(server)
    assert "120 jobs" in visitor.get("/ui/jobs?queue=mail").words
    found = visitor.get("/ui/jobs?text=order-77%22").words
    assert "1 job with text order-77" in found  # or "at least", on a busy machine
    pushed = visitor.get("/ui/jobs?queue=mail&pushed_since=1h").words
    assert "120 jobs" in pushed


def test_a_list_goes_on_after_its_last_job(server: HttpServer):
    ids = list(server.execute(c.PushBatch("mail", [b""] * 120)).ids)
    visitor, path, seen = Visitor(server), "/ui/jobs?queue=mail", list[int]()
    for _ in range(3):
        page = visitor.get(path).text
        seen += [int(part.split('"')[0]) for part in page.split('id="job-')[1:]]
        path = page.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert seen == ids[::-1]
    assert path == ""


def test_empty_pages_say_what_to_do_next(server: HttpServer):
    visitor = Visitor(server)
    assert "There are no jobs yet. Push a first one: stoker push mail" in visitor.get("/ui/jobs").words
    assert "No job matches. Show all jobs" in visitor.get("/ui/jobs?queue=mail").words
    assert "A job comes here when its attempts are used up." in visitor.get("/ui/dead").words
    assert "A token names its tenant: stoker token create" in visitor.get("/ui/tenants").words


def test_the_overview_folds_what_needs_attention(server: HttpServer):
    for number in range(9):
        server.execute(c.Push(f"q{number}", b""))
    page = Visitor(server).get("/ui/")
    assert "3 more" in page.words
    folded = page.text.partition("<details id=")[2]
    assert [name for name in ("q5", "q6", "q7", "q8") if f"pulls from {name}," in folded] == ["q6", "q7", "q8"]


def test_hidden_payloads_cannot_be_searched(serve):
    for settings in (DashboardSettings(payloads="hidden"), DashboardSettings(redact=("password",))):
        assert Visitor(serve(dashboard=settings)).get("/ui/jobs?text=secret").status == 403


def test_dead_letters_are_grouped_by_their_error(server: HttpServer):
    failed(server, "mail", "no user 17", 3)
    failed(server, "mail", "no user 99", 2)
    (other,) = failed(server, "mail", "the disk is full")
    words = Visitor(server).get("/ui/dead").words
    assert "no user" in words
    assert "disk is full" in words
    assert str(other) in words
    assert words.count("mail explicit_fail") == 2


def test_a_group_of_dead_letters_is_retried_and_no_other(server: HttpServer):
    mine, others = failed(server, "mail", "no user 17", 3), failed(server, "mail", "the disk is full", 2)
    visitor = Visitor(server)
    page = visitor.get("/ui/dead").text
    (link,) = {
        unescape(part.partition('"')[0])
        for part in page.split('href="/ui/bulk/new?')[1:]
        if "action=retry" in part.partition('"')[0] and "user" in part.partition('"')[0]
    }
    seen = visitor.get(f"/ui/bulk/new?{link}")
    assert "3 jobs with" in seen.words
    fields = {
        name: unescape(value) for name, value in HIDDEN.findall(seen.text.partition("<main")[2]) if name != "csrf"
    }
    done = visitor.post("/ui/bulk/start", fields)
    assert (done.status, done.headers["location"]) == (303, f"/ui/bulk/one?key={fields['key']}")
    wait_until(server, lambda: server.broker.execute("default", c.GetBulk(fields["key"])).state == "done")
    assert {server.execute(c.GetJob(job)).state for job in mine} == {"waiting"}
    assert {server.execute(c.GetJob(job)).state for job in others} == {"failed"}
    assert visitor.post("/ui/bulk/start", fields).status == 303, "sent twice, it is begun once"
    assert len(server.execute(c.ListBulks()).bulks) == 1


@pytest.mark.parametrize(
    ("hold", "reason"),
    [
        (c.Pause("mail"), "The queue mail is paused."),
        (c.SetRateLimit("mail", RateLimit(1, 3_600_000)), "The rate limit of mail lets the next job through in"),
        (c.SetConcurrency("mail", 1), "mail has as many active jobs as its limit allows."),
    ],
)
def test_a_job_says_why_it_does_not_run(server: HttpServer, hold: c.Command[object], reason: str):
    server.execute(c.Push("mail", b""))
    server.execute(hold)
    server.execute(c.Pull(["mail"]))
    job = server.execute(c.Push("mail", b"")).id
    assert reason in Visitor(server).get(f"/ui/jobs/{job}").words


def test_a_job_says_that_no_worker_is_there(server: HttpServer):
    job = server.execute(c.Push("mail", b"")).id
    words = Visitor(server).get(f"/ui/jobs/{job}").words
    assert "Nothing holds it back, but no worker seems to pull from mail." in words


def test_a_copy_is_pushed_once_however_often_the_form_is_sent(server: HttpServer):
    job = server.execute(c.Push("mail", b'{"a": 1}', Options(name="n", custom_id="x"))).id
    visitor = Visitor(server)
    visitor.post("/ui/act/copy", {"id": str(job), "key": "k1"})
    answer = visitor.post("/ui/act/copy", {"id": str(job), "key": "k1"})
    copies = [one for one in server.execute(c.Browse("mail")).jobs if one.id != job]
    assert [(one.payload, one.options.name, one.options.parent_id) for one in copies] == [(b'{"a": 1}', "n", job)]
    assert answer.headers["location"] == f"/ui/jobs/{copies[0].id}"


def test_two_tabs_retry_a_job_once(server: HttpServer):
    (job,) = failed(server, "mail", "x")
    one, other = Visitor(server), Visitor(server)
    assert one.post("/ui/act/retry", {"id": str(job)}).status == 303
    again = other.post("/ui/act/retry", {"id": str(job)})
    assert again.status == 409, again.words
    assert server.execute(c.GetStats("mail")).totals.retried == 0


@pytest.mark.parametrize(
    ("data", "codec", "is_editable"),
    [
        (b'{"a": 1.50}', "json", True),
        (b'{\n  "a": 1\n}', "json", True),
        (b'{"a":\r\n1}', "json", False),
        (b"plain text", "bytes", True),
        (b"\xff\x00", "bytes", False),
        (b"a\rb", "bytes", False),
        (msgspec.msgpack.encode({"a": [1, 2.5, None, "x"]}), "msgpack", True),
        (msgspec.msgpack.encode({"a": b"bytes"}), "msgpack", False),
        (msgspec.msgpack.encode({1: 2}), "msgpack", False),
        (b"x" * 70_000, "bytes", False),
    ],
)
def test_a_payload_can_be_edited_where_it_comes_back_byte_for_byte(data: bytes, codec, is_editable: bool):
    shown = payloads.show(data, codec, hidden=False)
    assert (shown.edited is not None) == is_editable
    if shown.edited is not None:
        assert payloads.encoded(shown.edited, codec) == data


def test_a_large_payload_is_cut(server: HttpServer):
    job = server.execute(c.Push("mail", json.dumps(["x" * 100] * 50_000).encode(), Options(codec="json"))).id
    answer = Visitor(server).get(f"/ui/jobs/{job}")
    assert "only the beginning is shown" in answer.words
    assert len(answer.body) < 1_000_000


def test_a_timeline_is_to_scale(server: HttpServer):
    (job,) = failed(server, "mail", "x")
    view, story = server.execute(c.GetJob(job)), server.execute(c.GetStory(job))
    spans = spans_of(view, story.events, view.finished_at)
    assert [span.kind for span in spans] == ["waiting", "active"]
    assert spans[0].start == view.pushed_at
    assert spans[-1].end == view.finished_at
    without = spans_of(view, (), view.finished_at)
    assert [(span.kind, span.start, span.end) for span in without] == [(s.kind, s.start, s.end) for s in spans]
    assert timeline(spans).count("<rect") == 2


def test_a_job_shows_the_jobs_that_it_has_pushed(server: HttpServer):
    parent = server.execute(c.Push("mail", b"")).id
    child = server.execute(c.Push("mail", b"", Options(parent_id=parent))).id
    visitor = Visitor(server)
    assert f'id="child-{child}"' in visitor.get(f"/ui/jobs/{parent}").text
    assert "Children" not in visitor.get(f"/ui/jobs/{child}").words
    assert "1 job with parent id" in visitor.get(f"/ui/jobs?parent_id={parent}").words


def test_a_job_that_has_ended_is_deleted(server: HttpServer):
    job = server.execute(c.Push("mail", b"")).id
    visitor = Visitor(server)
    assert "Delete" not in visitor.get(f"/ui/jobs/{job}").words
    assert visitor.post("/ui/act/delete", {"id": str(job)}).status == 409
    pulled = server.execute(c.Pull(["mail"]))
    server.execute(c.Ack([job], pulled.token))
    assert "Delete" in visitor.get(f"/ui/jobs/{job}").words
    done = visitor.post("/ui/act/delete", {"id": str(job)})
    assert (done.status, done.headers["location"]) == (303, "/ui/jobs?queue=mail")
    assert visitor.get(f"/ui/jobs/{job}").status == 404


def test_a_live_page_shows_a_change_that_was_made_here_at_once(server: HttpServer):
    server.execute(c.Push("mail", b""))
    visitor = Visitor(server)
    for action, words in (("pause", "is paused"), ("resume", "No worker pulls"), ("pause", "is paused")):
        assert visitor.post(f"/ui/act/{action}", {"queue": "mail"}).status == 303
        assert words in visitor.get("/ui/", hx_request="true").words


def test_growing_dead_letters_are_a_problem_and_old_ones_a_warning():
    failed = QueueSummary(QueueView(name="mail", dead_letters=DeadLetterPolicy()), Stats(Counts(failed=7), Totals()))
    old, new = (attention([failed], [], [], 0, died)[0] for died in ({}, {"mail": 5}))
    assert old == ("warning", "mail has 7 dead letters.", "/ui/dead?queue=mail")
    assert new == ("problem", "mail has 7 dead letters, 5 of them new in the last hour.", "/ui/dead?queue=mail")


def test_a_disk_that_is_nearly_full_needs_attention(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "nearly full" not in Visitor(serve(data=str(tmp_path))).get("/ui/").words
    monkeypatch.setattr(doctor, "SPACE_LOW_BYTES", 1 << 60)
    assert "The disk is nearly full" in Visitor(serve(data=str(tmp_path))).get("/ui/").words
