from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [  # noqa: RUF012, as Django writes it
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID")),
                ("customer", models.EmailField(max_length=254)),
                ("shipped", models.BooleanField(default=False)),
            ],
        ),
    ]
