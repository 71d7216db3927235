"""Fresh databases, cheaply: the contract is installed once, and each test gets a copy of that.

PostgreSQL copies a template database, SQLite a file: some 20 ms and 1 ms. MySQL and MariaDB can copy neither, so what
was installed is written down as statements, which are sent for each, all together: some 100 ms and 40 ms.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
from pymysql.constants import CLIENT

from pyjobs import install
from servers import folders, mariadb, mysql, postgresql, process

REQUIRE_VARIABLE = "PYJOBS_TEST_REQUIRE"


@dataclass(frozen=True)
class Database:
    """One database for one test. ``server`` is what it runs in, None for SQLite."""

    name: str
    dialect: str
    url: str
    server: process.Server | None = None

    def connect(self) -> Any:
        """A plain connection that has ``execute``, each statement its own transaction until one is begun."""
        if self.dialect == "mysql":
            return mysql.connect(self.url)
        if self.dialect == "sqlite":
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        return psycopg.connect(self.url, autocommit=True)


class Engine(Protocol):
    """What makes databases of one kind."""

    def fresh(self, installed: bool) -> Database: ...
    def drop(self, database: Database) -> None: ...
    def close(self) -> None: ...


class SqliteEngine:
    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = folders.in_memory()
        self.numbers = itertools.count()

    @cached_property
    def template(self) -> Path:
        file = self.folder / "template.db"
        install.migrate(f"sqlite:///{file}")
        return file

    def fresh(self, installed: bool) -> Database:
        file = self.folder / f"{next(self.numbers)}.db"
        if installed:
            shutil.copyfile(self.template, file)
        return Database(self.name, "sqlite", f"sqlite:///{file}")

    def drop(self, database: Database) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(database.url.removeprefix("sqlite:///") + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresqlEngine:
    def __init__(self, name: str, server: process.Server) -> None:
        self.name = name
        self.server = server
        self.connection = self._connect()
        self.made: list[str] = []
        self.left: str | None = None
        self.numbers = itertools.count()

    @cached_property
    def template(self) -> str:
        template = self._create("template0")
        install.migrate(self.server.url(template))
        return template

    def fresh(self, installed: bool) -> Database:
        name = self._create(self.template if installed else "template0")
        return Database(self.name, "postgresql", self.server.url(name), self.server)

    def drop(self, database: Database) -> None:
        """Drop the one before: PostgreSQL sleeps a tenth of a second if a connection to it is just about to close."""
        if self.left:
            self._drop(self.left)
        self.left = database.url.rpartition("/")[2]

    def close(self) -> None:
        try:
            for name in list(self.made):
                self._drop(name)
            self.connection.close()
        finally:
            self.server.close()

    def _create(self, template: str) -> str:
        name = f"pyjobs_test_{os.getpid()}_{next(self.numbers)}"
        self._administer(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        self.made.append(name)
        return name

    def _drop(self, name: str) -> None:
        self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.made.remove(name)

    def _administer(self, statement: str) -> None:
        """Over one connection for all, made anew when a restart has ended it."""
        try:
            self.connection.execute(statement)
        except psycopg.OperationalError:
            self.connection = self._connect()
            self.connection.execute(statement)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.url("postgres"), autocommit=True)


class MysqlEngine:
    """MySQL, or MariaDB."""

    def __init__(self, name: str, server: process.Server) -> None:
        self.name = name
        self.server = server
        self.connection = self._connect()
        self.made: list[str] = []
        self.numbers = itertools.count()

    @cached_property
    def template(self) -> list[str]:
        """The calls that make the installed database."""
        name = self._create()
        install.migrate(self.server.url(name))
        with self._connect(name) as connection:
            # MariaDB's views name the database.
            return [call.replace(f"`{name}`.", "") for call in _together(_statements(connection))]

    def fresh(self, installed: bool) -> Database:
        template = self.template if installed else []
        name = self._create()
        self._administer(f"USE `{name}`", *template)
        return Database(self.name, "mysql", self.server.url(name), self.server)

    def drop(self, database: Database) -> None:
        self._drop(database.url.rpartition("/")[2])

    def close(self) -> None:
        try:
            for name in list(self.made):
                self._drop(name)
            self.connection.close()
        finally:
            self.server.close()

    def _create(self) -> str:
        name = f"pyjobs_test_{os.getpid()}_{next(self.numbers)}"
        self._administer(f"CREATE DATABASE `{name}`")
        self.made.append(name)
        return name

    def _drop(self, name: str) -> None:
        """A transaction that is open in it would make the drop wait."""
        for (thread,) in self._administer(f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"):
            if thread != self.connection.thread_id():
                with suppress(pymysql.OperationalError):  # it may have gone by now
                    self._administer(f"KILL {thread}")
        self._administer(f"DROP DATABASE IF EXISTS `{name}`")
        self.made.remove(name)

    def _administer(self, *calls: str) -> list[tuple[Any, ...]]:
        """Over one connection for all, made anew when a restart has ended it; the rows of the last call."""
        if not self.connection.open or not self._answers():
            self.connection = self._connect()
        with self.connection.cursor() as cursor:
            rows: list[tuple[Any, ...]] = []
            for call in calls:
                cursor.execute(call)
                rows = list(cursor.fetchall())
                while cursor.nextset():
                    pass  # one of several statements may have failed, which this raises
            return rows

    def _answers(self) -> bool:
        try:
            self.connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True

    def _connect(self, database: str = "mysql") -> mysql.Connection:
        return mysql.connect(self.server.url(database), CLIENT.MULTI_STATEMENTS)


def _statements(connection: mysql.Connection) -> Iterator[str]:
    """All that is in a database, as statements that make it in another one."""
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = '{}'"
    named = [name for (name,) in connection.execute(tables.format("BASE TABLE")).fetchall()]
    yield "SET foreign_key_checks = 0"
    yield "SET NAMES utf8mb4 COLLATE utf8mb4_bin"  # as views and routines keep it
    for name in named:
        yield connection.execute(f"SHOW CREATE TABLE `{name}`").fetchone()[1]
    for name in named:
        cursor = connection.execute(f"SELECT * FROM `{name}`")
        for row in cursor.fetchall():
            yield cursor.mogrify(f"INSERT INTO `{name}` VALUES ({', '.join(['%s'] * len(row))})", row)
    views = [name for (name,) in connection.execute(tables.format("VIEW")).fetchall()]
    yield from _by_need({name: connection.execute(f"SHOW CREATE VIEW `{name}`").fetchone()[1] for name in views})
    found = "FROM information_schema.routines WHERE routine_schema = DATABASE()"
    for (mode,) in connection.execute(f"SELECT DISTINCT sql_mode {found}").fetchall():
        yield f"SET sql_mode = '{mode}'"
        for (name,) in connection.execute(f"SELECT routine_name {found} AND sql_mode = %s", [mode]).fetchall():
            yield connection.execute(f"SHOW CREATE PROCEDURE `{name}`").fetchone()[2]
    yield "SET foreign_key_checks = 1"


def _together(statements: Iterator[str]) -> Iterator[str]:
    """As few calls as can be. After the END of a block with a label MySQL looks whether the label is repeated, and so
    takes the semicolon that follows for a part of the routine: none may follow."""
    call: list[str] = []
    for statement in statements:
        call.append(statement)
        if re.search(r"^\w+: BEGIN$", statement, re.MULTILINE):
            yield ";\n".join(call)
            call.clear()
    yield ";\n".join(call)


def _by_need(views: dict[str, str]) -> Iterator[str]:
    """Views, each after those it reads."""
    left = dict(views)
    while left:
        for name, text in list(left.items()):
            if not (set(re.findall(r"`(\w+)`", text)) & left.keys()) - {name}:
                yield left.pop(name)


@dataclass(frozen=True)
class Choice:
    """A kind of database that can be had, and what it is."""

    name: str
    dialect: str
    origin: str
    start: Callable[[], Engine]


class Databases:
    """All kinds that can be had here, which of them are to be tested, those that run by now and those that ever did."""

    def __init__(self) -> None:
        named = frozenset(name for name in os.environ.get(REQUIRE_VARIABLE, "").replace(" ", "").split(",") if name)
        self.choices = {choice.name: choice for choice in _choices(named)}
        self.missing = sorted(name for name in named if not self._match(name))
        chosen = {"sqlite"} | {self._match(name) for name in named - set(self.missing)}
        if chosen == {"sqlite"}:
            chosen |= {self._match(kind) for kind in SERVERS}
        self.chosen = [name for name in self.choices if name in chosen]
        self.running: dict[str, Engine] = {}
        self.tested: set[str] = set()

    def of_dialects(self, dialects: Collection[str]) -> list[str]:
        """Those to be tested that speak one of these; a version of a server can be named as well."""
        return [name for name in self.chosen if {name, self.choices[name].dialect} & set(dialects)]

    def _match(self, required: str) -> str | None:
        """``postgresql`` alone is any version of it."""
        return next((name for name in self.choices if name == required or name.partition("-")[0] == required), None)

    @contextmanager
    def fresh(self, name: str, installed: bool = True) -> Iterator[Database]:
        """A new database of that kind, gone afterwards."""
        if name not in self.running:
            self.running[name] = self.choices[name].start()
            self.tested.add(name)
        engine = self.running[name]
        database = engine.fresh(installed)
        try:
            yield database
        finally:
            engine.drop(database)

    def close(self) -> None:
        while self.running:
            self.running.popitem()[1].close()

    def report(self) -> Iterator[str]:
        """One line for each kind: tested, or not and why."""
        for choice in self.choices.values():
            if choice.name in self.tested:
                verdict = "tested"
            elif choice.name in self.chosen:
                verdict = "not tested: no test of this run asked for it"
            else:
                verdict = f"not tested: another one will do, unless {REQUIRE_VARIABLE} names this one"
            yield f"{choice.name} ({choice.origin}): {verdict}"
        for kind, where_looked in SERVERS.items():
            if self._match(kind) is None:
                yield f"{kind}: not tested: {where_looked()}"


SERVERS = {
    "postgresql": postgresql.where_looked,
    "mariadb": mariadb.where_looked,
    "mysql": mysql.where_looked,
}


def _choices(wanted: frozenset[str]) -> Iterator[Choice]:
    yield Choice("sqlite", "sqlite", f"{sqlite3.sqlite_version}, Python's own", lambda: SqliteEngine("sqlite"))
    for source in postgresql.find(wanted):
        yield Choice(source.name, "postgresql", source.origin, partial(_start, PostgresqlEngine, source))
    for source in (*mariadb.find(), *mysql.find()):
        yield Choice(source.name, "mysql", source.origin, partial(_start, MysqlEngine, source))


def _start(engine: Callable[[str, process.Server], Engine], source: process.Source) -> Engine:
    return engine(source.name, source.start())
