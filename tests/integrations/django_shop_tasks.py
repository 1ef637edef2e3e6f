"""Tasks in Django's words."""

from typing import Any

from stoker.integrations.django import tasks_api
from tests.integrations import django_project  # noqa: F401 - it must come first

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

seen: list[Any] = []


@task
def add(first: int, second: int = 1) -> int:
    seen.append((first, second))
    return first + second


@task(queue_name="mail", priority=10, takes_context=True)
async def thank(context: tasks_api.TaskContext, customer: str) -> str:
    seen.append(customer)
    return f"thank you, {customer}, in attempt {context.attempt}"


@task
def fail() -> None:
    seen.append("fail")
    raise LookupError("nobody is there")


@task
def collect(*args: int, **kwargs: int) -> list[int]:
    return [*args, *kwargs.values()]


@task
def strange() -> object:
    return {1: object()}
