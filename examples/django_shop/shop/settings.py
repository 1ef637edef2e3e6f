"""The least that Django needs. INSTALLED_APPS and TASKS have the parts about Stoker."""

from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent.parent

SECRET_KEY = "only for this example"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path.cwd() / "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "shop",
    "stoker.integrations.django",  # adds the command stoker_worker
]
if find_spec("django.tasks") is None:  # before Django 6, tasks are a separate package
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "stoker.integrations.django.StokerBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            # "url": "tcp://queue.internal:6789",   # without it: STOKER_URL, or the directory stoker.db here
            "max_attempts": 5,
            "timeout": "2m",
        },
    }
}
