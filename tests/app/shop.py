"""An app as people write it, for workers of every kind."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import stoker
from stoker import App, Context, Depends, Inputs, Middleware
from tests.app.kinds import Address, User

app = App("memory://", defaults={"backoff": 0})
diary: list[str] = []
"""What happened, in order."""


class Diary(Middleware):
    def before(self, ctx: Context) -> None:
        diary.append(f"before {ctx.name}")


async def open_database() -> AsyncIterator[dict[str, int]]:
    diary.append("opened")
    try:
        yield {"Ann": 1}
    finally:
        diary.append("closed")


def open_file() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    diary.append(f"written {lines}")


@app.job(queue="mail", aliases=["greet"])
async def welcome(user: User, loud: bool = False) -> str:
    text = f"welcome {user.name} of {user.address[0].street}"
    return text.upper() if loud else text


@app.job
def where(ctx: Context, street: str, *, zip: int = 0) -> Address:
    ctx.progress(50, "half way")
    ctx.log("in %s", street)
    ctx.emit({"street": street})
    ctx.emit(b"raw")
    return Address(street, zip)


@app.job(middleware=[Diary()])
async def look_up(name: str, db: dict[str, int] = Depends(open_database)) -> int:
    return db[name]


@app.job
def write(line: str, lines: Any = Depends(open_file)) -> None:
    lines.append(line)


@app.job(kind="process")
def heavy(n: int) -> tuple[int, bool]:
    return n * n, os.getpid() != int(os.environ["STOKER_TEST_PID"])


@app.job(kind="process")
def heavy_sum(squares: list[tuple[int, bool]] = Inputs()) -> int:
    return sum(square for square, _ in squares)


@app.job(batch=10, max_wait="1ms", queue="texts")
def lengths(texts: list[str]) -> list[int | Exception]:
    return [len(text) if text else ValueError("empty") for text in texts]


@app.job(max_attempts=3)
async def flaky(ctx: Context, times: int) -> int:
    if ctx.attempt <= times:
        raise ConnectionError(f"attempt {ctx.attempt}")
    return ctx.attempt


@app.job
def unwanted(how: str) -> None:
    raise {"cancel": stoker.Cancel("not needed"), "dead": stoker.Dead("bad address")}[how]
