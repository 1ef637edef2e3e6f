"""Calls that need several commands, written once for synchronous and asynchronous callers.

A plan is work in steps (`model/steps.py`): commands, and pauses between them.
"""

import asyncio
import time
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import steps
from stoker.model.commands import Command

T = TypeVar("T")


class Nap(msgspec.Struct, frozen=True):
    """Not a command: wait this long before going on."""

    ms: int


Plan: TypeAlias = Generator[Command[Any] | Nap, Any, T]


def carry_out(client: Client, plan: Plan[T]) -> T:
    def do(step: Command[Any] | Nap) -> Any:
        return time.sleep(step.ms / 1_000) if isinstance(step, Nap) else client.execute(step)

    return steps.carry_out(plan, do)


async def carry_out_async(client: AsyncClient, plan: Plan[T]) -> T:
    async def do(step: Command[Any] | Nap) -> Any:
        return await (asyncio.sleep(step.ms / 1_000) if isinstance(step, Nap) else client.execute(step))

    return await steps.carry_out_async(plan, do)
