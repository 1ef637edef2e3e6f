"""Schedules over REST."""

from tests.http.support import HttpServer

HOUR = 3_600_000


def test_the_life_of_a_schedule(server: HttpServer):
    made = server.post(
        "/crons/digest", {"queue": "mail", "schedule": "0 8 * * *", "timezone": "Asia/Tokyo", "data": [1]}
    )
    assert (made.status, made.json["data"]["cron"]["zone"]) == (200, "Asia/Tokyo")
    (listed,) = server.get("/crons").json["data"]
    assert (listed["name"], listed["queue"], listed["state"], listed["data"]) == ("digest", "mail", "active", [1])
    assert server.post("/crons/digest/pause").json["cron"]["state"] == "paused"
    assert server.post("/crons/digest/resume").json["cron"]["state"] == "active"
    job = server.post("/crons/digest/run").json["id"]
    assert server.get(f"/jobs/{job}").json["data"]["job"]["schedule"] == "digest"
    shown = server.get("/crons/digest").json["data"]
    assert (len(shown["next_runs"]), shown["last_runs"][0]["job"]) == (5, job)
    assert server.ask("DELETE", "/crons/digest").json["ok"]
    assert server.ask("DELETE", "/crons/digest").status == 404
    assert server.get("/crons/digest").status == 404


def test_what_cannot_be_is_refused_with_the_field(server: HttpServer):
    for fields, named in (
        ({"schedule": "61 * * * *"}, "cron"),
        ({"schedule": "@daily", "zone": "Europe/Atlantis"}, "zone"),
        ({"repeat_every": 5}, "every_ms"),
        ({"repeat_every": HOUR, "start_at": 2 * 10**12, "end_at": 10**12}, "end_at"),
        ({"repeat_every": HOUR, "overlap": "fight"}, "overlap"),
        ({"repeat_every": "often"}, "repeat_every"),
    ):
        refused = server.post("/crons/bad", {"queue": "mail", **fields})
        assert refused.status in (400, 422), fields
        assert named in refused.json["error"]
    assert server.get("/crons").json["data"] == []


def test_a_schedule_that_needs_a_worker(server: HttpServer):
    """In camelCase, as clients of flashQ write it."""
    made = server.post("/crons/pulse", {"queue": "probes", "repeat_every": HOUR, "skipIfNoWorker": True})
    assert made.json["cron"]["rule"]["skip_if_no_worker"]


def test_names_may_have_spaces_and_pages_their_limit(server: HttpServer):
    for number in range(3):
        assert server.post(f"/crons/my%20cron%20{number}", {"queue": "q", "repeat_every": HOUR}).json["ok"]
    first = server.get("/crons?limit=2").json
    assert [cron["name"] for cron in first["data"]] == ["my cron 0", "my cron 1"]
    rest = server.get(f"/crons?after={first['next_after'].replace(' ', '%20')}").json
    assert [cron["name"] for cron in rest["data"]] == ["my cron 2"]


def test_a_misspelt_field_of_a_schedule_is_refused_by_its_name(server: HttpServer):
    body = {"queue": "q", "name": "s", "schedule": {"every_ms": HOUR, "run_max": 5}}
    refused = server.post("/api/call/put_schedule", body)
    assert (refused.status, "run_max" in refused.json["error"]) == (400, True)
    assert server.get("/crons").json["data"] == []
