"""Which parameters a push gives and which a worker fills in."""

from collections.abc import Callable
from typing import Annotated, Any, Optional

import pytest

from stoker import Context, Depends
from stoker.app.arguments import Arguments
from stoker.app.signatures import signature_of
from stoker.worker import handler
from stoker.worker.errors import BadHandler
from tests.app.kinds import Opaque


def open_database() -> str:
    return "database"


def names(function: Callable[..., Any]) -> list[str]:
    return [one.name for one in signature_of(function, "work").pushed]


def test_the_context_is_found_by_its_annotation():
    def first(ctx: Context, a: int): ...

    def last(a: int, ctx: Context): ...

    def maybe(a: int, *, context: Context | None = None): ...

    def old(a: int, ctx: Optional[Context] = None): ...  # noqa: UP045

    def spelled(a: int, ctx: "Context"): ...

    for function, name in (first, "ctx"), (last, "ctx"), (maybe, "context"), (old, "ctx"), (spelled, "ctx"):
        signature = signature_of(function, "work")
        assert signature.context == name
        assert names(function) == ["a"]


def test_dependencies_are_found_by_default_or_annotation():
    def work(a: int, pool: Annotated[Opaque, Depends(open_database)], db: Opaque = Depends(open_database)): ...

    signature = signature_of(work, "work")
    assert dict(signature.dependencies) == dict.fromkeys(("db", "pool"), handler.Depends(open_database))
    assert names(work) == ["a"]


def test_arguments_go_by_name_where_something_else_stands_before_them():
    def work(ctx: Context, a: int, b: int = 2): ...

    how = Arguments(signature_of(work, "work"), "work")
    assert how.decode(how.encode((1,), {}), "msgpack") == ((), {"a": 1, "b": 2})


def test_arguments_go_by_position_where_nothing_stands_before_them():
    def work(a: int, ctx: Context, *, db: Opaque = Depends(open_database)): ...

    how = Arguments(signature_of(work, "work"), "work")
    assert how.decode(how.encode((1,), {}), "msgpack") == ((1,), {})


def test_a_class_that_is_declared_later_is_found():
    def work(later: "Later") -> "Later": ...  # type: ignore[empty-body]

    signature = signature_of(work, "work")
    assert signature.pushed[0].annotation is Later
    assert signature.returns is Later


class Later:
    pass


def test_a_class_of_the_function_around_it_is_found():
    class Inner:
        pass

    def work(one: "Inner"):
        return Inner()

    assert signature_of(work, "work").pushed[0].annotation is Inner


def test_an_annotation_without_a_meaning_is_named():
    def work(a: int, one: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(BadHandler, match=r"work: the annotation 'Nowhere' of parameter 'one' cannot be resolved"):
        signature_of(work, "work")


def test_two_contexts_are_one_too_many():
    def work(a: Context, b: Context): ...

    with pytest.raises(BadHandler, match="'a' and 'b' both ask for the context"):
        signature_of(work, "work")


def test_what_a_worker_fills_in_must_have_a_name():
    def hidden(ctx: Context, /): ...

    def many(*ctx: Context): ...

    def before(ctx: Context, *rest: int): ...

    for function in (hidden, many):
        with pytest.raises(BadHandler, match="'ctx' must be a parameter that can be given by name"):
            signature_of(function, "work")
    with pytest.raises(BadHandler, match=r"move 'ctx' behind \*rest"):
        signature_of(before, "work")


def test_a_function_for_batches_has_the_elements_of_its_lists_as_arguments():
    def one(texts: list[str]) -> list[float | Exception]: ...  # type: ignore[empty-body]

    def two(ctx: Context, ids: list[int], names: "list[str] | None" = None): ...

    signature = signature_of(one, "one", is_batch=True)
    assert [(each.name, each.annotation) for each in signature.pushed] == [("texts", str)]
    assert signature.returns is float
    signature = signature_of(two, "two", is_batch=True)
    assert [(each.name, each.annotation) for each in signature.pushed] == [("ids", int), ("names", str)]
    assert all(each.is_required for each in signature.pushed)


def test_a_function_for_batches_needs_a_list():
    def nothing(): ...

    def many(*lists: list[int]): ...

    for function in (nothing, many):
        with pytest.raises(BadHandler, match="called once for a batch of jobs"):
            signature_of(function, "work", is_batch=True)
