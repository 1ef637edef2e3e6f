"""The tasks of the shop, written for Django: they know nothing of Stoker."""

try:
    from django.tasks import TaskContext, task
except ModuleNotFoundError:  # before Django 6
    from django_tasks import TaskContext, task

from shop.models import Order


@task(priority=10)
def pack(number: int) -> str:
    """Plain functions run in threads; Django's database connections are handled."""
    Order.objects.filter(number=number).update(packed=True)
    return f"order {number} is packed"


@task(queue_name="mail", takes_context=True)
async def thank(context: TaskContext, number: int) -> str:
    """Coroutines run on the worker's event loop."""
    if context.attempt < 2:
        raise ConnectionError("the mail server does not answer")
    return f"thanks for order {number}, in attempt {context.attempt}"
