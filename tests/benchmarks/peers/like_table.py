"""What the database asks for storing jobs in the table of pyjobs, with all its indexes and constraints: plain SQL puts
them there, and no routine looks at them. W2 is measured against it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from benchmarks.jobs import payload_json
from benchmarks.records import Handler

TABLES = Path(__file__).parents[3] / "migrations" / "postgresql" / "pyjobs-0001-tables.sql"
INSERT = """
    INSERT INTO jobs (id, name, queue, state, priority, run_at, max_attempts, enqueued_at, args)
    SELECT gen_random_uuid(), 'noop', 'default', 'pending', 0, now(), 5, now(), args
      FROM unnest(%s::text[]) AS args
"""


async def install(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(TABLES.read_bytes())


class Producer:
    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    async def one(self, number: int) -> None:
        await self.many([number])

    async def many(self, numbers: Sequence[int]) -> None:
        """Five thousand at a time: larger arrays are slower."""
        for start in range(0, len(numbers), 5_000):
            args = [payload_json(number) for number in numbers[start : start + 5_000]]
            self.connection.execute(INSERT, (args,))


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Producer(connection)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    raise NotImplementedError("nothing performs these")
