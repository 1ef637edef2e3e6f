"""The shop's tables."""

from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)
    packed = models.BooleanField(default=False)
