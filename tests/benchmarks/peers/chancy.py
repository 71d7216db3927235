"""chancy: coroutines, ten at once, eager polling (it looks again at once while there is work), notifications on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from chancy import Chancy, Queue, Worker, job

from benchmarks.jobs import payload, tomorrow
from benchmarks.records import Handler

CONCURRENCY = 10
handlers: list[Handler] = []  # its jobs are functions of a module, which it finds by name


@job(queue="default")
async def noop(*, id: int, to: str, subject: str, body: str) -> None:
    handlers[0](id)


async def install(url: str) -> None:
    async with Chancy(url) as chancy:
        await chancy.migrate()
        await chancy.declare(
            Queue(
                "default",
                concurrency=CONCURRENCY,
                executor=Chancy.Executor.Async,
                eager_polling=True,
                polling_interval=1,  # seconds; a notification comes before
            )
        )


class Producer:
    def __init__(self, chancy: Chancy) -> None:
        self.chancy = chancy

    async def one(self, number: int) -> None:
        await self.chancy.push(noop.job.with_kwargs(**payload(number)))

    async def many(self, numbers: Sequence[int], job: Any = noop.job) -> None:
        pushed = self.chancy.push_many([job.with_kwargs(**payload(number)) for number in numbers])
        async for _ in pushed:
            pass

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, noop.job.with_scheduled_at(tomorrow()))


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    async with Chancy(url, min_connection_pool_size=1, max_connection_pool_size=1) as chancy:
        yield Producer(chancy)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    assert concurrency == CONCURRENCY, "it was told when it was installed"
    handlers.append(handle)
    async with Chancy(url) as chancy, Worker(chancy) as worker:
        await worker.wait_for_shutdown()
