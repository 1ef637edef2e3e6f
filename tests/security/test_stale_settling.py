"""A settling that is sent again counts as done only if its own delivery brought the job there.

A worker's lease ends, another worker gets the job and settles it, and the answer to the first worker is lost. Its
client sends the call again. The proxy decides which answer is lost, on the way to a server and to the owner of a
shared directory.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stoker.brokers.connect import open_broker
from stoker.brokers.directory_socket import NAME
from stoker.brokers.local import LocalSettings
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.links import StreamLinks
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.brokers.shared_directory import SharedBroker
from stoker.client.sync import raise_refused
from stoker.model import commands as c
from stoker.model.errors import Unknown
from stoker.model.options import Backoff, Options
from stoker.model.states import State
from stoker.server.auth.settings import AuthSettings
from stoker.server.auth.tokens import create_token
from tests.crash.zygote import the_zygote
from tests.security.test_lost_answers import Proxy, through_a_proxy
from tests.served.on_loop import run
from tests.sharing.roles import join

AT_ONCE = Options(max_attempts=0, max_crashes=0, backoff=Backoff(kind="fixed", base_ms=0, jitter="none"))


class Scene:
    """The broker as it is, the proxy before it, and a client behind the proxy."""

    def __init__(self, there: Any, proxy: Proxy, here: Any) -> None:
        self._there = there
        self.proxy = proxy
        self._here = here

    def look(self, command: c.Command[Any]) -> Any:
        return self._there.execute("default", command)

    async def wait(self, command: c.Command[Any]) -> Any:
        return await self._there.execute_async("default", command)

    async def ask(self, command: c.Command[Any]) -> Any:
        return await asyncio.to_thread(self._here.execute, "default", command)

    async def ask_twice(self, command: c.Command[Any], between: Callable[[], object] = lambda: None) -> Any:
        """The answer to the first sending is lost; `between` happens before the second one."""

        def loses(number: int) -> bool:
            self.proxy.loses = lambda number: False
            between()
            return True

        lost = self.proxy.lost
        self.proxy.loses = loses
        reply = await self.ask(command)
        assert self.proxy.lost == lost + 1
        return reply


@asynccontextmanager
async def over_tcp(
    path: Path, settings: LocalSettings | None = None, token: str = "", **config: Any
) -> AsyncIterator[Scene]:
    async with through_a_proxy(settings=settings, **config) as (place, proxy):
        url = f"tcp://{token}@127.0.0.1:{proxy.port}" if token else f"tcp://127.0.0.1:{proxy.port}"
        client = await asyncio.to_thread(open_broker, url)
        try:
            yield Scene(place.broker, proxy, client)
        finally:
            client.close()


@asynccontextmanager
async def in_a_directory(path: Path) -> AsyncIterator[Scene]:
    """Another process owns the directory. The proxy takes the place of its socket, where our guest finds it."""
    async with AsyncExitStack() as stack:
        owner = the_zygote().fork(join, str(path), LocalSettings(shards=4))
        stack.callback(owner.kill)
        assert owner.receive() == "open"
        socket, behind = path / NAME, path / "behind"
        os.rename(socket, behind)
        there = RemoteBroker(StreamLinks(), ServerAddress("unix", str(behind), 0), RemoteSettings())
        stack.callback(there.close)
        proxy = Proxy(partial(asyncio.open_unix_connection, behind))
        server = await asyncio.start_unix_server(proxy.serve, socket)
        stack.push_async_callback(proxy.stop)
        stack.callback(server.close)
        guest = await asyncio.to_thread(open_broker, f"sqlite:///{path}")
        stack.callback(guest.close)
        assert isinstance(guest, SharedBroker)
        assert guest.owned is None
        yield Scene(there, proxy, guest)


SCENES = pytest.mark.parametrize("scene", [over_tcp, in_a_directory])


async def lost_to_another(scene: Scene) -> tuple[int, int, int]:
    """A job, the token of a worker whose lease ended, and that of the worker who has the job now."""
    job = scene.look(c.Push("q", b"", AT_ONCE)).id
    first = await scene.ask(c.Pull(["q"], worker="slow", lease_ms=20))
    second = await scene.wait(c.Pull(["q"], worker="quick", wait_ms=60_000, lease_ms=60_000))
    assert list(first.ids) == list(second.ids) == [job]
    assert first.token < second.token
    return job, first.token, second.token


def settlings(job: int, token: int) -> list[c.Command[Any]]:
    return [
        c.Ack([job], token, [b"mine"]),
        c.Fail([job], token, "broken", "Broken"),
        c.Fail([job], token, "broken", "Broken", retry=False),
        c.Release([job], token),
        c.Release([job], token, 60_000),
    ]


KINDS = pytest.mark.parametrize("kind", range(5), ids=["ack", "fail", "fail for good", "release", "snooze"])


@SCENES
@KINDS
def test_what_another_worker_did_is_not_taken_for_ones_own(scene: Any, kind: int, tmp_path: Path):
    async def main() -> None:
        async with scene(tmp_path / "data") as here:
            job, stale, current = await lost_to_another(here)
            mine, others = settlings(job, stale)[kind], settlings(job, current)[kind]
            reply = await here.ask_twice(mine, between=lambda: here.look(others))
            assert dict(reply.refused) == {job: "lost_lease"}

    run(main)


@SCENES
@KINDS
def test_what_the_first_sending_did_is_done(scene: Any, kind: int, tmp_path: Path):
    async def main() -> None:
        async with scene(tmp_path / "data") as here:
            job, _, _ = await lost_to_another(here)
            here.look(c.Release([job]))
            token = (await here.ask(c.Pull(["q"]))).token
            reply = await here.ask_twice(settlings(job, token)[kind])
            assert dict(reply.refused) == {}

    run(main)


@SCENES
def test_a_failure_is_found_behind_what_happened_to_the_job_since(scene: Any, tmp_path: Path):
    """The job ran again meanwhile, and ended in another way."""

    async def main() -> None:
        async with scene(tmp_path / "data") as here:
            job, _, current = await lost_to_another(here)

            def between() -> None:
                (again,) = here.look(c.Pull(["q"]))
                here.look(c.Ack([job], again.token))

            reply = await here.ask_twice(c.Fail([job], current, "broken", "Broken"), between)
            assert dict(reply.refused) == {}
            assert [(failed.id, failed.state) for failed in reply.jobs] == [(job, State.WAITING)]

    run(main)


@pytest.mark.parametrize("kind", range(5))
def test_what_the_log_no_longer_tells_is_unknown(kind: int, tmp_path: Path):
    """A log that keeps next to nothing has forgotten the delivery when the question comes."""

    async def main() -> None:
        async with over_tcp(tmp_path, LocalSettings(events_bytes_max=2_000)) as here:
            job, _, current = await lost_to_another(here)
            reply = await here.ask_twice(settlings(job, current)[kind], between=lambda: crowd_out(here))
            assert dict(reply.refused) == {job: "unknown"}

    def crowd_out(here: Scene) -> None:
        for _ in range(100):
            here.look(c.Push("others", b"x" * 100))

    run(main)


def test_a_worker_that_may_not_read_is_told_that_the_outcome_is_unknown(tmp_path: Path):
    """Looking at the job needs the right to read. The refusal of that look was taken for one of the settling."""

    async def main() -> None:
        tokens = tmp_path / "tokens"
        made = create_token(tokens, name="worker", tenant="default", permissions=["consume"], now=time.time())
        auth = AuthSettings(tokens_file=str(tokens))
        async with over_tcp(tmp_path, auth=auth, token=made.text) as here:
            job, _, current = await lost_to_another(here)
            reply = await here.ask_twice(c.Ack([job], current))
            assert dict(reply.refused) == {job: "unknown"}
            with pytest.raises(Unknown, match=f"whether job {job} was settled is unknown"):
                raise_refused(reply.refused)

    run(main)


def test_a_failure_whose_text_was_shortened_is_found(tmp_path: Path):
    async def main() -> None:
        async with over_tcp(tmp_path) as here:
            job, _, current = await lost_to_another(here)
            reply = await here.ask_twice(c.Fail([job], current, "x" * 100_000, "y" * 100_000))
            assert dict(reply.refused) == {}

    run(main)


@pytest.mark.parametrize("marked", [False, True])
def test_the_end_of_ones_own_lease_is_no_failure_of_ones_own(marked: bool, tmp_path: Path):
    """Neither says a word: only the reason tells them apart. A job that was to be cancelled is, either way."""

    async def main() -> None:
        async with over_tcp(tmp_path) as here:
            job = here.look(c.Push("q", b"", AT_ONCE)).id
            token = (await here.ask(c.Pull(["q"], lease_ms=60_000 if marked else 20))).token
            if marked:
                here.look(c.Cancel(job))
            else:
                assert await here.wait(c.Pull(["q"], wait_ms=60_000))
            reply = await here.ask_twice(c.Fail([job], token))
            assert dict(reply.refused) == ({} if marked else {job: "lost_lease"})

    run(main)


@pytest.mark.parametrize("result", [b"mine", None])
def test_an_ack_without_a_token_is_done_if_the_job_has_its_result(result: bytes | None, tmp_path: Path):
    async def main() -> None:
        async with over_tcp(tmp_path) as here:
            job, _, _ = await lost_to_another(here)
            reply = await here.ask_twice(c.Ack([job], None, None if result is None else [result]))
            assert dict(reply.refused) == {}

    run(main)


def test_an_ack_without_a_token_whose_result_is_not_there_is_refused(tmp_path: Path):
    async def main() -> None:
        async with over_tcp(tmp_path) as here:
            job, _, current = await lost_to_another(here)
            here.look(c.Ack([job], current, [b"theirs"]))
            reply = await here.ask_twice(c.Ack([job], None, [b"mine"]))
            assert dict(reply.refused) == {job: "wrong_state"}

    run(main)
