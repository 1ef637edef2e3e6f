"""Orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [  # noqa: RUF012 - as Django writes it
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.IntegerField(unique=True)),
                ("packed", models.BooleanField(default=False)),
            ],
        ),
    ]
