"""`stoker worker module:app` finds the app, or says why it does not."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.app.errors import CannotLoad
from stoker.app.loading import load_app

APP = "import stoker\napp = stoker.App('memory://')\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Files of a project in the current directory, which is not on the path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def write(**files: str) -> None:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    return write


def test_an_app_is_found_by_module_and_attribute(write):
    write(shop_a=f"{APP}tasks = app\n", pack_a__jobs=APP)
    assert load_app("shop_a:tasks") is load_app("shop_a:app")
    assert load_app("pack_a.jobs:app") is sys.modules["pack_a.jobs"].app


def test_the_attribute_may_be_left_out(write):
    write(shop_b=APP, shop_c="import stoker\nqueue = stoker.App('memory://')\n")
    assert load_app("shop_b") is sys.modules["shop_b"].app
    assert load_app("shop_c") is sys.modules["shop_c"].queue


def test_an_attribute_may_stand_inside_another(write):
    write(shop_d=f"{APP}class Config:\n    app = app\n")
    assert load_app("shop_d:Config.app") is load_app("shop_d")


def test_a_function_that_makes_the_app_is_called(write):
    write(shop_e="import stoker\ndef make():\n    return stoker.App('memory://')\n")
    assert load_app("shop_e:make").url == "memory://"


def test_the_usual_name_may_be_taken_by_another_application(write):
    write(
        shop_g="import stoker\nclass Web:\n    def __call__(self): ...\napp = Web()\njobs = stoker.App('memory://')\n"
    )
    assert load_app("shop_g") is sys.modules["shop_g"].jobs
    with pytest.raises(CannotLoad, match=r"'shop_g:app' is not an app: expected a stoker.App, got Web"):
        load_app("shop_g:app")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("", "does not name an app: expected module:attribute"),
        ("jobs/mail.py:app", "for the file jobs/mail.py, write jobs.mail:app"),
        ("./mail.py", "for the file ./mail.py, write mail:app"),
        ("nowhere_at_all:app", "there is no module 'nowhere_at_all': looked in /"),
        ("pack_f.nowhere:app", "there is no module 'pack_f.nowhere'"),
        ("broken_f:app", "cannot be imported: ZeroDivisionError: division by zero"),
        ("needy_f:app", r"needy_f.py, line 1 imports 'not_installed', which does not exist"),
        ("shop_f:tasks", r"shop_f has no 'tasks'; there is shop_f:app"),
        ("empty_f:app", "empty_f has no 'app'; it has no stoker.App"),
        ("empty_f", "has no app named 'app': say which one to use; it has no stoker.App"),
        ("two_f", "say which one to use; there is two_f:one, two_f:two"),
        ("other_f:app", "'other_f:app' is not an app: expected a stoker.App, got int"),
    ],
)
def test_what_cannot_be_loaded_says_why(write, target: str, told: str):
    write(
        pack_f__jobs=APP,
        broken_f="1 / 0",
        needy_f="import not_installed",
        shop_f=APP,
        empty_f="",
        two_f="import stoker\none = stoker.App('memory://')\ntwo = stoker.App('memory://')\n",
        other_f="app = 5",
    )
    with pytest.raises(CannotLoad, match=told):
        load_app(target)


def test_a_broken_module_shows_where_in_the_users_own_code(write):
    """Also where it is another module than the one that was named, and with nothing of the importing in front."""
    write(
        trace_a__jobs="import stoker\nfrom trace_a import mail\n",
        trace_a__mail="def connect():\n    raise LookupError('no relay')\n\n\nconnect()\n",
    )
    with pytest.raises(
        CannotLoad, match=r"trace_a.jobs.*LookupError: no relay \(.*trace_a/mail.py, line 2\)"
    ) as caught:
        load_app("trace_a.jobs:app")
    lines = caught.value.trace.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[1].endswith('trace_a/jobs.py", line 2, in <module>')
    assert any(line.endswith('trace_a/mail.py", line 2, in connect') for line in lines)
    assert lines[-1] == "LookupError: no relay"


def test_a_module_that_another_one_of_the_user_lacks_is_not_taken_for_the_one_that_was_named(write):
    """`pack_b` is there: it is `pack_b.jobs` that asks for what is not."""
    write(pack_b__jobs="import pack_b.jobs.nowhere\n")
    with pytest.raises(CannotLoad, match=r"pack_b/jobs.py, line 1 imports 'pack_b.jobs.nowhere'"):
        load_app("pack_b.jobs:app")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def broken(:\n", r"SyntaxError.*syntax_{0}.py, line 1"),
        ("import sys\nsys.exit(3)\n", r"syntax_{0}.py, line 2 calls sys.exit\(3\)"),
        ("def app():\n    raise KeyError('URL')\n", r"app\(\) raised KeyError: 'URL'"),
    ],
)
def test_what_else_a_module_can_do_wrong(write, text: str, told: str):
    number = len(text)
    write(**{f"syntax_{number}": text})
    with pytest.raises(CannotLoad, match=told.format(number)) as caught:
        load_app(f"syntax_{number}:app")
    assert f"syntax_{number}.py" in caught.value.trace


def test_a_module_that_an_app_includes_is_told_of_in_the_same_way(write):
    write(incl_a="import stoker\napp = stoker.App('memory://', include=['incl_b'])\n", incl_b="import starlette_x\n")
    with pytest.raises(CannotLoad, match=r"'incl_b' cannot be imported: .*incl_b.py, line 1 imports 'starlette_x'"):
        load_app("incl_a").handlers()
