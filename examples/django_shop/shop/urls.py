"""Two pages: place an order, and look at a task."""

from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

try:
    from django.tasks import default_task_backend
except ModuleNotFoundError:  # before Django 6
    from django_tasks import default_task_backend

from django.views.decorators.csrf import csrf_exempt

from shop.models import Order
from shop.tasks import pack, thank


@csrf_exempt
def order(request: HttpRequest, number: int) -> JsonResponse:
    """A task may run at once, in another process, so it is enqueued only after its data is committed."""
    with transaction.atomic():
        Order.objects.get_or_create(number=number)
        transaction.on_commit(partial(thank.enqueue, number))
    return JsonResponse({"task": pack.enqueue(number).id}, status=202)


def show(request: HttpRequest, task_id: str) -> JsonResponse:
    result = default_task_backend.get_result(task_id)
    value = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "attempts": result.attempts, "result": value})


urlpatterns = [path("orders/<int:number>", order), path("tasks/<str:task_id>", show)]
