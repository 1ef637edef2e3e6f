"""Reads a function's signature: the arguments of a push, and what a worker fills in (context, dependencies).

A function is read when it is first pushed or served, not when it is decorated: by then every name in its annotations is
defined. Nothing here knows how arguments are encoded.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from stoker.worker.context import Context
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Depends

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class PushedParameter:
    """A parameter that a push gives a value to."""

    name: str
    kind: inspect._ParameterKind
    annotation: Any
    default: Any = Parameter.empty

    @property
    def is_required(self) -> bool:
        return self.default is Parameter.empty and self.kind not in VARIADIC


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function, sorted by the source of their values."""

    pushed: tuple[PushedParameter, ...]
    context: str | None
    dependencies: Mapping[str, Depends]
    kinds: Mapping[str, Any]
    """The types of the dependencies."""
    returns: Any
    bindable: inspect.Signature
    """The pushed parameters only; its errors say what is wrong with a call."""
    is_leading: bool
    """Whether all positional parameters come before those that a worker fills in."""


def signature_of(function: Callable[..., Any], label: str, *, is_batch: bool = False) -> Signature:
    """Raises `BadHandler`, naming the parameter that is wrong."""
    try:
        whole = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadHandler(f"{label} has no readable signature: {error}") from None
    read = _Reader(function, label)
    pushed: list[PushedParameter] = []
    context: str | None = None
    dependencies: dict[str, Depends] = {}
    kinds: dict[str, Any] = {}
    is_leading = True
    for parameter in whole.parameters.values():
        annotation = read.annotation(parameter.name, parameter.annotation)
        depends = dependency_in(parameter.default, annotation)
        if depends is None and not is_context(annotation):
            if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and (context or dependencies):
                is_leading = False
            pushed.append(PushedParameter(parameter.name, parameter.kind, annotation, parameter.default))
            continue
        if parameter.kind in (Parameter.POSITIONAL_ONLY, *VARIADIC):
            raise BadHandler(f"{label}: {parameter.name!r} must be a parameter that can be given by name")
        if depends is not None:
            dependencies[parameter.name] = depends
            kinds[parameter.name] = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        elif context is not None:
            raise BadHandler(f"{label}: {context!r} and {parameter.name!r} both ask for the context: keep one")
        else:
            context = parameter.name
    check_names(whole, pushed, label)
    returns = read.annotation("return", whole.return_annotation)
    if is_batch:
        pushed, returns = items_of(pushed, label), element_of(returns)
    return Signature(tuple(pushed), context, dependencies, kinds, returns, bindable_of(pushed), is_leading)


def check_names(whole: inspect.Signature, pushed: list[PushedParameter], label: str) -> None:
    if pushed and pushed[0].name == "self" and pushed[0].annotation is Any:
        raise BadHandler(f"{label} is a method: a job must be a function, because it has no object to be called on")
    names = {one.name for one in pushed}
    for one in pushed:
        if one.name.startswith("__"):
            raise BadHandler(f"{label}: the parameter {one.name!r} begins with two underscores: rename it")
        if one.kind is Parameter.VAR_POSITIONAL:
            for other in whole.parameters.values():
                if other.name not in names and other.kind is Parameter.POSITIONAL_OR_KEYWORD:
                    raise BadHandler(f"{label}: move {other.name!r} behind *{one.name}, so that it is given by name")


def bindable_of(pushed: list[PushedParameter]) -> inspect.Signature:
    return inspect.Signature([Parameter(one.name, one.kind, default=one.default) for one in pushed])


def items_of(pushed: list[PushedParameter], label: str) -> list[PushedParameter]:
    """A batch function takes a list where a job has a value; a push gives one element of it."""
    if not pushed or any(one.kind in VARIADIC for one in pushed):
        raise BadHandler(
            f"{label} is called once for a batch of jobs: expected a parameter that takes a list for each argument of"
            " a job, and no * or **"
        )
    return [PushedParameter(one.name, one.kind, element_of(one.annotation)) for one in pushed]


def element_of(annotation: Any) -> Any:
    """The element type of a list annotation; anything where it does not say."""
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    arguments = get_args(bare)
    origin = get_origin(bare)
    if origin in (Union, UnionType):
        inner = [element_of(member) for member in arguments if member is not type(None)]
        return inner[0] if len(inner) == 1 else Any
    if not arguments or not isinstance(origin, type) or issubclass(origin, Mapping):
        return Any
    element = arguments[0]
    if get_origin(element) in (Union, UnionType):  # a result or an exception for each job
        kept = [member for member in get_args(element) if not _is_exception(member)]
        return Union[tuple(kept)] if kept else Any  # noqa: UP007 - made of a list
    return element


def _is_exception(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def is_context(annotation: Any) -> bool:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(bare) in (Union, UnionType):
        return any(is_context(member) for member in get_args(bare))
    return isinstance(bare, type) and issubclass(bare, Context)


def dependency_in(default: Any, annotation: Any) -> Depends | None:
    if isinstance(default, Depends):
        return default
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((note for note in notes if isinstance(note, Depends)), None)


class _Reader:
    """Resolves annotations one by one, so that the error can name the bad one."""

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        self._label = label
        plain = inspect.unwrap(function)
        self._globals = getattr(plain, "__globals__", {})
        self._locals = _closure_of(plain)

    def annotation(self, name: str, annotation: Any) -> Any:
        if annotation is Parameter.empty:
            return Any
        holder = SimpleNamespace(__annotations__={name: annotation})
        try:
            hints = typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)
        except NameError as error:
            what = "the return value" if name == "return" else f"parameter {name!r}"
            raise BadHandler(
                f"{self._label}: the annotation {annotation!r} of {what} cannot be resolved ({error}): a worker needs"
                " the type at run time, so import it outside of `if TYPE_CHECKING`"
            ) from None
        except (TypeError, SyntaxError) as error:
            raise BadHandler(
                f"{self._label}: the annotation {annotation!r} of {name!r} is not a type: {error}"
            ) from None
        return hints[name]


def _closure_of(function: Any) -> dict[str, Any]:
    """Variables of the enclosing functions that it uses."""
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells else ()
    found = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    return found
