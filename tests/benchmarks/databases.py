"""The databases it is measured on. Each hands out fresh databases in a prepared state, as like as two eggs.

One more kind of database is one more class here, and an entry in ``open_engine``.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg

from servers import folders, postgresql

Prepare = Callable[[str], None]
TOLD = (
    *("fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers", "max_wal_size"),
    *("max_connections", "autovacuum", "autovacuum_naptime", "jit"),
)


class Engine(Protocol):
    """``dialect`` is the scheme of its URLs; ``name`` stands in the results."""

    dialect: str
    name: str

    def fresh(self, state: str, prepare: Prepare) -> str:
        """The URL of a new database such as ``prepare`` makes of an empty one. It is prepared once for each ``state``
        and copied, where databases can be copied. The one that was handed out before is gone."""

    def observer(self, url: str) -> AbstractContextManager[Callable[[str], bool]]:
        """Asks yes-or-no questions, in SQL, without disturbing."""

    def execute(self, url: str, *statements: str) -> None: ...

    def snapshot(self, url: str) -> AbstractContextManager[None]:
        """During the block another session has a transaction open that has read, and may read on as of then."""

    def tidy(self, url: str) -> None:
        """Bring statistics and visibility up to date, as an old and well-kept database has them."""

    def settings(self) -> dict[str, str]: ...
    def close(self) -> None: ...


class PostgresqlEngine:
    """Copies template databases; a copy is on disk when it is handed out, and a checkpoint just over."""

    dialect = "postgresql"

    def __init__(self, url: Callable[[str], str], end: Callable[[], None]) -> None:
        self.url = url
        self.end = end
        self.connection = psycopg.connect(url("postgres"), autocommit=True)
        version = self.connection.info.server_version
        self.name = f"postgresql-{version // 10000}"
        self.templates: dict[str, str] = {}
        self.handed_out: str | None = None
        self.numbers = itertools.count()

    def fresh(self, state: str, prepare: Prepare) -> str:
        if self.handed_out:
            self._drop(self.handed_out)
            self.handed_out = None
        if state not in self.templates:
            self.templates[state] = self._prepared(prepare)
        self.handed_out = self._create(self.templates[state])
        return self.url(self.handed_out)

    def _prepared(self, prepare: Prepare) -> str:
        name = self._create("template0")
        try:
            prepare(self.url(name))
        except BaseException:
            self._drop(name)
            raise
        self.tidy(self.url(name))
        return name

    def _create(self, template: str) -> str:
        name = f"pyjobs_bench_{os.getpid()}_{next(self.numbers)}"
        self.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (template,)
        )
        self.connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return name

    def _drop(self, name: str) -> None:
        self.connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    @contextmanager
    def observer(self, url: str) -> Iterator[Callable[[str], bool]]:
        """By index wherever there is one: a question must not read a million rows."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET enable_seqscan = off")
            yield lambda question: bool(connection.execute(question).fetchone()[0])  # type: ignore[index]

    def execute(self, url: str, *statements: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def snapshot(self, url: str) -> Iterator[None]:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM pg_class")
            yield
            connection.execute("COMMIT")

    def tidy(self, url: str) -> None:
        self.execute(url, "VACUUM ANALYZE")

    def settings(self) -> dict[str, str]:
        rows = self.connection.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [[*TOLD]]
        )
        return {"version": self.connection.info.parameter_status("server_version") or ""} | dict(rows.fetchall())

    def close(self) -> None:
        for name in filter(None, (*self.templates.values(), self.handed_out)):
            self._drop(name)
        self.connection.close()
        self.end()


class SqliteEngine:
    """Copies files, in a folder of its own for each database, on disk."""

    dialect = "sqlite"
    name = "sqlite"

    def __init__(self) -> None:
        self.folder = folders.on_disk()
        self.templates: dict[str, Path] = {}
        self.handed_out: Path | None = None
        self.numbers = itertools.count()

    def fresh(self, state: str, prepare: Prepare) -> str:
        if self.handed_out:
            shutil.rmtree(self.handed_out)
        if state not in self.templates:
            template = self._folder()
            prepare(_url(template))
            self.templates[state] = template
        self.handed_out = self._folder()
        shutil.copytree(self.templates[state], self.handed_out, dirs_exist_ok=True)
        os.sync()
        return _url(self.handed_out)

    def _folder(self) -> Path:
        folder = self.folder / str(next(self.numbers))
        folder.mkdir()
        return folder

    @contextmanager
    def observer(self, url: str) -> Iterator[Callable[[str], bool]]:
        with closing(_connect(url)) as connection:
            yield lambda question: bool(connection.execute(question).fetchone()[0])

    def execute(self, url: str, *statements: str) -> None:
        with closing(_connect(url)) as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def snapshot(self, url: str) -> Iterator[None]:
        """A reader holds its place in the log, which therefore cannot start over and grows."""
        with closing(_connect(url)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield
            connection.execute("COMMIT")

    def tidy(self, url: str) -> None:
        self.execute(url, "ANALYZE")

    def settings(self) -> dict[str, str]:
        return {"version": sqlite3.sqlite_version, "journal": "each peer's own choice", "disk": "a file system on disk"}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


def _connect(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)


class DurableServer(postgresql.LocalServer):
    """A server of our own as it comes: it waits for the disk, and lies on one. Only connections are allowed more of:
    64 workers need them."""

    def prepare(self) -> None:
        shutil.rmtree(self.folder)
        self.folder = folders.on_disk()
        super().prepare()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "300",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), *options]


def open_engine(url: str) -> Engine:
    """The engine for a URL; ``postgresql`` alone is a server of our own, ``sqlite`` needs none."""
    match urlsplit(url).scheme or url:
        case "sqlite":
            return SqliteEngine()
        case "postgresql" if url == "postgresql":
            server = _own_server()
            return PostgresqlEngine(server.url, server.close)
        case "postgresql" | "postgres":
            return PostgresqlEngine(partial(_named, url), lambda: None)
        case other:
            raise ValueError(f"there is no benchmark on {other!r}: give postgresql, sqlite, or the URL of a server")


def _own_server() -> DurableServer:
    for source in postgresql.find(frozenset()):
        start = source.start
        if isinstance(start, partial) and start.func is postgresql.LocalServer:
            return DurableServer(*start.args)
    raise LookupError(f"no PostgreSQL to start: {postgresql.where_looked()}")


def _named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
