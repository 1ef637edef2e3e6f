"""Which functions can be jobs, and under which names."""

import inspect
from typing import Any

import pytest

from stoker import App, Batch, Context, Depends, Middleware, Worker
from stoker.app.app import WorkerSettings
from stoker.app.errors import UnknownJob
from stoker.app.jobtype import AsyncJobType, PlainJobType
from stoker.model.errors import InvalidRequest
from stoker.worker import handler
from stoker.worker.errors import BadHandler


def test_a_job_is_still_the_function(app: App):
    @app.job
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert double(4) == 8
    assert (double.__name__, double.__doc__, double.__module__) == ("double", "Twice as much.", __name__)
    assert inspect.signature(double).parameters.keys() == {"n"}
    assert isinstance(double, PlainJobType)


def test_a_coroutine_function_is_called_as_one(app: App):
    @app.job()
    async def double(n: int) -> int:
        return 2 * n

    assert isinstance(double, AsyncJobType)
    coroutine = double(4)
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    assert done.value.value == 8


def test_where_a_function_runs_follows_from_what_it_is(app: App):
    @app.job
    async def asynchronous(): ...

    @app.job
    def plain(): ...

    app.job(kind="process")(test_where_a_function_runs_follows_from_what_it_is)
    assert [handler.kind for handler in app.handlers()] == ["async", "thread", "process"]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_coroutine_function_runs_nowhere_else(app: App, kind: Any):
    async def work(): ...

    with pytest.raises(BadHandler, match=f"work is a coroutine function and cannot be of kind '{kind}'"):
        app.job(kind=kind)(work)


def test_what_cannot_be_a_job_is_refused(app: App):
    def work(): ...

    def generator():
        yield

    with pytest.raises(BadHandler, match="work is a plain function and cannot be of kind 'async'"):
        app.job(kind="async")(work)
    with pytest.raises(BadHandler, match="is defined inside a function, where another process cannot find it"):
        app.job(kind="process")(work)
    with pytest.raises(BadHandler, match="generator is a generator"):
        app.job(generator)
    with pytest.raises(BadHandler, match="kind 'gpu': expected one of async, thread, process"):
        app.job(kind="gpu")(work)  # type: ignore[call-overload]
    with pytest.raises(BadHandler, match="5 cannot be a job"):
        app.job(5)  # type: ignore[call-overload]
    declared = app.job(work)
    with pytest.raises(BadHandler, match="work is already a job"):
        app.job(declared)
    assert list(app.jobs) == ["work"]


def test_a_name_is_given_once(app: App):
    @app.job(aliases=["old"])
    def work(): ...

    def other(): ...

    for name in ("work", "old"):
        with pytest.raises(BadHandler, match=f"there is already a job '{name}' .*give .* another name"):
            app.job(name=name)(other)
    with pytest.raises(BadHandler, match="there is already a job 'work'"):
        app.job(aliases=["work"])(other)
    assert list(app.jobs) == ["work"]


def test_a_function_may_be_declared_anew(app: App):
    """As when its module is imported again, after an edit."""

    def declare(answer: int) -> Any:
        @app.job
        def work(n: int = answer) -> int:
            return n

        return work

    declare(1)
    second = declare(2)
    assert app.job_named("work") is second
    assert app.handlers()[0].decode(b"\x80", "msgpack") == ((2,), {})


def test_a_job_is_found_by_its_name_and_its_aliases(app: App):
    @app.job(name="mail.welcome", aliases=["welcome"])
    def work(): ...

    assert app.job_named("mail.welcome") is work
    assert app.job_named("welcome") is work
    with pytest.raises(UnknownJob, match=r"this app has no job 'nowhere'; it has mail.welcome"):
        app.job_named("nowhere")
    with pytest.raises(UnknownJob):
        app.handlers(["nowhere"])


def test_options_hold_however_the_decorator_is_used(app: App):
    def plain(): ...

    def many(items: list[int]) -> None: ...

    job: Any = app.job
    assert job(plain, queue="mail").queue == "mail"
    assert job(many, batch=3).handler().batch.size == 3
    mail_job = app.job(queue="letters", name="letter")
    assert mail_job(plain).queue == "letters"
    with pytest.raises(BadHandler, match="max_wait needs batch"):
        job(plain, max_wait="1s")


def test_max_wait_is_for_batches(app: App):
    with pytest.raises(BadHandler, match="max_wait needs batch"):
        app.job(max_wait="1s")  # type: ignore[call-overload]
    with pytest.raises(BadHandler, match="max_wait is given twice"):
        app.job(batch=Batch(size=3), max_wait="1s")
    with pytest.raises(BadHandler, match="max_wait: expected text like"):
        app.job(batch=3, max_wait="soon")
    with pytest.raises(BadHandler, match="expected a size of at least 1"):
        app.job(batch=0)


def test_the_app_s_middleware_stands_outside_the_job_s():
    outer, inner = Middleware(), Middleware()
    app = App("memory://", middleware=[outer])

    @app.job(middleware=[inner])
    def work(): ...

    assert app.handlers()[0].middleware == (outer, inner)


def open_database() -> str:
    return "true"


def open_fake() -> str:
    return "fake"


class Database: ...


def test_a_dependency_is_found_by_its_type():
    app = App("memory://", dependencies={Database: handler.Depends(open_database, "worker")})

    @app.job
    def work(db: Database = Depends()): ...

    assert app.handlers()[0].dependencies == {"db": handler.Depends(open_database, "worker")}
    app.dependencies[Database] = open_fake
    assert app.handlers()[0].dependencies == {"db": handler.Depends(open_fake)}
    del app.dependencies[Database]
    with pytest.raises(BadHandler, match=r"'db' has no provider: .*App\(dependencies={Database: ...}\)"):
        app.handlers()


def test_a_provider_can_take_the_place_of_another(app: App):
    @app.job
    def work(db: Database = Depends(open_database, scope="worker")): ...

    assert app.handlers()[0].dependencies == {"db": handler.Depends(open_database, "worker")}
    app.dependencies[open_database] = open_fake
    assert app.handlers()[0].dependencies == {"db": handler.Depends(open_fake, "worker")}


def test_a_worker_can_be_given_everything_that_workers_take():
    taken = set(inspect.signature(Worker).parameters) - {"client", "handlers"}
    assert set(WorkerSettings.__annotations__) == taken


def test_a_worker_needs_jobs(app: App):
    with pytest.raises(InvalidRequest, match="this app has no jobs"):
        app.worker()


def test_a_method_is_no_job(app: App):
    class Mailer:
        @app.job
        def send(self, to: str): ...

    with pytest.raises(BadHandler, match="send is a method"):
        app.handlers()


def test_what_is_wrong_with_a_function_is_told_before_a_worker_starts(app: App):
    @app.job
    def work(a: Context, b: Context): ...

    with pytest.raises(BadHandler, match="both ask for the context"):
        app.handlers()


def test_modules_that_are_included_are_imported_for_a_worker(tmp_path, monkeypatch):
    (tmp_path / "stoker_included_app.py").write_text(
        "import stoker\napp = stoker.App('memory://', include=['stoker_included_jobs'])"
    )
    (tmp_path / "stoker_included_jobs.py").write_text(
        "from stoker_included_app import app\n@app.job\ndef work(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from stoker.app.loading import load_app

    app = load_app("stoker_included_app:app")
    assert not app.jobs
    assert [handler.name for handler in app.handlers()] == ["work"]
