"""awa: its queue storage, which a fresh installation has, COPY for many, ten workers, defaults otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from awa import AsyncClient

from benchmarks.jobs import payload, tomorrow
from benchmarks.records import Handler


@dataclass
class Noop:
    id: int
    to: str
    subject: str
    body: str


async def install(url: str) -> None:
    client = AsyncClient(url)
    await client.migrate()
    await client.install_queue_storage()
    await client.close()


class Producer:
    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    async def one(self, number: int) -> None:
        await self.client.insert(Noop(**payload(number)))

    async def many(self, numbers: Sequence[int], at: datetime | None = None) -> None:
        options: dict[str, Any] = {"run_at": at} if at else {}
        await self.client.enqueue_many_copy([Noop(**payload(number)) for number in numbers], **options)

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, tomorrow())


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    client = AsyncClient(url, max_connections=1)
    yield Producer(client)
    await client.close()


async def work(url: str, handle: Handler, concurrency: int) -> None:
    client = AsyncClient(url, max_connections=concurrency)

    @client.task(Noop, queue="default")
    async def noop(job: Any) -> None:
        handle(job.args.id)

    await client.start([("default", concurrency)])
    await asyncio.Event().wait()
