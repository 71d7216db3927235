"""honker on SQLite: jobs claimed and acknowledged by hundreds; an idle worker is woken by a commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import honker

from benchmarks.jobs import payload, tomorrow
from benchmarks.records import Handler

WORKER = "worker"


def open_queue(url: str) -> tuple[Any, Any]:
    database = honker.open(url.removeprefix("sqlite:///"))
    return database, database.queue("noop")


async def install(url: str) -> None:
    open_queue(url)


class Producer:
    def __init__(self, database: Any, queue: Any) -> None:
        self.database = database
        self.queue = queue

    async def one(self, number: int) -> None:
        self.queue.enqueue(payload(number))

    async def many(self, numbers: Sequence[int], at: int | None = None) -> None:
        with self.database.transaction() as transaction:
            for number in numbers:
                self.queue.enqueue(payload(number), tx=transaction, run_at=at)

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, int(tomorrow().timestamp()))


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    yield Producer(*open_queue(url))


async def work(url: str, handle: Handler, concurrency: int) -> None:
    _, queue = open_queue(url)
    async for job in queue.claim(WORKER):  # sleeps until there is one
        handle(job.payload["id"])
        job.ack()
        while jobs := queue.claim_batch(WORKER, 100):
            for each in jobs:
                handle(each.payload["id"])
            queue.ack_batch([each.id for each in jobs], WORKER)
