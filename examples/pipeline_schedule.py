"""A lake that a schedule keeps up to date: the pipeline is a job like any other.

    STOKER_LAKE=/data/lake stoker worker pipeline_schedule:app    # in this directory: runs the schedule
    python examples/pipeline_schedule.py                          # one run, to see what it does

Runs do not overlap, a failed run is tried again, and `stoker job list --queue pipeline` shows how each one went. The
worker keeps its Spark session, so only the first run waits for Java to start.
"""

import os
import tempfile
from typing import Any

import msgspec

import stoker
import stoker.spark
from stoker.spark.lake import running


def app_for(url: str, lake: str) -> stoker.App:
    """An app that takes the history of a queue into a lake, every ten minutes."""
    app = stoker.App(url, name="lake")

    @app.schedule("*/10 * * * *", overlap="skip")
    @app.job(queue="pipeline", max_attempts=3, timeout="2h")
    def fill_lake() -> dict[str, Any]:
        """Take in what is new. If the run is killed, the next one continues with the same batch."""
        done = running.run(stoker.spark.session(name="lake"), lake, {"url": url})
        return {"events": done.events, "batches": done.batches}

    return app


app = app_for(os.environ.get("STOKER_URL", "sqlite:///stoker.db"), os.environ.get("STOKER_LAKE", "stoker-lake"))


def main() -> None:
    """Run the schedule by hand, once, over a queue with a hundred jobs."""
    with tempfile.TemporaryDirectory() as folder, app_for(f"sqlite:///{folder}/queue", f"{folder}/lake") as own:
        own.client.push_batch("mail", [b"dear all"] * 100)
        own.sync_schedules()
        job = own.client.run_schedule("pipeline", "fill_lake").id
        own.worker().run_until_idle()
        view = own.client.get_job(job)
        print(view.state, msgspec.msgpack.decode(view.result or b"\xc0"))


if __name__ == "__main__":
    main()
