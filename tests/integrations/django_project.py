"""A Django project in this process, configured when this module is imported: Django allows one."""

from importlib.util import find_spec

import django
from django.conf import settings

URL = "memory://django-tests"

settings.configure(
    SECRET_KEY="tests",
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["stoker.integrations.django", *([] if find_spec("django.tasks") else ["django_tasks"])],
    TASKS={
        "default": {
            "BACKEND": "stoker.integrations.django.StokerBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"url": URL, "max_attempts": 2, "timeout": "2m"},
        },
        "any": {
            "BACKEND": "stoker.integrations.django.StokerBackend",
            "QUEUES": [],
            "OPTIONS": {"url": URL},
        },
    },
)
django.setup()
