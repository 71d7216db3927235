"""procrastinate: coroutines, as its documentation advises for throughput; LISTEN on. It fetches one job at a time
and has no option to fetch more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks.jobs import bucket, payload, tomorrow
from benchmarks.records import Handler


def application(url: str, handle: Handler, **pool: Any) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, **pool))

    @app.task(name="noop")
    async def noop(id: int, to: str, subject: str, body: str) -> None:
        handle(id)

    return app


async def install(url: str) -> None:
    async with application(url, lambda number: None).open_async() as app:
        await app.schema_manager.apply_schema_async()


class Producer:
    def __init__(self, app: App) -> None:
        self.noop = app.tasks["noop"]

    async def one(self, number: int) -> None:
        await self.noop.defer_async(**payload(number))

    async def many(self, numbers: Sequence[int]) -> None:
        await self.noop.batch_defer_async(*[payload(number) for number in numbers])

    async def later(self, numbers: Sequence[int]) -> None:
        await self.noop.configure(schedule_at=tomorrow()).batch_defer_async(*[payload(number) for number in numbers])

    async def limited(self, numbers: Sequence[int]) -> None:
        """Its locks: jobs of one lock run one after another. A lock is of one deferring call."""
        for number in numbers:
            await self.noop.configure(lock=bucket(number)).defer_async(**payload(number))


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    async with application(url, lambda number: None, min_size=1, max_size=1).open_async() as app:
        yield Producer(app)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    async with application(url, handle, max_size=concurrency + 4).open_async() as app:
        await app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
