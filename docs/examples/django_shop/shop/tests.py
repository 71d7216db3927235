"""On Django's own test database, as the jobs join its transactions. Run by ``python manage.py test``."""

from django.conf import settings
from django.core import mail
from django.db import connection, transaction
from django.test import TransactionTestCase

from pyjobs.install import migrate
from pyjobs.testing import TestJobs
from shop.jobs import jobs, ship, url_of
from shop.models import Order


class Orders(TransactionTestCase):
    def setUp(self):
        url = url_of(connection.settings_dict)
        migrate(url)
        self.enterContext(jobs.using(url))
        locmem = {"EMAIL_BACKEND": "django.core.mail.backends.locmem.EmailBackend"}
        mailing = self.settings(EMAIL_BACKEND="pyjobs.django.EmailBackend", PYJOBS=settings.PYJOBS | locmem)
        self.enterContext(mailing)  # the test runner has put another backend there
        jobs.sync()
        self.jobs = TestJobs(jobs)

    def tearDown(self):
        jobs.discard(ids=[job.id for job in self.jobs.enqueued()])  # Django empties its own tables only

    def test_an_order_is_shipped_and_thanked_for(self):
        answer = self.client.post("/orders", {"customer": "ada@example.org"})
        assert answer.status_code == 201
        self.jobs.assert_enqueued(ship, {"order_id": answer.json()["id"]}, queue="warehouse")
        assert mail.outbox == []
        assert self.jobs.drain() == 2
        assert [each.shipped for each in Order.objects.all()] == [True]
        assert [(each.subject, each.to) for each in mail.outbox] == [("Thank you", ["ada@example.org"])]

    def test_what_is_rolled_back_is_neither(self):
        with transaction.atomic():
            self.client.post("/orders", {"customer": "ada@example.org"})
            transaction.set_rollback(True)
        assert Order.objects.count() == 0
        self.jobs.assert_nothing_enqueued()
