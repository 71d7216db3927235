"""For Django: mail that is sent later by a worker, and database connections for handlers.

```python
# settings.py
EMAIL_BACKEND = "pyjobs.django.EmailBackend"
PYJOBS = {
    "JOBS": "shop.jobs:jobs",                                           # the application, which calls define_mail(jobs)
    "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",     # by which the worker sends
    "USING": "default",                                                 # join this database's transactions
}
```

With ``USING`` a mail exists if and only if the transaction that sent it commits; the alias must be of the database that
the jobs are in. A message is stored by its fields, so the backend that sends it has them all; what a subclass keeps in
fields of its own comes along if JSON can hold it.
"""

from __future__ import annotations

import email as mime
import email.policy
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.mime.base import MIMEBase
from email.utils import formatdate, make_msgid
from typing import Any, Unpack

from django.conf import settings
from django.core.mail import DNS_NAME, EmailMultiAlternatives, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db import close_old_connections
from django.utils.functional import Promise

from pyjobs.app import Jobs
from pyjobs.definition import JobOptions
from pyjobs.errors import InvalidArguments, InvalidConfiguration, StoreUnavailable
from pyjobs.importing import imported

JOB = "django/mail"

_DEFAULTS: JobOptions = {"queue": "mailers", "max_attempts": 10}
_OF_THE_CLASS = ("content_subtype", "mixed_subtype", "alternative_subtype", "encoding")
_APART = ("connection", "attachments", "alternatives")
_SEVEN_BITS = email.policy.compat32.clone(cte_type="7bit")


def define_mail(jobs: Jobs, **options: Unpack[JobOptions]) -> None:
    """Define the job that sends what ``EmailBackend`` enqueues: in the queue ``mailers``, with ten attempts, unless
    ``options`` say otherwise. A ``django/mail`` that the application defines itself wins."""
    given: JobOptions = {**_DEFAULTS, **options}
    jobs.include(lambda jobs: jobs.define(JOB, deliver, **given))


def deliver(message: dict[str, Any]) -> None:
    """Send a stored message, by the backend that ``PYJOBS["EMAIL_BACKEND"]`` names."""
    get_connection(Settings.read().email_backend).send_messages([restored(message)])


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Django closes connections that are broken or too old around each request; this does it around a handler::

    @jobs.job
    @fresh_connections()
    def ship(order_id: int) -> None: ...
    """
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


class EmailBackend(BaseEmailBackend):  # type: ignore[misc]  # Django has no types
    """Enqueues messages instead of sending them: all that are sent together, or none.

    With ``fail_silently`` they are dropped when the database cannot be reached.
    """

    def __init__(self, fail_silently: bool = False, **options: Any) -> None:
        super().__init__(fail_silently=fail_silently)
        if given := sorted(name for name, value in options.items() if value is not None):
            raise InvalidConfiguration(
                f"{given[0]} is given for mail that is sent later", "the worker's backend takes it from the settings"
            )

    def send_messages(self, email_messages: Sequence[Any]) -> int:
        """How many were enqueued. ``InvalidConfiguration`` when the application does not define the job."""
        configured = Settings.read()
        jobs = configured.application()
        try:
            requests = [(JOB, {"message": stored(each)}) for each in email_messages if each.recipients()]
            jobs.enqueue_many(requests, connection=configured.using)
        except StoreUnavailable:
            if not self.fail_silently:
                raise
            return 0
        return len(requests)


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``settings.PYJOBS`` says."""

    jobs: str
    email_backend: str = "django.core.mail.backends.smtp.EmailBackend"
    using: str | None = None

    @classmethod
    def read(cls) -> Settings:
        given: Mapping[str, Any] = getattr(settings, "PYJOBS", {})
        if unknown := given.keys() - {"JOBS", "EMAIL_BACKEND", "USING"}:
            raise InvalidConfiguration(f"PYJOBS has {min(unknown)!r}", "it takes JOBS, EMAIL_BACKEND and USING")
        if not given.get("JOBS"):
            raise InvalidConfiguration("the settings name no application", 'PYJOBS = {"JOBS": "shop.jobs:jobs"}')
        read = cls(**{name.lower(): value for name, value in given.items()})
        if read.email_backend == f"{__name__}.{EmailBackend.__name__}":
            raise InvalidConfiguration(
                "PYJOBS names as EMAIL_BACKEND the one that enqueues", "name the one by which the worker sends"
            )
        return read

    def application(self) -> Jobs:
        jobs = imported(self.jobs)
        if JOB not in jobs.definitions:
            raise InvalidConfiguration(
                f"{self.jobs} does not define the job {JOB!r}", "call pyjobs.django.define_mail(jobs) where it is made"
            )
        return jobs


def stored(message: Any) -> dict[str, Any]:
    """A message's fields as JSON has them, dated, and with a Message-ID that each attempt sends again."""
    fields = {name: getattr(message, name) for name in _OF_THE_CLASS if hasattr(message, name)} | vars(message)
    kept = {name: _plain(value) for name, value in fields.items() if name not in _APART}
    headers = kept["extra_headers"]
    names = {name.lower() for name in headers}
    if "date" not in names:
        headers["Date"] = formatdate(localtime=settings.EMAIL_USE_LOCALTIME)
    if "message-id" not in names:
        headers["Message-ID"] = make_msgid(domain=str(DNS_NAME))
    return {
        "fields": kept,
        "alternatives": [[_plain(content), kind] for content, kind in getattr(message, "alternatives", [])],
        "attachments": [_stored_attachment(each) for each in message.attachments],
    }


def restored(message: Mapping[str, Any]) -> Any:
    """The message again, as an ``EmailMultiAlternatives``."""
    made = EmailMultiAlternatives()
    vars(made).update(message["fields"])
    for content, kind in message["alternatives"]:
        made.attach_alternative(content, kind)
    for attachment in message["attachments"]:
        made.attach(*_restored_attachment(**attachment))
    return made


def _plain(value: Any) -> Any:
    """With texts that were to be translated when they are shown translated now."""
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _stored_attachment(attachment: Any) -> dict[str, Any]:
    if isinstance(attachment, MIMEBase):
        return {"part": attachment.as_bytes(policy=_SEVEN_BITS).decode("ascii")}
    filename, content, kind = attachment
    if isinstance(content, bytes):
        return {"filename": filename, "base64": b64encode(content).decode("ascii"), "kind": kind}
    if isinstance(content, str):
        return {"filename": filename, "text": content, "kind": kind}
    raise InvalidArguments(f"an attachment is a {type(content).__name__}", "attach text, bytes or a MIMEBase")


def _restored_attachment(
    filename: str | None = None, text: str = "", base64: str | None = None, kind: str | None = None, part: str = ""
) -> tuple[Any, ...]:
    if part:
        return (_restored_part(part),)
    return filename, text if base64 is None else b64decode(base64), kind


def _restored_part(text: str) -> MIMEBase:
    """Django tells a part from a file's name by its class, which no parser makes."""
    parsed = mime.message_from_string(text)
    made = MIMEBase(parsed.get_content_maintype(), parsed.get_content_subtype())
    for name in [*made]:
        del made[name]
    for name, value in parsed.items():
        made[name] = value
    made.set_payload(parsed.get_payload())
    return made
