"""huey on SQLite: a consumer with ten threads. It enqueues one job a call. The arguments go by position, since it
keeps the name ``id`` for itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from huey import SqliteHuey

from benchmarks.jobs import payload
from benchmarks.records import Handler


def application(url: str, handle: Handler) -> tuple[SqliteHuey, Any]:
    huey = SqliteHuey("benchmark", filename=url.removeprefix("sqlite:///"))

    @huey.task(name="noop")
    def noop(number: int, to: str, subject: str, body: str) -> None:
        handle(number)

    return huey, noop


async def install(url: str) -> None:
    huey, _ = application(url, lambda number: None)
    huey.pending_count()


class Producer:
    def __init__(self, noop: Any) -> None:
        self.noop = noop

    async def one(self, number: int) -> None:
        self.noop(*payload(number).values())

    async def many(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.noop(*payload(number).values())


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    huey, noop = application(url, lambda number: None)
    yield Producer(noop)
    huey.storage.close()


async def work(url: str, handle: Handler, concurrency: int) -> None:
    huey, _ = application(url, handle)
    consumer = huey.create_consumer(workers=concurrency, worker_type="thread")
    consumer.run()
