"""Hints for users of other libraries: what to write here instead of the names that they know.

A missing attribute is an `AttributeError` as always; for these names its message says what to write.
"""

from collections.abc import Mapping

PUSH = "{0}.push_sync(...) pushes a job; in a coroutine: await {0}.push(...)"
PUSH_WITH = '{0}.options(delay="30s", ...).push_sync(...) pushes a job with options'
STEP = "{0}.s(...) is the call that has not been made yet"

OF_JOB_TYPES = {
    **dict.fromkeys(("delay", "send", "enqueue", "defer", "submit", "apply", "kiq", "perform_async"), PUSH),
    **dict.fromkeys(("apply_async", "send_with_options", "configure"), PUSH_WITH),
    **dict.fromkeys(("signature", "subtask", "si"), STEP),
}
OF_STEPS = dict.fromkeys(("delay", "apply_async", "send", "enqueue"), "{0}.push_sync() pushes it")
OF_GRAPHS = dict.fromkeys(
    ("push", "push_sync", "delay", "apply_async", "result", "result_sync"),
    "stoker.workflow({0}).push_sync() pushes it; in a coroutine: await stoker.workflow({0}).push()",
)
OF_JOBS = {
    "get": '{0}.result_sync(timeout="30s") waits for the result; in a coroutine: await {0}.result()',
    "ready": "{0}.status_sync() tells the state",
    "state": "{0}.status_sync() tells the state",
    "revoke": "{0}.cancel_sync() cancels it",
}


def missing(thing: object, name: str, hints: Mapping[str, str], label: str) -> AttributeError:
    """The error for a missing attribute."""
    said = f"{type(thing).__name__!r} object has no attribute {name!r}"
    hint = hints.get(name)
    return AttributeError(said if hint is None else f"{said}: {hint.format(label)}", name=name, obj=thing)
