"""Who sees the dashboard, who may change something there, and how a login ends."""

import logging
import re
from collections.abc import Callable

import pytest

from stoker.model import commands as c
from stoker.model.command_table import PERMISSIONS
from stoker.model.options import Options
from stoker.model.schedules import Schedule
from stoker.server.auth.tokens import revoke_token
from stoker.server.config.tree import DashboardSettings
from stoker.server.dashboard.actions import ACTIONS
from stoker.server.dashboard.page import POLICY
from stoker.server.dashboard.routes import ROUTES
from stoker.server.dashboard.sessions import Sessions, new_session
from tests.dashboard.conftest import Tokens
from tests.dashboard.furnishing import furnish
from tests.dashboard.visitor import Visitor
from tests.http.support import HttpServer

Serve = Callable[..., HttpServer]


def test_the_address_of_the_server_leads_to_the_dashboard(server: HttpServer):
    for path in ("/", "/ui"):
        answer = Visitor(server).get(path)
        assert (answer.status, answer.headers["location"]) == (307, "/ui/")
    assert "Overview" in Visitor(server).get("/ui/").text


def test_a_dashboard_that_is_off_is_not_there(serve: Serve):
    server = serve(dashboard=DashboardSettings(enabled=False))
    assert Visitor(server).get("/ui/").status == Visitor(server).get("/").status == 404


def test_every_page_has_the_strict_policy(server: HttpServer):
    for path in ("/ui/", "/ui/login", "/ui/jobs/1", "/ui/nothing"):
        headers = Visitor(server).get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
    assert "unsafe" not in POLICY


def test_no_template_has_inline_scripts_or_styles(server: HttpServer):
    visitor = Visitor(server)
    for path in furnish(server).pages():
        text = visitor.get(path).text
        assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son[a-z]+=|javascript:|hx-on|hx-vals=.js", text)


# --- without tokens ----------------------------------------------------------------------------------


def test_without_tokens_only_this_machine_is_served(server: HttpServer):
    assert Visitor(server).get("/ui/").status == 200
    assert Visitor(server).get("/ui/", x_forwarded_for="203.0.113.7").status == 401
    assert Visitor(server).get("/ui/", host="evil.example").status == 403


# --- changes -----------------------------------------------------------------------------------------


def test_a_change_needs_the_same_origin_and_the_token_of_its_session(server: HttpServer):
    server.execute(c.Push("mail", b""))
    visitor, queue = Visitor(server), {"queue": "mail"}
    visitor.get("/ui/")
    assert visitor.post("/ui/act/pause", queue, csrf="0" * 64).status == 403
    assert visitor.post("/ui/act/pause", queue, csrf="").status == 403
    assert visitor.post("/ui/act/pause", queue, origin="http://evil.example").status == 403
    assert visitor.post("/ui/act/pause", queue, origin="null").status == 403
    assert visitor.post("/ui/act/pause", queue, origin="").status == 403
    assert visitor.post("/ui/act/pause", queue, sec_fetch_site="cross-site").status == 403
    assert visitor.post("/ui/act/pause", queue, content_type="text/plain").status == 400
    stranger = Visitor(server)
    stranger.get("/ui/")
    theirs = re.search(r'name="csrf" value="(\w+)"', stranger.get("/ui/").text)
    assert theirs is not None
    assert visitor.post("/ui/act/pause", queue, csrf=theirs[1]).status == 403
    assert not server.execute(c.GetQueue("mail")).paused
    assert visitor.post("/ui/act/pause", queue).status == 303
    assert server.execute(c.GetQueue("mail")).paused


def test_every_change_is_a_line_of_the_audit_log(server: HttpServer, caplog: pytest.LogCaptureFixture):
    server.execute(c.Push("mail", b""))
    with caplog.at_level(logging.INFO, "stoker.audit"):
        Visitor(server).post("/ui/act/drain", {"queue": "mail"})
    (line,) = [vars(record) for record in caplog.records if record.name == "stoker.audit"]
    told = {name: line[name] for name in ("who", "tenant", "action", "target", "count")}
    assert told == {"who": "open", "tenant": "default", "action": "drain", "target": "queue=mail", "count": 1}


def test_a_read_only_dashboard_changes_nothing(serve: Serve):
    server = serve(dashboard=DashboardSettings(read_only=True))
    made, visitor = furnish(server), Visitor(server)
    assert "Retry" not in visitor.get(f"/ui/jobs/{made.dead}").words
    assert "read-only" in visitor.get("/ui/").words
    for name in ACTIONS:
        assert visitor.post(f"/ui/act/{name}", {"id": str(made.dead), "queue": "mail"}).status == 403
        assert visitor.get(f"/ui/act/{name}?id={made.dead}").status == 403


# --- logging in --------------------------------------------------------------------------------------


def test_with_tokens_a_visitor_logs_in_and_out(serve: Serve, tokens: Tokens):
    token = tokens.make()
    server = serve(auth=tokens.auth)
    visitor = Visitor(server)
    turned_away = visitor.get("/ui/queues")
    assert (turned_away.status, turned_away.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fqueues")
    assert visitor.login("wrong").status == 401
    assert visitor.get("/ui/").status == 303
    done = visitor.post("/ui/login", {"token": token, "next": "/ui/queues"})
    assert (done.status, done.headers["location"]) == (303, "/ui/queues")
    assert visitor.get("/ui/").status == 200
    stolen = dict(visitor.cookies)
    assert visitor.post("/ui/logout").status == 303
    assert visitor.get("/ui/").status == 303
    visitor.cookies = stolen
    assert visitor.get("/ui/").status == 303, "a copy of the cookie ends with the logout"


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/ui/\\evil", "/jobs", "/ui//evil"])
def test_a_login_leads_nowhere_else(serve: Serve, tokens: Tokens, elsewhere: str):
    token = tokens.make()
    done = Visitor(serve(auth=tokens.auth)).post("/ui/login", {"token": token, "next": elsewhere})
    assert done.headers["location"] == "/ui/"


def test_the_cookie_is_for_the_dashboard_alone(serve: Serve, tokens: Tokens):
    token = tokens.make()
    server = serve(auth=tokens.auth)
    visitor = Visitor(server)
    cookie = visitor.login(token).set_cookies[-1]
    assert cookie.startswith(f"stoker_ui_{server.port}=")
    assert "; Path=/ui/;" in cookie
    assert "; HttpOnly; SameSite=Strict" in cookie
    assert token not in cookie
    assert "Secure" not in cookie
    assert "; Secure" in Visitor(server).get("/ui/login", x_forwarded_proto="https").set_cookies[-1]
    for path in ("/queues", "/jobs/1", "/events", "/metrics"):
        assert visitor.get(path).status == 401


def test_a_session_ends_with_its_token(serve: Serve, tokens: Tokens):
    token = tokens.make()
    server = serve(auth=tokens.auth)
    visitor = Visitor(server)
    visitor.login(token)
    assert visitor.get("/ui/").status == 200
    revoke_token(tokens.path, token)
    server.server.gate.reload_if_changed()
    assert visitor.get("/ui/").status == 303
    live = visitor.get("/ui/", hx_request="true")
    assert (live.status, live.headers["hx-redirect"]) == (401, "/ui/login?next=%2Fui%2F")


def test_a_session_ends_after_its_time(serve: Serve, tokens: Tokens):
    token = tokens.make()
    server = serve(auth=tokens.auth, dashboard=DashboardSettings(session_s=0.01))
    visitor = Visitor(server)
    visitor.login(token)
    while visitor.get("/ui/").status == 200:
        pass
    assert visitor.get("/ui/").headers["location"].startswith("/ui/login")


def test_a_session_opens_in_every_process_and_is_sealed_anew(server: HttpServer):
    dispatcher = server.server.dispatcher
    here, there = Sessions(dispatcher, 3_600), Sessions(dispatcher, 3_600)
    session = new_session("a token")

    async def try_out() -> None:
        cookie = await here.seal(session)
        assert await there.open(cookie) == session
        assert here.csrf(session) == there.csrf(session)
        assert await there.open(cookie[:-4] + "AAAA") is None
        assert await there.open("nonsense") is None
        assert here.rotated(session) is None
        assert Sessions(dispatcher, 0.0).rotated(session) is not None

    server.run(try_out())


# --- permissions, from the tables --------------------------------------------------------------------


ABSENT = ("/ui/connection", "/ui/report")
"""Pages that this server does not have: one is of `stoker ui`, the other needs a lake."""


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_page_needs_its_permission(serve: Serve, tokens: Tokens, permission: str):
    """With each permission alone: `read` is needed to log in, so it is beside the others."""
    token = tokens.make(permissions={permission, "read"})
    server = serve(auth=tokens.auth)
    made = furnish(server)
    visitor = Visitor(server)
    visitor.login(token)
    for route in ROUTES:
        if route.method != "GET" or route.permission is None or route.path in ("/ui/live", "/ui/{page}"):
            continue
        number = made.workflow if "workflows" in route.path else made.dead
        path = route.path.replace("{id}", str(number)).replace("{action}", "cancel")
        path += {"/ui/bulk/one": "?key=b1", "/ui/bulk/new": "?action=cancel"}.get(route.path, "")
        path += {"/ui/queue": "?name=mail", "/ui/schedule": "?queue=reports&name=plain"}.get(route.path, "")
        if "{action}" in route.path:
            continue
        allowed = route.permission in ("read", permission)
        there = 404 if path in ABSENT else 200
        assert visitor.get(path).status == (there if allowed else 403), path
    for name, action in ACTIONS.items():
        status = visitor.get(f"/ui/act/{name}?id={made.dead}&queue=mail&name=plain").status
        assert (status == 403) == (action.permission not in ("read", permission)), name
        if action.permission not in ("read", permission):
            assert visitor.post(f"/ui/act/{name}", {"id": str(made.dead), "queue": "mail"}).status == 403


def test_the_help_page_is_for_all_and_its_menu_for_visitors_who_may_see_pages(serve: Serve, tokens: Tokens):
    token = tokens.make()
    visitor = Visitor(serve(auth=tokens.auth))
    page = visitor.get("/ui/help")
    assert (page.status, 'href="/ui/jobs"' in page.text) == (200, False)
    visitor.login(token)
    assert 'href="/ui/jobs"' in visitor.get("/ui/help").text


def test_a_token_that_may_not_read_cannot_log_in(serve: Serve, tokens: Tokens):
    token = tokens.make(permissions={"produce"})
    seen = Visitor(serve(auth=tokens.auth)).login(token)
    assert seen.status == 401
    assert "may not read" in seen.words


# --- tenants -----------------------------------------------------------------------------------------


def test_a_tenant_sees_no_byte_of_another(serve: Serve, tokens: Tokens):
    mine, operators = tokens.make(tenant="mine"), tokens.make("operator", tenant="*")
    server = serve(auth=tokens.auth)
    theirs = furnish(server, "theirsecret", "theirs")
    visitor = Visitor(server)
    visitor.login(mine)
    for path in theirs.pages():
        if "theirsecret" not in path:
            assert "theirsecret" not in visitor.get(path).text, path
    assert visitor.get(f"/ui/jobs/{theirs.dead}").status == visitor.get("/ui/jobs/999999").status == 404
    assert visitor.get("/ui/tenants").status == visitor.get("/ui/server").status == 403
    assert visitor.post("/ui/tenants", {"tenant": "theirs"}).status == 403
    operator = Visitor(server)
    operator.login(operators)
    assert "theirs" in operator.get("/ui/tenants").words
    assert operator.post("/ui/tenants", {"tenant": "theirs"}).status == 303
    assert "theirsecret" in operator.get(f"/ui/jobs/{theirs.dead}").text


# --- what is shown of payloads -----------------------------------------------------------------------


def test_payloads_can_be_hidden(serve: Serve):
    server = serve(dashboard=DashboardSettings(payloads="hidden"))
    job = server.execute(c.Push("mail", b'{"pin": "sesame-4711"}')).id
    server.execute(c.PutSchedule("mail", "s", Schedule(every_ms=60_000, payload=b"sesame-4711")))
    visitor = Visitor(server)
    for path in (f"/ui/jobs/{job}", "/ui/jobs", "/ui/schedule?queue=mail&name=s"):
        assert "sesame" not in visitor.get(path).text
    assert visitor.get(f"/ui/jobs/{job}/edit").status == 400
    assert visitor.post("/ui/act/payload", {"id": str(job), "payload": "{}"}).status == 409


def test_fields_are_redacted_at_any_depth(serve: Serve):
    server = serve(dashboard=DashboardSettings(redact=("password",)))
    options = Options(codec="json")
    job = server.execute(c.Push("mail", b'{"user": [{"PassWord": {"x": "sesame"}}], "to": "ada"}', options)).id
    seen = Visitor(server).get(f"/ui/jobs/{job}")
    assert "sesame" not in seen.text
    assert "ada" in seen.text
    assert "redacted" in seen.text
    assert Visitor(server).get(f"/ui/jobs/{job}/edit").status == 400, "it would not come back as it was"
