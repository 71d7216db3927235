"""The databases it is measured on. Each hands out fresh databases in a prepared state, as like as two eggs.

One more kind of database is one more class here, and an entry in ``open_engine``.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pymysql

from servers import folders, mariadb, mysql, postgresql
from servers.process import LocalServer, Source

Errors = (psycopg.Error, pymysql.Error, sqlite3.Error)
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
        self.execute(self.url(name), "VACUUM ANALYZE")  # as autovacuum would have by and by
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
            self.execute(_url(template), "PRAGMA wal_checkpoint(TRUNCATE)")
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

    def settings(self) -> dict[str, str]:
        return {"version": sqlite3.sqlite_version, "journal": "each peer's own choice", "disk": "a file system on disk"}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


def _connect(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)


class MysqlEngine:
    """MySQL and MariaDB, which cannot copy a database: each is prepared anew."""

    def __init__(self, dialect: str, url: Callable[[str], str], end: Callable[[], None]) -> None:
        self.dialect = dialect
        self.url = url
        self.end = end
        self.connection = mysql.connect(url("mysql"))
        [self.version] = self.connection.execute("SELECT version()").fetchone()
        self.name = f"{dialect}-{self.version.partition('-')[0]}"
        self.handed_out: str | None = None
        self.numbers = itertools.count()

    def fresh(self, state: str, prepare: Prepare) -> str:
        self._drop()
        self.handed_out = f"pyjobs_bench_{os.getpid()}_{next(self.numbers)}"
        self.connection.execute(f"CREATE DATABASE {self.handed_out}")
        prepare(self.url(self.handed_out))
        return self.url(self.handed_out)

    def _drop(self) -> None:
        if self.handed_out:
            self.connection.execute(f"DROP DATABASE {self.handed_out}")
            self.handed_out = None

    @contextmanager
    def observer(self, url: str) -> Iterator[Callable[[str], bool]]:
        with closing(mysql.connect(url)) as connection:
            yield lambda question: bool(connection.execute(question).fetchone()[0])

    def execute(self, url: str, *statements: str) -> None:
        with closing(mysql.connect(url)) as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def snapshot(self, url: str) -> Iterator[None]:
        with closing(mysql.connect(url)) as connection:
            connection.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            yield
            connection.execute("COMMIT")

    def settings(self) -> dict[str, str]:
        told = (
            "innodb_flush_log_at_trx_commit",
            "sync_binlog",
            "log_bin",
            "innodb_doublewrite",
            "innodb_buffer_pool_size",
        )
        rows = self.connection.execute(f"SHOW VARIABLES WHERE variable_name IN {told}").fetchall()
        return {"version": self.version} | dict(rows)

    def close(self) -> None:
        self._drop()
        self.connection.close()
        self.end()


MANY_CONNECTIONS = {"max-connections": "300"}


class _OnDisk:
    """Puts the data of a server of our own on a disk, where a server's data are."""

    folder: Path

    def prepare(self) -> None:
        shutil.rmtree(self.folder)
        self.folder = folders.on_disk()
        super().prepare()  # type: ignore[misc]


class DurablePostgresql(_OnDisk, postgresql.LocalServer):
    """As it comes: it waits for the disk. Only connections are allowed more of: 64 workers need them."""

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "400",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), *options]


class DurableMysql(_OnDisk, mysql.LocalServer):
    settings = MANY_CONNECTIONS | {"mysqlx": "OFF", "secure-file-priv": ""}


class DurableMariadb(_OnDisk, mariadb.LocalServer):
    settings = MANY_CONNECTIONS


Own = tuple[Callable[[], Iterator[Source]], type[LocalServer], Callable[..., LocalServer]]

OWN: Mapping[str, Own] = {
    "postgresql": (lambda: postgresql.find(frozenset()), postgresql.LocalServer, DurablePostgresql),
    "mysql": (mysql.find, mysql.LocalServer, DurableMysql),
    "mariadb": (mariadb.find, mariadb.LocalServer, DurableMariadb),
}


def open_engine(url: str) -> Engine:
    """The engine for a URL; the mere name of a kind is a server of our own of that kind. SQLite needs none."""
    dialect = urlsplit(url).scheme or url
    if dialect == "sqlite":
        return SqliteEngine()
    if dialect not in OWN and dialect != "postgres":
        raise LookupError(f"there is no benchmark on {dialect!r}: give sqlite, {', '.join(OWN)} or the URL of a server")
    place, end = _started(dialect) if url in OWN else (partial(_named, url), lambda: None)
    if dialect.startswith("postgres"):
        return PostgresqlEngine(place, end)
    return MysqlEngine(dialect, place, end)


def _started(dialect: str) -> tuple[Callable[[str], str], Callable[[], None]]:
    """A durable server by the programs that the tests would start theirs by."""
    find, tests_own, durable = OWN[dialect]
    for source in find():
        start = source.start
        if isinstance(start, partial) and start.func is tests_own:
            server = durable(*start.args)
            return server.url, server.close
    raise LookupError(f"there is no {dialect} on this machine to start: give the URL of a server")


def _named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
