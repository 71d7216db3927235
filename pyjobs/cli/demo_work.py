"""The work of ``pyjobs demo``: the jobs of a photo shop, what is asked of the queue, and whether it kept its word.

What the handlers saw is measured inside the handlers; everything else is read back from the database.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from pyjobs.app import Jobs
from pyjobs.context import BatchCounts, JobContext, Permanent
from pyjobs.definition import Backoff, Concurrency
from pyjobs.records import Failure, JobRecord

PHOTOS = 240
LETTERS = 12
ENTRIES = 8
LEDGER = ("ledger/import", "ledger/export", "ledger/close")
LETTER_DELAY = 2.0
REPORT_KEY = "report:2026-01"

TOTAL = PHOTOS + 1 + LETTERS + 1 + 1 + 1 + ENTRIES * len(LEDGER)
"""The photos and their callback, the letters, one report, one payment, one webhook, the ledger."""


@dataclass(slots=True)
class Witness:
    """What the handlers saw, under one lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    most_at_once: Counter[str] = field(default_factory=Counter)
    letters_began: list[float] = field(default_factory=list)
    photos_at_callback: list[int] = field(default_factory=list)
    counts: list[BatchCounts | None] = field(default_factory=list)

    @contextmanager
    def at_work(self, kind: str) -> Iterator[None]:
        """The block is one job of that kind at work."""
        with self.lock:
            self.running[kind] += 1
            self.most_at_once[kind] = max(self.most_at_once[kind], self.running[kind])
        try:
            yield
        finally:
            with self.lock:
                self.running[kind] -= 1
                self.ended[kind] += 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What was enqueued, and when that began (``time.monotonic``)."""

    began: float
    seconds: float
    batch: UUID
    report: UUID
    report_again: UUID
    payment: UUID
    webhook: UUID


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing the queue promises, and whether it was so."""

    kept: bool
    text: str
    detail: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What the database says afterwards of the jobs that had a hard time."""

    payment: JobRecord
    payment_failures: list[Failure]
    webhook: JobRecord
    webhook_failures: list[Failure]


def declare(jobs: Jobs, seen: Witness) -> None:
    """Define the shop's jobs."""

    @jobs.job("photo/resize", queue="photos")
    def resize(photo: int) -> None:
        with seen.at_work("photo"):
            time.sleep(0.03 + photo % 5 * 0.01)

    @jobs.job("album/ready", queue="photos")
    def ready(album: str, *, context: JobContext) -> None:
        with seen.lock:
            seen.photos_at_callback.append(seen.ended["photo"])
            seen.counts.append(context.batch)

    @jobs.job("letter/send", queue="mail")
    async def send(reader: int) -> None:
        with seen.lock:
            seen.letters_began.append(time.monotonic())
        await asyncio.sleep(0.01)

    @jobs.job("report/build", queue="reports")
    def build(month: str) -> None:
        with seen.at_work("report"):
            time.sleep(0.1)

    @jobs.job("payment/charge", queue="payments", backoff=Backoff(base="300ms", factor=2, jitter=0))
    def charge(order: int, *, context: JobContext) -> None:
        if context.attempt < 3:
            raise ConnectionError("the payment service did not answer")

    @jobs.job("webhook/deliver", queue="webhooks")
    def deliver(url: str) -> None:
        raise Permanent("the other side answered 410 Gone")

    def keep_books(entry: int) -> None:
        with seen.at_work("ledger"):
            time.sleep(0.05)

    for name in LEDGER:
        jobs.define(name, keep_books, queue="books", concurrency=Concurrency(limit=1, group="ledger"))


def ask(jobs: Jobs) -> Asked:
    """Enqueue it all."""
    began = time.monotonic()
    jobs.enqueue_many([("letter/send", {"reader": reader}, {"delay": "2s"}) for reader in range(LETTERS)])
    payment = jobs.enqueue("payment/charge", {"order": 7})
    webhook = jobs.enqueue("webhook/deliver", {"url": "https://example.com/hook"})
    report = jobs.enqueue("report/build", {"month": "2026-01"}, unique_key=REPORT_KEY, delay="1s")
    again = jobs.enqueue("report/build", {"month": "2026-01"}, unique_key=REPORT_KEY, delay="1s")
    jobs.enqueue_many([(name, {"entry": entry}) for entry in range(ENTRIES) for name in LEDGER])
    with jobs.batch("album/ready", {"album": "summer"}, name="the summer album") as batch:
        for photo in range(PHOTOS):
            batch.add("photo/resize", {"photo": photo})
    return Asked(began, time.monotonic() - began, batch.id, report, again, payment, webhook)


def find(jobs: Jobs, asked: Asked) -> Findings:
    """Read back what became of the payment and the webhook."""
    payment, webhook = jobs.get(asked.payment), jobs.get(asked.webhook)
    assert payment is not None
    assert webhook is not None
    return Findings(
        payment=payment,
        payment_failures=[*jobs.failures(payment.id)],
        webhook=webhook,
        webhook_failures=[*jobs.failures(webhook.id)],
    )


def promises(jobs: Jobs, asked: Asked, seen: Witness, found: Findings) -> list[Promise]:
    """Each promise of the queue, held against what happened."""
    return [
        _nothing_lost(jobs),
        _callback(jobs, asked, seen),
        _unique(asked, seen),
        _retried(found),
        _buried(found),
        _delayed(asked, seen),
        _limited(seen),
    ]


def _nothing_lost(jobs: Jobs) -> Promise:
    totals = jobs.stats().totals
    ended = {state: totals.get(state, 0) for state in ("done", "dead")}
    told = f"{TOTAL} jobs were accepted; {ended['done']} are done and {ended['dead']} is dead"
    return Promise(ended == {"done": TOTAL - 1, "dead": 1} == totals, "Nothing is lost", told)


def _callback(jobs: Jobs, asked: Asked, seen: Witness) -> Promise:
    batch = jobs.batches.get(asked.batch)
    told = [(each.total, each.done, each.failed) for each in seen.counts if each]
    finished = ", ".join(map(str, seen.photos_at_callback)) or "none"
    return Promise(
        batch is not None
        and batch.finished_at is not None
        and seen.photos_at_callback == [PHOTOS]
        and told == [(PHOTOS, PHOTOS, 0)],
        "A batch calls back once, after its last job",
        f"called {_times(len(seen.photos_at_callback))}, when {finished} of {PHOTOS} photos were finished",
    )


def _unique(asked: Asked, seen: Witness) -> Promise:
    return Promise(
        asked.report == asked.report_again and seen.ended["report"] == 1,
        "One unique key, one job",
        f"asked for twice under one key, the report is one job, performed {_times(seen.ended['report'])}",
    )


def _retried(found: Findings) -> Promise:
    payment, failed = found.payment, [each.attempt for each in found.payment_failures]
    return Promise(
        payment.state == "done" and payment.attempts == 3 and failed == [1, 2],
        "What fails is tried again, later each time",
        f"the payment failed {_times(len(failed))} and is {payment.state} after attempt {payment.attempts}",
    )


def _buried(found: Findings) -> Promise:
    return Promise(
        (found.webhook.state, found.webhook.dead_reason) == ("dead", "permanent") and len(found.webhook_failures) == 1,
        "What cannot succeed is kept for you to look at",
        f"the webhook is {found.webhook.state} ({found.webhook.dead_reason}) after {found.webhook.attempts} attempt",
    )


def _delayed(asked: Asked, seen: Witness) -> Promise:
    waited = [began - asked.began for began in seen.letters_began]
    earliest = min(waited, default=0.0)
    return Promise(
        len(waited) == LETTERS and earliest >= LETTER_DELAY,
        "Nothing runs before its time",
        f"{len(waited)} letters were to wait {LETTER_DELAY:g} s; the first began after {earliest:.3f} s",
    )


def _limited(seen: Witness) -> Promise:
    most = seen.most_at_once["ledger"]
    return Promise(
        most == 1 and seen.ended["ledger"] == ENTRIES * len(LEDGER),
        "A limit holds over all workers",
        f"{seen.ended['ledger']} jobs had a limit of 1: never more than {most} ran at once "
        f"(photos: up to {seen.most_at_once['photo']})",
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
