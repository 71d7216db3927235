"""The shop's jobs. The web imports this module; so does the worker, by way of ``shop.worker``."""

from urllib.parse import quote

from django.conf import settings

from pyjobs import Jobs
from pyjobs.django import define_mail, fresh_connections
from shop.models import Order


def url_of(database: dict) -> str:
    """Where one of ``DATABASES`` is, as pyjobs has it."""
    if database["ENGINE"].endswith("sqlite3"):
        return f"sqlite:///{database['NAME']}"
    user = ":".join(quote(database[part], safe="") for part in ("USER", "PASSWORD") if database[part])
    place = f"{database['HOST']}:{database['PORT']}".rstrip(":")
    return f"postgresql://{user}{'@' if user else ''}{place}/{database['NAME']}"


jobs = Jobs(url_of(settings.DATABASES["default"]))
define_mail(jobs)


@jobs.job(queue="warehouse")
@fresh_connections()
def ship(order_id: int) -> None:
    Order.objects.filter(id=order_id).update(shipped=True)
