"""Enqueueing in a transaction that SQLAlchemy or Django holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from pyjobs import Jobs
from pyjobs.connections import driver_connection
from pyjobs.errors import InvalidOption
from servers.databases import Database


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    jobs = Jobs(database.url)
    jobs.define("work", lambda: None)
    jobs.sync()
    yield jobs
    jobs.close()


@pytest.fixture
def engine(database: Database) -> Iterator[sqlalchemy.Engine]:
    url = database.url.replace("postgresql://", "postgresql+psycopg://").replace("mysql://", "mysql+pymysql://")
    engine = sqlalchemy.create_engine(url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize(("end", "count"), [("commit", 1), ("rollback", 0)])
def test_in_a_sqlalchemy_session(jobs: Jobs, engine: sqlalchemy.Engine, end: str, count: int) -> None:
    with Session(engine) as session:
        id = jobs.enqueue("work", connection=session)
        assert jobs.get(id) is None
        getattr(session, end)()
    assert jobs.count() == count


@pytest.mark.parametrize(("end", "count"), [("commit", 1), ("rollback", 0)])
def test_in_a_sqlalchemy_connection(jobs: Jobs, engine: sqlalchemy.Engine, end: str, count: int) -> None:
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
        jobs.enqueue_many([("work", {})], connection=connection)
        assert jobs.count() == 0
        getattr(connection, end)()
    assert jobs.count() == count


# Django is set up once a process and for good, so it gets one of its own.
IN_DJANGO = """
import sys

import django
import pymysql
from django.conf import settings
from django.db import connection, transaction

from pyjobs import Jobs

engine, name, host, port, user, url = sys.argv[1:]
place = {"ENGINE": f"django.db.backends.{engine}", "NAME": name, "HOST": host, "PORT": port, "USER": user}
pymysql.install_as_MySQLdb()  # for Django's mysql
settings.configure(DATABASES={"default": place})
django.setup()
jobs = Jobs(url)


class Undo(Exception):
    pass


for number, given in enumerate([connection, "default"]):
    with transaction.atomic():
        jobs.enqueue("work", connection=given)
        assert jobs.count() == number
    assert jobs.count() == number + 1
    try:
        with transaction.atomic():
            jobs.enqueue("work", connection=given)
            raise Undo
    except Undo:
        pass
    assert jobs.count() == number + 1
print("fine")
"""


def test_in_django(jobs: Jobs, database: Database) -> None:
    parts = urlsplit(database.url)
    place = [parts.path[1:], parts.hostname or "", str(parts.port or ""), parts.username or ""]
    engine = "sqlite3" if database.dialect == "sqlite" else database.dialect
    ran = subprocess.run(
        [sys.executable, "-c", IN_DJANGO, engine, *place, database.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr


def test_a_plain_connection_is_what_it_is() -> None:
    plain: Any = object()
    assert driver_connection(plain) is plain


def test_an_alias_without_django_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "django.db", raising=False)
    with pytest.raises(InvalidOption, match="Django is not in use"):
        driver_connection("default")
