"""What `import stoker` offers, and what it does not load."""

import pickle
import subprocess
import sys

import pytest

import stoker
from stoker import JobFailed, State
from tests.test_layers import modules_loaded_by


def test_every_public_name_is_there():
    for name in stoker.__all__:
        assert getattr(stoker, name) is not None, name
    assert set(stoker.__all__) <= set(dir(stoker))
    with pytest.raises(AttributeError, match="module 'stoker' has no attribute 'Nothing'"):
        stoker.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_loads_neither_apps_nor_workers():
    loaded = modules_loaded_by("import stoker")
    assert not {name for name in loaded if name.startswith(("stoker.app", "stoker.worker"))}


def test_declaring_jobs_loads_nothing_of_the_queue():
    loaded = modules_loaded_by(
        "import stoker\napp = stoker.App('tcp://localhost')\n@app.job\ndef f(n: int): ...\nf.s(1)"
    )
    assert not {name for name in loaded if name.startswith(("stoker.engine", "stoker.journal", "stoker.brokers.local"))}
    assert "pydantic" not in loaded


def test_a_star_import_brings_the_public_names():
    script = "from stoker import *\nprint(App.__name__, Snooze.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["App", "Snooze"]


def test_a_failure_survives_the_way_to_another_process():
    error = JobFailed(64, State.FAILED, "timeout", error="late", error_class="x.Late", attempts=3, name="work")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
