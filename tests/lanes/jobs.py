"""Handlers that run in child processes, which find them here by their names."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.worker.context import Context, current_job
from stoker.worker.handler import Batch, Depends, Handler
from stoker.worker.outcomes import Dead, RetryPolicy, Snooze
from tests.worker.running import handler

HERE = "tests.lanes.jobs"
ALL: list[Handler] = []


def in_process(**settings: Any) -> Callable[[Callable[..., Any]], Handler]:
    def made(function: Callable[..., Any]) -> Handler:
        name = function.__name__
        known = handler(function, **{"kind": "process", "origin": f"{HERE}:{name}", **settings})
        ALL.append(known)
        return known

    return made


def named(*names: str) -> list[Handler]:
    return [known for known in ALL if known.name in names]


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.001)


@in_process()
def pid() -> int:
    return os.getpid()


@in_process()
def work(ms: float = 0.0) -> int:
    until = time.perf_counter() + ms / 1000
    while time.perf_counter() < until:
        pass
    return os.getpid()


@in_process()
def slow_once(path: str, go: str) -> int:
    """The first one to come waits; the others are short."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return os.getpid()
    wait_for(go)
    return os.getpid()


@in_process()
def crash(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


@in_process(retry=RetryPolicy(dead_on=(KeyError,)))
def fail(how: str) -> None:
    if how == "snooze":
        raise Snooze("1h")
    if how == "dead":
        raise Dead("no use")
    if how == "policy":
        raise KeyError("gone")
    if how == "exit":
        sys.exit("enough")
    raise ValueError("no good")


@in_process(context="ctx")
def told(number: int, ctx: Context) -> int:
    ctx.progress(50, "half")
    ctx.log("number %d", number)
    ctx.log(os.fsdecode(b"a file named \xff"))
    ctx.emit(b"piece")
    before: int = ctx.restore(0)
    ctx.checkpoint(before + number)
    assert current_job() is ctx
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return before


@in_process()
def spin(path: str, ended: str) -> None:
    """Pure Python for ever, which cleans up."""
    Path(path).touch()
    try:
        while True:
            pass
    finally:
        Path(ended).touch()


@in_process()
def stubborn(path: str) -> None:
    """Cannot be stopped but by force."""
    Path(path).touch()
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue


@in_process()
def hold(path: str, go: str) -> None:
    Path(path).touch()
    wait_for(go)


@in_process(soft_timeout_ms=50)
def soft() -> None:
    while True:
        pass


@in_process(context="ctx")
def until_stopping(path: str, ctx: Context) -> str:
    Path(path).touch()
    while not ctx.stopping:
        time.sleep(0.001)
    return "saw it"


@in_process()
def fork_and_die(path: str) -> None:
    """The grandchild keeps everything open that it inherited."""
    if os.fork() == 0:
        Path(f"{path}.new").write_text(str(os.getpid()))
        os.rename(f"{path}.new", path)
        time.sleep(60)
        os._exit(0)
    wait_for(path)
    os._exit(1)


async def number() -> int:
    return 7


@in_process(dependencies={"seven": Depends(number, "worker")})
async def coroutine(add: int, seven: int) -> int:
    return add + seven


@in_process(batch=Batch(size=10, max_wait_ms=30))
def together(numbers: list[int]) -> list[int | Exception]:
    if 13 in numbers:
        os._exit(1)
    return [ValueError("odd") if number % 2 else len(numbers) for number in numbers]


@in_process(batch=Batch(size=2, max_wait_ms=60_000))
def hold_together(paths: list[list[str]]) -> None:
    Path(paths[0][0]).touch()
    wait_for(paths[0][1])


@in_process()
def leak() -> int:
    LEAKED.append(bytearray(64 * 1024 * 1024))
    return os.getpid()


LEAKED: list[bytearray] = []


@in_process()
def left_behind() -> None:
    threading.Thread(target=time.sleep, args=(60,)).start()


@in_process()
def crash_last(number: int, path: str) -> None:
    """Many short ones without a result, of which one kills its process."""
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{number}\n")
    if number == 30 and current_attempt() == 1:
        os._exit(1)


def current_attempt() -> int:
    ctx = current_job()
    assert ctx is not None
    return ctx.attempt


@in_process()
def odd_error() -> None:
    raise ValueError(os.fsdecode(b"a file named \xff"))


@in_process()
def short_then_long(number: int, go: str) -> None:
    if number == 20:
        wait_for(go)
