"""Commits one batch to a lake: `python -m tests.spark.store_writer LAKE STREAM`. A test runs two of them at once.

It says `decided` when it has decided with an open handle, and commits when it reads a line. At the end it says whether
it has made the version, or has found the batch there.
"""

import sys

from deltalake import DeltaTable

from stoker.spark.lake.layout import Tables, derived
from stoker.spark.lake.table import Change, LakeBatch
from tests.spark.lake_rows import events, stored


def main(lake: str, stream: str) -> None:
    tables, batch = Tables(lake), LakeBatch(stream, 0)
    files = stored(tables, "jobs", batch, [events(0)])
    decide, waits = derived(batch), [1]

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        found = decide(handle)
        if waits:
            waits.pop()
            say("decided")
            sys.stdin.readline()
        return found

    say("made" if tables.table("jobs").commit(Change(files), claim) else "found")


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
