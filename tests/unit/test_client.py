"""The two clients are one: options by name, refusals, and the asynchronous twin made from the synchronous one."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.client.aio import AsyncClient
from stoker.client.sync import Client, raise_refused, with_changes
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LostLease, NotFound, WrongState
from stoker.model.options import DEFAULT_OPTIONS, Options
from tools import make_aio


def formatted(source: str) -> str:
    """As `ruff format` writes it."""
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", str(make_aio.CLIENT / "aio.py"), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_asynchronous_client_is_what_the_tool_makes_of_the_synchronous_one():
    made = make_aio.made_from((make_aio.CLIENT / "sync.py").read_text())
    assert (make_aio.CLIENT / "aio.py").read_text() == formatted(made)


TWINS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def methods(kind: type[Any]) -> dict[str, Callable[..., Any]]:
    return {name: found for name, found in vars(kind).items() if inspect.isfunction(found)}


def test_both_clients_have_the_same_methods():
    assert [TWINS.get(name, name) for name in methods(Client)] == list(methods(AsyncClient))


@pytest.mark.parametrize("name", methods(Client))
def test_both_clients_take_the_same_parameters(name: str):
    ours = inspect.signature(methods(Client)[name])
    theirs = inspect.signature(methods(AsyncClient)[TWINS.get(name, name)])
    assert list(map(str, ours.parameters.values())) == list(map(str, theirs.parameters.values()))
    expected = str(ours.return_annotation).replace("Iterator", "AsyncIterator").replace("Client", "AsyncClient")
    assert str(theirs.return_annotation) == expected


@pytest.mark.parametrize("name", methods(Client))
def test_what_may_wait_is_a_coroutine(name: str):
    """All but what only makes a handle."""
    twin = methods(AsyncClient)[TWINS.get(name, name)]
    at_once = name in ("__init__", "as_tenant")
    assert (inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin)) != at_once


def test_every_command_of_the_contract_has_a_method():
    source = (make_aio.CLIENT / "sync.py").read_text()
    assert [kind.__name__ for kind in c.ALL if f"c.{kind.__name__}(" not in source] == []


def test_every_command_goes_through_execute():
    """So that a client of one's own, which wraps it, misses none."""
    source = (make_aio.CLIENT / "sync.py").read_text()
    assert source.count("self._broker.execute(") == 1


# --- options by name -------------------------------------------------------------------------------


def test_without_changes_the_options_are_the_same_object():
    assert with_changes(DEFAULT_OPTIONS, {}) is DEFAULT_OPTIONS


def test_options_by_name_go_on_top_of_those_given_as_a_value():
    assert with_changes(Options(priority=1, lifo=True), {"priority": 2}) == Options(priority=2, lifo=True)


@pytest.mark.parametrize("name", Options.__struct_fields__)
def test_every_option_can_be_given_by_name(name: str):
    value = getattr(DEFAULT_OPTIONS, name)
    assert with_changes(Options(), {name: value}) == DEFAULT_OPTIONS


def test_an_unknown_option_is_refused_with_the_list_of_those_there_are():
    with pytest.raises(InvalidRequest) as caught:
        with_changes(DEFAULT_OPTIONS, {"delay": 5, "atempts": 3, "priority": 1})
    message = caught.value.message
    assert "unknown option atempts, delay;" in message
    assert all(name in message for name in Options.__struct_fields__)


# --- refusals of one job ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"), [("not_found", NotFound), ("lost_lease", LostLease), ("wrong_state", WrongState)]
)
def test_a_refused_job_raises_its_error_and_names_the_job(code: str, error: type[Exception]):
    with pytest.raises(error, match="job 64 "):
        raise_refused({64: code})


def test_nothing_refused_raises_nothing():
    raise_refused({})
