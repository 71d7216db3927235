"""The floor on SQLite: Python's own sqlite3 on the smallest table that can do it, no handlers, no features. It waits
for the disk at each commit, as SQLite does by default and as whoever must not lose a job has to."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing

from benchmarks.jobs import payload_json
from benchmarks.records import Handler

DAY = 24 * 60 * 60
TABLE = """
    PRAGMA journal_mode = wal;
    CREATE TABLE job (
        id INTEGER PRIMARY KEY,
        state INTEGER NOT NULL DEFAULT 0,
        run_at INTEGER NOT NULL,
        args TEXT NOT NULL
    );
    CREATE INDEX job_due ON job (run_at, id) WHERE state = 0;
"""
INSERT = "INSERT INTO job (run_at, args) VALUES (unixepoch() + ?, ?)"
CLAIM = """
    UPDATE job SET state = 1
     WHERE id IN (SELECT id FROM job WHERE state = 0 AND run_at <= unixepoch() ORDER BY run_at, id LIMIT 100)
    RETURNING id, args
"""


def connect(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)


async def install(url: str) -> None:
    with closing(connect(url)) as connection:
        connection.executescript(TABLE)


class Producer:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def one(self, number: int) -> None:
        self.connection.execute(INSERT, (0, payload_json(number)))

    async def many(self, numbers: Sequence[int], delay: int = 0) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(INSERT, [(delay, payload_json(number)) for number in numbers])
        self.connection.execute("COMMIT")

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, DAY)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    with closing(connect(url)) as connection:
        yield Producer(connection)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    """One hundred at a time, one after another: there is nothing to run side by side."""
    with closing(connect(url)) as connection:
        while True:
            rows = connection.execute(CLAIM).fetchall()
            for _, args in rows:
                handle(json.loads(args)["id"])
            if rows:
                ids = json.dumps([row[0] for row in rows])
                connection.execute("UPDATE job SET state = 2 WHERE id IN (SELECT value FROM json_each(?))", (ids,))
            else:
                time.sleep(0.005)
