"""Options as people write them, and which word is the last one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stoker import App, Backoff, Dependency, Options, RateLimit, RetryPolicy
from stoker.app.options import rate_of
from stoker.model.errors import InvalidRequest
from stoker.worker.errors import BadHandler


def options_of(job_type: Any, *args: Any, **kwargs: Any) -> Options:
    options: Options = job_type.written(args, kwargs)[1]
    return options


def test_durations_are_text_or_seconds_or_a_timedelta(app: App):
    @app.job(timeout="2m", lease=45, ttl=timedelta(hours=1), unique_ttl="1h30m", keep_completed_age=0.5)
    def work(): ...

    options = options_of(work)
    assert options.timeout_ms == 120_000
    assert options.lease_ms == 45_000
    assert options.ttl_ms == 3_600_000
    assert options.unique_ttl_ms == 5_400_000
    assert options.keep_completed_age_ms == 500


def test_every_option_of_a_push_can_be_written(app: App):
    """One that is added to the model and forgotten here fails this."""

    @app.job
    def work(): ...

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    view = work.options(
        priority=5, delay="5m", run_at=noon, ttl=1, timeout=2, lease=3, max_attempts=8, max_crashes=2, backoff="10s",
        unique_key="u", unique_ttl=4, on_conflict="replace", custom_id="c", custom_id_ttl=5, debounce_id="d",
        debounce=6, depends_on=[64, Dependency(128, "continue")], group_id="g", lifo=True, tags=["a", "b"],
        remove_on_complete=True, remove_on_fail=True, keep_completed_age=7, keep_completed_count=8, parent=192,
        trace="00-1-2-3", log_lines_max=9, stack_lines_max=10,
    )  # fmt: skip
    expected = Options(
        priority=5, delay_ms=300_000, run_at=1_767_268_800_000, ttl_ms=1_000, timeout_ms=2_000, lease_ms=3_000,
        max_attempts=8, max_crashes=2, backoff=Backoff(base_ms=10_000), unique_key="u", unique_ttl_ms=4_000,
        on_conflict="replace", custom_id="c", custom_id_ttl_ms=5_000, debounce_id="d", debounce_ms=6_000,
        depends_on=(Dependency(64), Dependency(128, "continue")), group_id="g", lifo=True, tags=("a", "b"),
        remove_on_complete=True, remove_on_fail=True, keep_completed_age_ms=7_000, keep_completed_count=8,
        parent_id=192, trace="00-1-2-3", codec="msgpack", name="work", log_lines_max=9, stack_lines_max=10,
    )  # fmt: skip
    options = options_of(view)
    assert options == expected
    untouched = [name for name in Options.__struct_fields__ if getattr(expected, name) == getattr(Options(), name)]
    assert set(untouched) <= {"workflow", "schedule", "slot"}  # which the queue fills in


def test_the_word_that_is_nearer_wins():
    app = App(
        "memory://",
        queue="usual",
        defaults={"max_attempts": 1, "priority": 1, "ttl": 1, "timeout": 1, "tags": ["app"]},
        queues={"mail": {"priority": 2, "ttl": 2, "timeout": 2, "tags": ["queue"]}},
    )

    @app.job(queue="mail", ttl=3, timeout=3, tags=["job"])
    def work(): ...

    @app.job
    def other(): ...

    options = options_of(work.options(timeout=4, tags=["push", "app"]))
    assert (options.max_attempts, options.priority, options.ttl_ms, options.timeout_ms) == (1, 2, 3_000, 4_000)
    assert options.tags == ("app", "queue", "job", "push")
    assert other.queue == "usual"
    assert options_of(other).priority == 1
    assert options_of(work.options(queue="elsewhere")).priority == 1
    assert work.options(queue="elsewhere").queue == "elsewhere"


def test_a_delay_takes_the_place_of_a_time_that_was_said_before(app: App):
    @app.job(run_at=datetime(2026, 1, 1, tzinfo=UTC))
    def work(): ...

    assert options_of(work.options(delay=1)).run_at is None


def test_views_of_a_job_type_do_not_change_it(app: App):
    @app.job(priority=1)
    def work(): ...

    assert options_of(work.options(priority=2).options(delay=1)).priority == 2
    assert options_of(work).priority == 1


# --- keys --------------------------------------------------------------------------------------------


def test_keys_are_made_of_the_arguments(app: App):
    @app.job(
        unique_key="user:{user_id}:{kind}", group_id="{kind!r:>8}", custom_id=lambda user_id, kind="x": f"c{user_id}"
    )
    def work(user_id: int, kind: str = "daily"): ...

    options = options_of(work, 7)
    assert (options.unique_key, options.group_id, options.custom_id) == ("user:7:daily", " 'daily'", "c7")
    assert options_of(work, kind="now", user_id=8).unique_key == "user:8:now"


def test_a_key_of_a_single_push_is_text_as_it_is(app: App):
    @app.job(unique_key="{a}")
    def work(a: str): ...

    assert options_of(work.options(unique_key="{braces}"), "x").unique_key == "{braces}"
    assert options_of(work.options(unique_key=None), "x").unique_key is None
    assert options_of(work.options(unique_key=lambda a: a * 2), "x").unique_key == "xx"


def test_a_function_for_a_key_may_say_that_there_is_none(app: App):
    @app.job(unique_key=lambda a: None)
    def work(a: int): ...

    assert options_of(work, 1).unique_key is None


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("user:{}", "needs names in its braces"),
        ("user:{0}", "needs names in its braces"),
        ("user:{", "is not a template"),
        (7, "expected text or a function of the arguments, got int"),
    ],
)
def test_a_template_that_makes_no_sense_is_refused_when_it_is_declared(app: App, key: Any, told: str):
    with pytest.raises(InvalidRequest, match=told):
        app.job(unique_key=key)(lambda a: a)


def test_a_template_must_name_parameters(app: App):
    @app.job(unique_key="user:{user}")
    def work(user_id: int): ...

    with pytest.raises(BadHandler, match=r"unique_key='user:{user}': there is no parameter 'user'"):
        work.written((1,), {})
    with pytest.raises(BadHandler, match="there is no parameter 'user'"):
        app.handlers()


def test_a_template_that_does_not_fit_the_value_is_refused(app: App):
    @app.job(unique_key="{user.id}")
    def work(user: str): ...

    with pytest.raises(InvalidRequest, match=r"the key '{user.id}' cannot be filled in"):
        work.written(("x",), {})


def test_a_function_for_a_key_must_give_text(app: App):
    @app.job(unique_key=lambda a: a)
    def work(a: int): ...

    with pytest.raises(InvalidRequest, match="the function for unique_key returned int: expected text or None"):
        work.written((1,), {})


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timeout": "two minutes"}, r"work.options: timeout: expected text like"),
        ({"delay": -1}, "delay: -1 is not a duration"),
        ({"delay": True}, "delay: True is not a duration"),
        ({"run_at": datetime(2026, 1, 1)}, "has no time zone"),
        ({"run_at": "tomorrow"}, "expected a datetime or milliseconds"),
        ({"depends_on": "x"}, "expected a job or its id, got str"),
        ({"prio": 3}, "unknown option prio; the options are"),
        ({"kind": "thread"}, "unknown option kind"),
        ({"soft_timeout": 3}, "unknown option soft_timeout"),  # it is the worker's, and would have no effect
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(app: App, options: dict[str, Any], told: str):
    @app.job
    def work(): ...

    with pytest.raises(InvalidRequest, match=told):
        work.options(**options)


def test_what_is_wrong_with_a_declaration_is_told_by_name(app: App):
    with pytest.raises(InvalidRequest, match=r"@app.job of work: retry: expected RetryPolicy, got int"):
        app.job(name="work", retry=3)(lambda: None)  # type: ignore[call-overload]
    for name in ("", "x" * 257, "a\nb"):
        with pytest.raises(InvalidRequest, match="is not a valid name: expected 1 to 256 printable characters"):
            app.job(name=name)(lambda: None)
        with pytest.raises(InvalidRequest, match=r"aliases: .* is not a valid name"):
            app.job(aliases=[name])(lambda: None)


def test_defaults_are_checked_when_the_app_is_made():
    with pytest.raises(InvalidRequest, match=r"App\(defaults=...\): unknown option queue"):
        App(defaults={"queue": "x"})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"App\(queues=...\): mail: lease: expected text like"):
        App(queues={"mail": {"lease": "long"}})


# --- what concerns workers ---------------------------------------------------------------------------


def test_what_concerns_workers_is_in_the_handler():
    app = App("memory://", defaults={"soft_timeout": "1m"})
    policy = RetryPolicy(dead_on=(ValueError,))

    @app.job(name="send", aliases=["mail", "post"], queue="mail", rate="100/s", retry=policy, timeout="2m")
    def work(a: int) -> int:
        return a

    @app.job(batch=64, max_wait="20ms", soft_timeout=5)
    def embed(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    first, second = app.handlers()
    assert (first.name, first.aliases, first.queue, first.kind) == ("send", ("mail", "post"), "mail", "thread")
    assert first.rate == RateLimit(100)
    assert first.retry is policy
    assert first.soft_timeout_ms == 60_000
    assert first.options.timeout_ms == 120_000
    assert first.origin == f"{__name__}:{work.function.__qualname__}"
    assert second.batch is not None
    assert (second.batch.size, second.batch.max_wait_ms) == (64, 20)
    assert second.soft_timeout_ms == 5_000


@pytest.mark.parametrize(
    ("text", "limit"), [("100/s", RateLimit(100)), ("10/m", RateLimit(10, 60_000)), ("5 / 10s", RateLimit(5, 10_000))]
)
def test_rates_are_text(text: str, limit: RateLimit):
    assert rate_of(text) == limit


@pytest.mark.parametrize("text", ["100", "x/s", "0/s", "5/", "5/fortnight"])
def test_a_rate_that_makes_no_sense_is_refused(app: App, text: str):
    with pytest.raises(InvalidRequest, match="rate: "):
        app.job(rate=text)(lambda: None)
