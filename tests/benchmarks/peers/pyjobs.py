"""pyjobs as an application writes it: ``Jobs``, a decorated function, and the worker as ``pyjobs worker`` runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyjobs.store.mysql
import pyjobs.store.postgresql
import pyjobs.store.sqlite  # noqa: F401 - as other peers' drivers are, before the clock runs
from benchmarks.jobs import CALLBACK, payload, tomorrow
from benchmarks.records import Handler
from pyjobs import Concurrency, Job, Jobs
from pyjobs.install import migrate
from pyjobs.worker import Worker
from pyjobs.worker.foreground import run_with_signals


def application(url: str, handle: Handler) -> Jobs:
    jobs = Jobs(url)

    @jobs.job
    def noop(id: int, to: str, subject: str, body: str) -> None:
        handle(id)

    @jobs.job("limited", concurrency=Concurrency(limit=1, key="to"))
    def limited(id: int, to: str, subject: str, body: str) -> None:
        handle(id)

    return jobs


async def install(url: str) -> None:
    migrate(url)
    application(url, lambda number: None).sync()


class Producer:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.noop: Job = jobs.definitions["noop"]

    async def one(self, number: int) -> None:
        self.noop.enqueue(**payload(number))

    async def many(self, numbers: Sequence[int]) -> None:
        self.jobs.enqueue_many([("noop", payload(number)) for number in numbers])

    async def later(self, numbers: Sequence[int]) -> None:
        at = tomorrow()
        self.jobs.enqueue_many([("noop", payload(number), {"at": at}) for number in numbers])

    async def limited(self, numbers: Sequence[int]) -> None:
        self.jobs.enqueue_many([("limited", payload(number)) for number in numbers])

    async def batch(self, numbers: Sequence[int]) -> None:
        with self.jobs.batch("noop", payload(CALLBACK)) as batch:
            for number in numbers:
                batch.add("noop", payload(number))

    async def spread(self, numbers: Sequence[int], queues: int) -> None:
        self.jobs.enqueue_many([("noop", payload(number), {"queue": f"q{number % queues}"}) for number in numbers])


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    jobs = application(url, lambda number: None)
    yield Producer(jobs)
    jobs.close()


async def work(url: str, handle: Handler, concurrency: int) -> None:
    run_with_signals(Worker(application(url, handle), concurrency=concurrency))
