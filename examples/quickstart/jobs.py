"""Three kinds of jobs: one that works, one that fails at first, and one that never will.

stoker worker jobs:app          # in one terminal
python push.py                  # in another
pytest                          # the tests beside this file: no worker, no files, no waiting
"""

import stoker

app = stoker.App()  # STOKER_URL, or the directory stoker.db here: no server needed


@app.job(queue="mail")
async def welcome(user_id: int) -> str:
    """The result of a job is kept for an hour."""
    return f"welcome, number {user_id}"


@app.job(queue="mail", max_attempts=5, backoff=stoker.Backoff(base_ms=200))
def remind(ctx: stoker.Context, user_id: int) -> str:
    """A plain function runs in a thread. An exception fails the job; it is retried after a growing pause."""
    if ctx.attempt < 3:
        raise ConnectionError("the mail server does not answer")
    return f"reminded number {user_id} in attempt {ctx.attempt}"


@app.job(queue="mail")
def remove(user_id: int) -> None:
    """Some errors do not go away with a retry: such a job becomes a dead letter at once."""
    raise stoker.Dead(f"number {user_id} must not be removed")
