"""Stoker as a Django application, which adds the command `stoker_worker`."""

from django.apps import AppConfig


class StokerConfig(AppConfig):
    name = "stoker.integrations.django"
    label = "stoker"
    verbose_name = "Stoker"
