"""oban for Python, without its paid part: a queue with ten places, a pool of ten connections, and uvloop, by which its
own command line runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from oban import Oban, worker
from oban.schema import install as install_schema

from benchmarks.jobs import payload, tomorrow
from benchmarks.records import Handler

run = uvloop.run


def noop(handle: Handler) -> Any:
    @worker(queue="default", name="noop")
    class Noop:
        async def process(self, job: Any) -> None:
            handle(job.args["id"])

    return Noop


async def install(url: str) -> None:
    pool = await Oban.create_pool(url)
    await install_schema(pool)
    await pool.close()


class Producer:
    def __init__(self, oban: Oban) -> None:
        self.oban = oban
        self.noop = noop(lambda number: None)

    async def one(self, number: int) -> None:
        await self.oban.enqueue(self.noop.new(payload(number)))

    async def many(self, numbers: Sequence[int]) -> None:
        await self.oban.enqueue_many([self.noop.new(payload(number)) for number in numbers])

    async def later(self, numbers: Sequence[int]) -> None:
        at = tomorrow()
        await self.oban.enqueue_many([self.noop.new(payload(number), scheduled_at=at) for number in numbers])


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    pool = await Oban.create_pool(url, min_size=1, max_size=1)
    yield Producer(Oban(pool=pool))
    await pool.close()


async def work(url: str, handle: Handler, concurrency: int) -> None:
    noop(handle)
    pool = await Oban.create_pool(url, min_size=1, max_size=concurrency)
    await Oban(pool=pool, queues={"default": concurrency}).start()
    await asyncio.Event().wait()
