"""`stoker dev` where only the bare package is installed."""

import importlib.util

import pytest

from stoker.cli import dev


def test_what_a_server_would_need_is_named(monkeypatch: pytest.MonkeyPatch):
    assert dev.lacking() == ""
    found = importlib.util.find_spec
    monkeypatch.setattr(dev, "find_spec", lambda name: None if name == "starlette" else found(name))
    assert dev.lacking() == "starlette"
