"""Puts a bug into running code: a function's source is changed by an exact replacement and compiled again.

Nothing is written to disk. The text that is replaced must be there exactly once, so a bug whose place was rewritten is
missed loudly and not silently. The new code goes into the very function object, so every table and every module that
has got hold of it runs it.
"""

import __future__

import importlib
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import CodeType, FunctionType
from typing import Any

import msgspec

from tests.crash.zygote import Child, Role, Zygote


class Edit(msgspec.Struct, frozen=True):
    """In this function, this text becomes that."""

    where: str
    """`module:function` or `module:Class.method`, below `stoker`."""
    old: str
    new: str


Edits = Sequence[Edit]


def function_at(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(f"stoker.{module}")
    for name in path.split("."):
        found = vars(found)[name]
    function = unwrapped(found)
    assert type(function) is FunctionType, f"{where} is no function"
    return function


def unwrapped(found: Any) -> Any:
    """The function behind a class method, a property or a context manager."""
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    return getattr(found, "__wrapped__", found)


def changed(edit: Edit) -> CodeType:
    """The code of the function with the bug in it."""
    function = function_at(edit.where)
    source = textwrap.dedent(inspect.getsource(function.__code__))
    times = source.count(edit.old)
    assert times == 1, f"{edit.where} has {edit.old!r} {times} times: the bug cannot be planted any more, plant it anew"
    names = dict(function.__globals__)
    code = compile(
        source.replace(edit.old, edit.new), f"<bug in {edit.where}>", "exec", __future__.annotations.compiler_flag
    )
    exec(code, names)
    made = unwrapped(names[function.__name__])
    assert made.__code__.co_freevars == function.__code__.co_freevars, f"{edit.where} uses names around it"
    return made.__code__  # type: ignore[no-any-return]


def plant(edits: Edits) -> None:
    """For as long as this process lives."""
    for edit in edits:
        function_at(edit.where).__code__ = changed(edit)


@contextmanager
def planted_here(edits: Edits) -> Iterator[None]:
    """In this process, for a while."""
    kept = [(function, function.__code__) for function in map(function_at, dict.fromkeys(edit.where for edit in edits))]
    try:
        plant(edits)
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


@contextmanager
def planted_in_children(edits: Edits) -> Iterator[None]:
    """In every process that the zygote forks for a while, and not in this one, which knows the truth."""
    fork = Zygote.fork

    def fork_with_bug(self: Zygote, role: Role, *arguments: object) -> Child:
        return fork(self, with_bug, edits, role, *arguments)

    Zygote.fork = fork_with_bug  # type: ignore[method-assign]  # taken back below
    try:
        yield
    finally:
        Zygote.fork = fork  # type: ignore[method-assign]


def with_bug(wire: "Connection[Any, Any]", edits: Edits, role: Role, *arguments: object) -> None:
    """A role, played by a process with a bug."""
    plant(edits)
    role(wire, *arguments)
