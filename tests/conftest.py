"""The fixtures that give a test its database. A test that takes ``database``, or anything made of it, runs on every
kind that was chosen (see servers/databases.py); ``@pytest.mark.databases("postgresql")`` keeps it to one dialect.

Several processes can share a run, as those of ``make test`` do: see servers/sharing.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pymysql
import pytest

from pyjobs.store import open_store
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from servers.databases import REQUIRE_VARIABLE, Database, Databases

DATABASES = pytest.StashKey[Databases]()
REPORTED = "databases"


def pytest_configure(config: pytest.Config) -> None:
    try:
        databases = Databases()
    except (psycopg.OperationalError, pymysql.OperationalError) as error:
        raise pytest.UsageError(f"a URL in PYJOBS_TEST_… names a server that cannot be reached: {error}") from error
    if databases.missing:
        raise pytest.UsageError(
            f"{REQUIRE_VARIABLE} asks for {', '.join(databases.missing)}; to be had are {', '.join(databases.choices)}"
        )
    config.stash[DATABASES] = databases


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the servers while whoever shares out the tests still waits for this process, and tell it what they were."""
    databases = session.config.stash[DATABASES]
    databases.close()
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told[REPORTED] = sorted(databases.tested)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from servers.sharing import ByDatabase

    return ByDatabase(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of the processes has ended: what it tested counts for the run."""
    databases = node.config.stash[DATABASES]
    databases.tested.update(getattr(node, "workeroutput", {}).get(REPORTED, ()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database_name" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("databases")
        databases = metafunc.config.stash[DATABASES]
        chosen = databases.chosen if only is None else databases.of_dialects(only.args)
        metafunc.parametrize("database_name", chosen, scope="session")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.section("databases")
    for line in config.stash[DATABASES].report():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    return request.config.stash[DATABASES]


@pytest.fixture
def database(databases: Databases, database_name: str) -> Iterator[Database]:
    """A database of its own for each test, with the contract installed."""
    with databases.fresh(database_name) as fresh:
        yield fresh


@pytest.fixture
def empty_database(databases: Databases, database_name: str) -> Iterator[Database]:
    """A database with nothing in it."""
    with databases.fresh(database_name, installed=False) as fresh:
        yield fresh


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    """An open store on ``database``."""
    store = open_store(database.url)
    yield store
    store.close()


@pytest.fixture
def clock(database: Database) -> TestClock:
    """The time of ``database``: it stands still until it is moved."""
    return TestClock(database.url)


@pytest.fixture
def sql(database: Database) -> Iterator[Sql]:
    """Plain SQL on ``database``, as another language would send it."""
    connection = database.connect()
    yield Sql(database.dialect, connection)
    connection.close()


class Sql:
    """``sql("SELECT …")`` answers the rows as dicts; ``?`` stands for a value, on every database."""

    def __init__(self, dialect: str, connection: Any) -> None:
        self.dialect = dialect
        self.connection = connection

    def __call__(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        if values and self.dialect != "sqlite":
            statement = statement.replace("%", "%%").replace("?", "%s")
        cursor = self.connection.execute(statement, *([values] if values else []))
        if cursor.description is None:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def value(self, statement: str, *values: Any) -> Any:
        """The single value of a single row."""
        [row] = self(statement, *values)
        [value] = row.values()
        return value
