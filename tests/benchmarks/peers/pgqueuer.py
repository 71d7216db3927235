"""pgqueuer: asyncpg and uvloop, as its own command line runs it; a hundred jobs a batch. No concurrency limit: it
enforces one by SQL, which would slow it down."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from benchmarks.jobs import payload_json
from benchmarks.records import Handler

run = uvloop.run


@asynccontextmanager
async def queries(url: str) -> AsyncIterator[Queries]:
    connection = await asyncpg.connect(url)
    try:
        yield Queries(AsyncpgDriver(connection))
    finally:
        await connection.close()


async def install(url: str) -> None:
    async with queries(url) as opened:
        await opened.install()


class Producer:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    async def one(self, number: int) -> None:
        await self.queries.enqueue("noop", payload_json(number).encode())

    async def many(self, numbers: Sequence[int], after: timedelta | None = None) -> None:
        payloads = [payload_json(number).encode() for number in numbers]
        count = len(payloads)
        await self.queries.enqueue(["noop"] * count, payloads, [0] * count, [after] * count if after else None)

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, timedelta(days=1))


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    async with queries(url) as opened:
        yield Producer(opened)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    async with queries(url) as opened:
        manager = QueueManager(opened)

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            handle(json.loads(job.payload or b"")["id"])

        await manager.run(batch_size=100)
