"""`stoker bulk`."""

import json

from stoker import connect
from tests.cli.conftest import Stoker


def test_jobs_are_cancelled_by_filter_with_a_preview(stoker: Stoker):
    with connect("sqlite:///stoker.db") as client:
        client.push_batch("mail", [b"alice", b"bob", b"alice again"])
    assert "3 jobs" in stoker("bulk", "start", "cancel", "--queue", "mail", "--dry-run").out
    begun = json.loads(stoker("bulk", "start", "cancel", "--text", "alice", "--key", "k", "--yes", "--json").out)
    assert begun["key"] == "k"
    view = begun
    for _ in range(100):
        view = json.loads(stoker("bulk", "show", "k", "--json").out)
        if view["state"] == "done":
            break
    assert view["changed"] == 2
    assert "k " in stoker("bulk", "list").out
    assert json.loads(stoker("bulk", "stop", "k", "--json").out)["state"] == "done"
    with connect("sqlite:///stoker.db") as client:
        assert (client.get_counts().waiting, client.get_counts().cancelled) == (1, 2)
