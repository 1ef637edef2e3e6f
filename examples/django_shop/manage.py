"""Django's command line for this example.

python manage.py migrate
python manage.py runserver              # in one terminal
python manage.py stoker_worker          # in another

curl -X POST localhost:8000/orders/7
curl localhost:8000/tasks/64            # the id that was answered
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
