"""Calls that need several commands, written once for synchronous and asynchronous callers.

A plan is a generator: it yields commands, receives the replies (errors are raised at the `yield`), and returns the
result. It does no I/O and knows no loop; the two functions that run plans do.
"""

import asyncio
import time
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model.commands import Command

T = TypeVar("T")


class Nap(msgspec.Struct, frozen=True):
    """Not a command: wait this long before going on."""

    ms: int


Plan: TypeAlias = Generator[Command[Any] | Nap, Any, T]


def carry_out(client: Client, plan: Plan[T]) -> T:
    try:
        command = next(plan)
        while True:
            reply: Any = None
            try:
                if isinstance(command, Nap):
                    time.sleep(command.ms / 1_000)
                else:
                    reply = client.execute(command)
            except Exception as error:
                command = plan.throw(error)
            else:
                command = plan.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def carry_out_async(client: AsyncClient, plan: Plan[T]) -> T:
    try:
        command = next(plan)
        while True:
            reply: Any = None
            try:
                if isinstance(command, Nap):
                    await asyncio.sleep(command.ms / 1_000)
                else:
                    reply = await client.execute(command)
            except Exception as error:
                command = plan.throw(error)
            else:
                command = plan.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
