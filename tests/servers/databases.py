"""Fresh databases, cheaply: the contract is installed once, and each test gets a copy of that.

PostgreSQL copies a template database, SQLite a file: some 20 ms and 1 ms.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import psycopg

from pyjobs import install
from servers import folders, postgresql

REQUIRE_VARIABLE = "PYJOBS_TEST_REQUIRE"


@dataclass(frozen=True)
class Database:
    """One database for one test. ``server`` is what it runs in, None for SQLite."""

    name: str
    dialect: str
    url: str
    server: postgresql.Server | None = None

    def connect(self) -> Any:
        """A plain DB-API connection, each statement its own transaction until one is begun."""
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
    def __init__(self, name: str, server: postgresql.Server) -> None:
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


@dataclass(frozen=True)
class Choice:
    """A kind of database that can be had, and what it is."""

    name: str
    origin: str
    start: Callable[[], Engine]


class Databases:
    """All kinds that can be had here, which of them are to be tested, and those that run by now."""

    def __init__(self) -> None:
        named = frozenset(name for name in os.environ.get(REQUIRE_VARIABLE, "").replace(" ", "").split(",") if name)
        self.choices = {choice.name: choice for choice in _choices(named)}
        self.missing = sorted(name for name in named if not self._match(name))
        servers = [name for name in self.choices if name != "sqlite"]
        chosen = {"sqlite"} | {self._match(name) for name in named - set(self.missing)}
        if len(chosen) == 1:
            chosen |= set(servers[:1])
        self.chosen = [name for name in self.choices if name in chosen]
        self.running: dict[str, Engine] = {}

    def _match(self, required: str) -> str | None:
        """``postgresql`` alone is any version of it."""
        return next((name for name in self.choices if name == required or name.partition("-")[0] == required), None)

    @contextmanager
    def fresh(self, name: str, installed: bool = True) -> Iterator[Database]:
        """A new database of that kind, gone afterwards."""
        if name not in self.running:
            self.running[name] = self.choices[name].start()
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
            if choice.name in self.running:
                verdict = "tested"
            elif choice.name in self.chosen:
                verdict = "not tested: no test of this run asked for it"
            else:
                verdict = f"not tested: one PostgreSQL will do, unless {REQUIRE_VARIABLE} names this one"
            yield f"{choice.name} ({choice.origin}): {verdict}"
        if list(self.choices) == ["sqlite"]:
            yield f"postgresql: not tested: {postgresql.where_looked()}"


def _choices(wanted: frozenset[str]) -> Iterator[Choice]:
    yield Choice("sqlite", f"{sqlite3.sqlite_version}, Python's own", lambda: SqliteEngine("sqlite"))
    for source in postgresql.find(wanted):
        yield Choice(source.name, source.origin, partial(_start, source))


def _start(source: postgresql.Source) -> Engine:
    return PostgresqlEngine(source.name, source.start())
