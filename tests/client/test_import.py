"""What a program that talks to a server has to load: little, and nothing of the queue itself."""

import sys

import pytest

import stoker
from tests.client.serving import ServerThread
from tests.test_layers import SOURCE, modules_loaded_by

QUEUE_SIDE = (
    "stoker.engine",
    "stoker.journal",
    "stoker.runtime",
    "stoker.records",
    "stoker.server",
    "stoker.maintenance",
    "stoker.settings",
    "stoker.brokers.local",
    "stoker.brokers.shared_directory",
    "stoker.cli",
)
FOREIGN = {
    "apsw",
    "rbloom",
    "uvloop",
    "grpc",
    "google",
    "click",
    "uvicorn",
    "starlette",
    "httptools",
    "websockets",
    "jwt",
}
SLOW = {"asyncio", "ssl", "socket", "http", "email", "logging", "concurrent", "multiprocessing", "subprocess"}
"""Of the standard library: each takes longer than the rest of an import altogether."""


def queue_side(loaded: set[str]) -> list[str]:
    packages = tuple(f"{package}." for package in QUEUE_SIDE)
    return sorted(name for name in loaded if f"{name}.".startswith(packages) or name.partition(".")[0] in FOREIGN)


def test_importing_loads_neither_the_queue_nor_a_network():
    loaded = modules_loaded_by("import stoker")
    assert not queue_side(loaded)
    brought_by_msgspec = modules_loaded_by("import msgspec")
    assert not {name for name in loaded - brought_by_msgspec if name.partition(".")[0] in SLOW}


def test_every_module_for_users_is_there_after_import_stoker():
    """`stoker.aio.connect(...)` as README writes it: a module is loaded when it is first asked for."""
    doors = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"} | {"spark", "testing"}
    assert set(stoker._DOORS) == doors
    assert doors <= set(dir(stoker))
    for door in sorted(doors):
        loaded = modules_loaded_by(f"import stoker\nassert stoker.{door}.__name__ == 'stoker.{door}'")
        assert f"stoker.{door}" in loaded


def test_the_asynchronous_client_needs_no_import_of_its_own():
    loaded = modules_loaded_by(
        "import asyncio, stoker\n"
        "async def main():\n"
        "    queue = await stoker.aio.connect('memory://')\n"
        "    await queue.push('mail', b'')\n"
        "    await queue.close()\n"
        "asyncio.run(main())"
    )
    assert "stoker.aio" in loaded


@pytest.mark.parametrize("parameters", ["", "?codec=json"])
def test_using_a_server_over_tcp_loads_nothing_of_the_queue(parameters: str):
    with ServerThread() as server:
        url = server.url + parameters
        loaded = modules_loaded_by(
            f"import stoker\nq = stoker.connect({url!r})\n"
            "q.push('a', b'')\n(job,) = q.pull('a')\nq.ack(job.id, job.token)\nq.close()"
        )
    assert "stoker.brokers.remote.links" in loaded  # it was not all for nothing
    assert not queue_side(loaded)
    assert "stoker.brokers.remote.http" not in loaded
    others = loaded - modules_loaded_by("import msgspec")
    assert {name.partition(".")[0] for name in others} - sys.stdlib_module_names <= {"stoker", "msgspec"}


def test_the_asynchronous_client_loads_nothing_of_the_queue_either():
    with ServerThread() as server:
        loaded = modules_loaded_by(
            "import asyncio, stoker.aio\n"
            "async def main():\n"
            f"    q = await stoker.aio.connect({server.url!r})\n"
            "    await q.push('a', b'')\n"
            "    await q.close()\n"
            "asyncio.run(main())"
        )
    assert not queue_side(loaded)
