"""The floor on MySQL and MariaDB: plain PyMySQL on the smallest table that can do it, no handlers, no features.

READ COMMITTED, since at the default isolation claims lock the gaps between rows and wait for each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from urllib.parse import unquote, urlsplit

import pymysql

from benchmarks.jobs import payload_json
from benchmarks.records import Handler

TABLE = """
    CREATE TABLE job (
        id bigint PRIMARY KEY AUTO_INCREMENT,
        state tinyint NOT NULL DEFAULT 0,
        run_at datetime(3) NOT NULL,
        args varchar(1000) NOT NULL,
        INDEX job_due (state, run_at, id)
    )
"""
INSERT = "INSERT INTO job (run_at, args) VALUES (now(3) + INTERVAL %s DAY, %s)"
CLAIM = """
    SELECT id, args FROM job WHERE state = 0 AND run_at <= now(3)
     ORDER BY run_at, id LIMIT 100 FOR UPDATE SKIP LOCKED
"""


def connect(url: str) -> pymysql.Connection:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path[1:],
        autocommit=True,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


async def install(url: str) -> None:
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)


class Producer:
    def __init__(self, connection: pymysql.Connection) -> None:
        self.connection = connection

    async def one(self, number: int) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(INSERT, (0, payload_json(number)))

    async def many(self, numbers: Sequence[int], days: int = 0) -> None:
        """By rows in one statement, which is what the driver makes of it."""
        with self.connection.cursor() as cursor:
            self.connection.begin()
            cursor.executemany(INSERT, [(days, payload_json(number)) for number in numbers])
            self.connection.commit()

    async def later(self, numbers: Sequence[int]) -> None:
        await self.many(numbers, 1)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    with closing(connect(url)) as connection:
        yield Producer(connection)


async def work(url: str, handle: Handler, concurrency: int) -> None:
    """One hundred at a time, one after another. No UPDATE answers its rows, so a claim is two statements."""
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        while True:
            connection.begin()
            cursor.execute(CLAIM)
            rows = cursor.fetchall()
            ids = [row[0] for row in rows]
            if ids:
                cursor.execute("UPDATE job SET state = 1 WHERE id IN %s", (ids,))
            connection.commit()
            for _, args in rows:
                handle(json.loads(args)["id"])
            if ids:
                cursor.execute("UPDATE job SET state = 2 WHERE id IN %s", (ids,))
            else:
                time.sleep(0.005)
