"""What people do with the dashboard, in a real browser under its strict policy."""

import json
from collections.abc import Callable

import pytest

from stoker.model import commands as c
from stoker.model.options import Options
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from stoker.server.auth.tokens import revoke_token
from tests.dashboard.chromium import Tab
from tests.dashboard.conftest import Tokens
from tests.dashboard.furnishing import furnish
from tests.http.support import HttpServer

Serve = Callable[..., HttpServer]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def finish(server: HttpServer, queue: str, count: int = 1, result: bytes | None = None) -> None:
    """Do what a worker does."""
    pulled = server.execute(c.Pull([queue], count, worker="w", wait_ms=60_000))
    results = None if result is None else [result] * len(pulled)
    server.execute(c.Ack(list(pulled.ids), pulled.token, results, "json"))


def test_the_overview_is_live(server: HttpServer, tab: Tab):
    tab.open("/ui/")
    tab.until_text("There are no queues yet")
    server.execute(c.PushBatch("mail", [b"{}"] * 7))
    tab.until_text("No worker pulls from mail, and 7 jobs wait.")
    finish(server, "mail", 3)
    tab.until(lambda: tab.text("a[href='/ui/jobs?state=completed']") == "3")


def test_a_search_finds_a_job_by_its_custom_id(server: HttpServer, tab: Tab):
    job = server.execute(c.Push("mail", b"{}", Options(custom_id="order 17"))).id
    tab.open("/ui/")
    tab.press("/")
    tab.until(lambda: tab.driver.switch_to.active_element.get_attribute("id") == "search")
    tab.press("order 17\n")
    tab.until_text("Custom id")
    tab.click(str(job))
    tab.until_text(f"Job {job}", "h1")


def test_a_failed_job_is_read_mended_retried_and_completed(server: HttpServer, tab: Tab):
    options = Options(codec="json", name="pay", max_attempts=1)
    job = server.execute(c.Push("payments", b'{"card":"0"}', options)).id
    pulled = server.execute(c.Pull(["payments"]))
    server.execute(c.Fail([job], pulled.token, "card declined", "CardError", "Traceback\n  line 7"))
    tab.open("/ui/dead")
    tab.click("max_attempts_exceeded")
    tab.click(str(job))
    tab.until_text("CardError: card declined")
    tab.click("Edit payload")
    tab.fill("textarea", '{"card": "4242"}')
    tab.click("Save the payload")
    tab.until_text('"4242"')
    tab.click("Retry")
    tab.until_text(f"Job {job} is back in payments.")
    assert server.execute(c.GetJob(job)).payload == b'{"card": "4242"}'
    finish(server, "payments", result=b'{"receipt": 9}')
    tab.until_text("completed", "h1")
    tab.until_text("receipt")


def test_a_workflow_is_watched_to_its_end(server: HttpServer, tab: Tab):
    steps = [Step("etl", [b""], key="extract"), Step("etl", [b""], after=[Edge(0)], key="load")]
    workflow = server.execute(c.PushWorkflow(steps, "nightly")).id
    tab.open(f"/ui/workflows/{workflow}")
    tab.until_text("0 of 2 jobs ended")
    finish(server, "etl")
    tab.until_text("1 of 2 jobs ended")
    finish(server, "etl")
    tab.until_text("2 of 2 jobs ended")
    tab.until_text("completed", "h1")
    assert tab.find(".graph a").get_attribute("href")


def test_a_queue_is_paused_and_resumed(server: HttpServer, tab: Tab):
    server.execute(c.Push("mail", b""))
    tab.open("/ui/queue?name=mail")
    tab.click("Pause")
    tab.until_text("mail is paused: it gives out no more jobs.")
    assert server.execute(c.GetQueue("mail")).paused
    tab.click("Resume")
    tab.until_text("mail gives out jobs again.")
    assert not server.execute(c.GetQueue("mail")).paused


def test_a_drain_says_what_it_hits_and_asks(server: HttpServer, tab: Tab):
    server.execute(c.PushBatch("mail", [b""] * 12))
    tab.open("/ui/queue?name=mail")
    tab.click("Drain")
    tab.until_text("This cancels all 12 waiting jobs of mail")
    tab.until_text("This cannot be taken back.")
    assert server.execute(c.GetStats("mail")).counts.waiting == 12
    tab.click("Drain")
    tab.until_text("12 jobs of mail cancelled.")


def test_login_logout_forbidden_and_expired(serve: Serve, tokens: Tokens, tab: Tab):
    token = tokens.make("ada", permissions={"read"})
    server = serve(auth=tokens.auth)
    server.execute(c.Push("mail", b""))
    tab.base = f"http://127.0.0.1:{server.port}"
    tab.open("/ui/queue?name=mail")
    tab.until_text("Log in", "h1")
    tab.fill("#token", "wrong")
    tab.click("Log in")
    tab.until_text("this server does not know the token")
    tab.until(lambda: any("401" in line for line in tab.problems()))
    tab.fill("#token", token)
    tab.click("Log in")
    tab.until_text("Queue mail", "h1")  # the page that was asked for
    assert "Pause" not in tab.text()
    tab.open("/ui/act/pause?queue=mail")
    tab.until_text("This token may not admin")
    tab.until(lambda: any("403" in line for line in tab.problems()))
    tab.open("/ui/")
    tab.click("Log out")
    tab.until_text("Log in", "h1")
    tab.fill("#token", token)
    tab.click("Log in")
    tab.until_text("Overview", "h1")
    revoke_token(tokens.path, token)
    server.server.gate.reload_if_changed()
    server.execute(c.Push("mail", b""))
    tab.until_text("Log in", "h1")  # the open page goes there by itself
    tab.leave()
    tab.problems()


def test_dark_by_the_system_and_by_choice(tab: Tab):
    def background() -> str:
        return str(tab.driver.execute_script("return getComputedStyle(document.body).backgroundColor"))

    tab.set_scheme("light")
    tab.open("/ui/")
    light = background()
    tab.set_scheme("dark")
    tab.until(lambda: background() != light)
    dark = background()
    tab.set_scheme("light")
    tab.click("auto")
    tab.click("light")
    tab.until(lambda: (tab.text("header .who button"), background()) == ("dark", dark))
    tab.open("/ui/queues")
    tab.until(lambda: background() == dark)
    tab.click("dark")
    tab.until(lambda: background() == light)


def test_keys(server: HttpServer, tab: Tab):
    ids = [server.execute(c.Push("mail", b"")).id for _ in range(3)]
    tab.open("/ui/jobs")
    tab.press("jj")
    tab.until(lambda: tab.attribute("tr.here", "id") == f"job-{ids[1]}")
    tab.press("k")
    tab.until(lambda: tab.attribute("tr.here", "id") == f"job-{ids[2]}")
    tab.press("\n")
    tab.until_text(f"Job {ids[2]}", "h1")
    tab.press("?")
    tab.until_text("Keys", "h1")
    tab.press("gq")
    tab.until_text("Queues", "h1")


def test_the_chosen_row_stays_chosen_when_the_page_changes(server: HttpServer, tab: Tab):
    ids = [server.execute(c.Push("mail", b"")).id for _ in range(3)]
    tab.open("/ui/jobs")
    tab.press("jj")
    tab.until(lambda: tab.attribute("tr.here", "id") == f"job-{ids[1]}")
    newer = server.execute(c.Push("mail", b"")).id
    tab.find(f"tr#job-{newer}")
    assert tab.attribute("tr.here", "id") == f"job-{ids[1]}"


def test_a_look_that_is_under_way_changes_nothing_that_a_person_has_selected(server: HttpServer, tab: Tab):
    """The page that the look asked for comes after the selection, and knows nothing of it."""
    server.execute(c.Push("mail", b""))
    tab.open("/ui/jobs")
    is_checked = tab.driver.execute_async_script(
        "const done = arguments[0], box = document.querySelector('tbody input[type=checkbox]');"
        "document.body.addEventListener('htmx:afterRequest', () => done(box.checked));"
        "htmx.trigger(document.body, 'look'); box.click()"
    )
    assert is_checked


def test_selected_jobs_are_changed_after_a_question(server: HttpServer, tab: Tab):
    ids = [server.execute(c.Push("mail", b"")).id for _ in range(3)]
    tab.open("/ui/jobs")
    tab.press("jxjx")
    tab.until(lambda: len(tab.driver.find_elements("css selector", "tbody input:checked")) == 2)
    tab.driver.execute_script("document.querySelector('#selected select').value = 'cancel'")
    tab.click("Go on")
    tab.until_text(f"This will cancel 2 jobs: {ids[2]}, {ids[1]}.")
    tab.click("Do it")
    tab.until_text("cancel: 2 jobs changed.")
    assert [server.execute(c.GetJob(job)).state for job in ids] == ["waiting", "cancelled", "cancelled"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_is_quiet_accessible_and_inert(server: HttpServer, tab: Tab, width: int, scheme: str):
    """On every page: no error in the console, no breach of the policy, nothing serious for axe, nothing too wide."""
    tab.set_scheme(scheme)
    tab.set_width(width)
    for path in [*furnish(server, HOSTILE).pages(), "/ui/login"]:
        tab.open(path)
        assert tab.problems() == [], path
        assert tab.violations() == [], path
        assert tab.driver.title != "owned", path
        wide = tab.driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide"


@pytest.mark.parametrize("path", ["/ui/", "/ui/queues", "/ui/jobs", "/ui/dead", "/ui/workflows", "/ui/schedules"])
def test_an_empty_page_says_what_to_do_next(tab: Tab, path: str):
    tab.open(path)
    assert tab.find(".empty, .fine").text


def test_pages_can_be_read_without_scripts(server: HttpServer, tab: Tab):
    job = server.execute(c.Push("mail", json.dumps({"to": "ada"}).encode(), Options(codec="json"))).id
    tab.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        tab.open("/ui/queue?name=mail")
        tab.driver.find_element("link text", str(job)).click()
        tab.find(".tree")
        tab.until(lambda: "ada" in tab.driver.page_source)
        tab.until(lambda: tab.driver.find_elements("link text", "Cancel…"))[0].click()
        tab.find("form.card button").click()
        tab.until(lambda: server.execute(c.GetJob(job)).state is State.CANCELLED)
    finally:
        tab.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_page_outlives_a_server_that_goes_away(serve: Serve, tab: Tab):
    server = serve()
    server.execute(c.Push("mail", b""))
    tab.base = f"http://127.0.0.1:{server.port}"
    tab.open("/ui/queue?name=mail")
    tab.until_text("Queue mail", "h1")
    server.close()
    tab.until_text("not connected: trying again", "#connection")
    assert "Queue mail" in tab.text("h1")
    tab.leave()  # as long as it is open, it tries again and complains
    tab.problems()
