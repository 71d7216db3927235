"""Mail that Django sends by way of the queue. Django is set up once a process, so each test has one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from servers.databases import Database

SETUP = """
import sys, types
from email.mime.image import MIMEImage
import django
import pymysql
from django.conf import settings
from django.core import mail
from django.core.mail import EmailMessage, EmailMultiAlternatives, send_mail
from django.db import connection, transaction
from django.utils.translation import gettext_lazy
from pyjobs import Jobs
from pyjobs.errors import InvalidArguments, InvalidConfiguration, StoreUnavailable
from pyjobs.testing import TestJobs
from unittest import TestCase
import pyjobs.django

engine, name, host, port, user, url, using = sys.argv[1:]
LOCMEM = "django.core.mail.backends.locmem.EmailBackend"
PYJOBS = {"JOBS": "shop.jobs:jobs", "EMAIL_BACKEND": LOCMEM} | ({"USING": using} if using else {})
pymysql.install_as_MySQLdb()  # for Django's mysql
settings.configure(
    DATABASES={"default": dict(ENGINE=f"django.db.backends.{engine}", NAME=name, HOST=host, PORT=port, USER=user)},
    EMAIL_BACKEND="pyjobs.django.EmailBackend", PYJOBS=PYJOBS, USE_I18N=False,
)
django.setup()
app = Jobs(url, name="shop")
sys.modules["shop"], sys.modules["shop.jobs"] = types.ModuleType("shop"), types.ModuleType("shop.jobs")
sys.modules["shop.jobs"].jobs = app
jobs, check = TestJobs(app), TestCase()
mail.outbox = []
"""

SENDING = """
with check.assertRaisesRegex(InvalidConfiguration, "does not define"):
    send_mail("Hello", "text", None, ["ada@example.org"])
pyjobs.django.define_mail(app, priority=-1)
app.sync()

class Undo(Exception): ...

for fails in (True, False):
    try:
        with transaction.atomic():
            assert send_mail("Hello", "text", None, ["ada@example.org"]) == 1
            assert app.count() == (0 if using else 1 + (not fails))
            if fails: raise Undo
    except Undo: pass
assert app.count() == (1 if using else 2)
[sent] = [jobs.assert_enqueued("django/mail", queue="mailers", priority=-1)]
assert mail.outbox == []
jobs.drain()
assert mail.outbox[-1].subject == "Hello", mail.outbox

image = MIMEImage(bytes(range(256)), "png")
image.add_header("Content-ID", "<logo>")
rich = EmailMultiAlternatives(
    gettext_lazy("Grüße"), "Schöne Grüße\\n", "Läden <shop@example.org>", ["ada@example.org"], bcc=["b@example.org"],
    cc=["c@example.org"], reply_to=["r@example.org"], headers={"X-Shop": "ä"}, attachments=[image],
)
rich.attach_alternative("<p>Schöne <img src=cid:logo></p>", "text/html")
rich.attach("прайс.bin", b"\\xff\\x00", "application/octet-stream")
rich.attach("a.txt", "ä", "text/plain")
rich.tags = ["welcome"]
nobody = EmailMessage("nobody", "text", to=[])
html = EmailMessage("html", "<p>", to=["d@example.org"])
html.content_subtype = "html"
assert mail.get_connection().send_messages([rich, nobody, html]) == 2
assert jobs.drain() == 2
got, got_html = mail.outbox[-2:]
assert "Message-ID" not in rich.extra_headers
rich.extra_headers |= {each: got.extra_headers[each] for each in ("Date", "Message-ID")}
boundaries = [part.message() for part in (rich, got)]
leaves = [[(part.items()[:-1] if part.is_multipart() else part.items(), part.get_payload(decode=True))
           for part in each.walk() if not part.is_multipart()] for each in boundaries]
check.assertEqual(*leaves)
heads = [{name: value for name, value in each.items() if name != "Content-Type"} for each in boundaries]
check.assertEqual(*heads)
check.assertEqual(got.recipients(), ["ada@example.org", "c@example.org", "b@example.org"])
assert got.tags == ["welcome"]
assert got_html.message().get_content_type() == "text/html"

with check.assertRaisesRegex(InvalidArguments, "args.message.fields.tags"):
    rich.tags = {1, 2}
    rich.send()
if not using:
    with app.using("sqlite:////there/is/no/such/folder.db"):
        assert send_mail("Hello", "text", None, ["ada@example.org"], fail_silently=True) == 0
        with check.assertRaises(StoreUnavailable):
            send_mail("Hello", "text", None, ["ada@example.org"])
with check.assertRaisesRegex(InvalidConfiguration, "username is given"):
    send_mail("Hello", "text", None, ["ada@example.org"], auth_user="me")
assert jobs.drain() == 0
for wrong, told in [({}, "no application"), (PYJOBS | {"QUEUE": "x"}, "has 'QUEUE'"),
                    (PYJOBS | {"EMAIL_BACKEND": settings.EMAIL_BACKEND}, "the one that enqueues")]:
    settings.PYJOBS = wrong
    with check.assertRaisesRegex(InvalidConfiguration, told):
        send_mail("Hello", "text", None, ["ada@example.org"])
print("fine")
"""

CONNECTIONS = """
from pyjobs.django import fresh_connections
broken = []

@app.job
@fresh_connections()
def ask(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", [number])
        assert cursor.fetchone() == (number,)

ask.enqueue(number=1)
jobs.drain()
connection.ensure_connection()
driver = connection.connection
getattr(driver, "_force_close", driver.close)()  # as a server that is restarted does it
connection.errors_occurred = True
ask.enqueue(number=2)
jobs.drain()
print("fine")
"""


def in_django(database: Database, program: str, using: str, path: Path) -> None:
    parts = urlsplit(database.url)
    place = [parts.path[1:], parts.hostname or "", str(parts.port or ""), parts.username or ""]
    engine = "sqlite3" if database.dialect == "sqlite" else database.dialect
    script = path / "script.py"
    script.write_text(SETUP + program)
    ran = subprocess.run(
        [sys.executable, script, engine, *place, database.url, using],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr


@pytest.mark.parametrize("using", ["", "default"])
def test_mail(database: Database, tmp_path: Path, using: str) -> None:
    in_django(database, SENDING, using, tmp_path)


def test_a_handler_gets_connections_that_work(database: Database, tmp_path: Path) -> None:
    in_django(database, CONNECTIONS, "", tmp_path)
