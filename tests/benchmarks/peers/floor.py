"""The floor on PostgreSQL: plain psycopg on the smallest table that can do it, no handlers, no features.

Nothing that keeps jobs in PostgreSQL by such statements can be much faster; what it lacks is everything else.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import psycopg
from psycopg.types.json import Jsonb

from benchmarks.jobs import payload, payload_json, tomorrow
from benchmarks.records import Handler

TABLE = """
    CREATE TABLE job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        state smallint NOT NULL DEFAULT 0,
        run_at timestamptz NOT NULL DEFAULT now(),
        args jsonb NOT NULL
    );
    CREATE INDEX job_due ON job (run_at, id) WHERE state = 0;
"""
CLAIM = """
    UPDATE job SET state = 1
     WHERE id IN (SELECT id FROM job WHERE state = 0 AND run_at <= now()
                   ORDER BY run_at, id FOR UPDATE SKIP LOCKED LIMIT 100)
    RETURNING id, args
"""
SETTLE = "UPDATE job SET state = 2 WHERE id = ANY(%s)"


async def install(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(TABLE)


class Producer:
    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    async def one(self, number: int) -> None:
        self.connection.execute("INSERT INTO job (args) VALUES (%s)", (Jsonb(payload(number)),))

    async def many(self, numbers: Sequence[int], at: datetime | None = None) -> None:
        """Five thousand at a time: larger arrays are slower."""
        for start in range(0, len(numbers), 5_000):
            args = [payload_json(number) for number in numbers[start : start + 5_000]]
            self.connection.execute(
                "INSERT INTO job (args, run_at) SELECT args, coalesce(%s, now()) FROM unnest(%s::jsonb[]) args",
                (at, args),
            )

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, tomorrow())


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Producer(connection)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    """One hundred at a time, one after another: there is nothing to run side by side."""
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            rows = connection.execute(CLAIM).fetchall()
            for _, args in rows:
                handle(args["id"])
            if rows:
                connection.execute(SETTLE, ([row[0] for row in rows],))
            else:
                time.sleep(0.005)
