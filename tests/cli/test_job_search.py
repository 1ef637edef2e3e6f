"""`stoker job search`."""

import json

from stoker import connect
from tests.cli.conftest import Stoker


def test_jobs_are_found_by_text_and_counted(stoker: Stoker):
    with connect("sqlite:///stoker.db") as client:
        client.push_batch("mail", [b"alice", b"bob", b"alice again"])
    found = json.loads(stoker("job", "search", "--text", "alice", "--json").out)
    assert len(found) == 2
    assert stoker("job", "search", "--text", "alice", "--count").out.strip() == "2"
    assert "no such jobs" in stoker("job", "search", "--text", "carol").out
