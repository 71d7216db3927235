"""What is MySQL's and MariaDB's own in their store: URLs, reading, polling, and what their errors mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pymysql
import pytest

from pyjobs.errors import (
    ContractMismatch,
    InvalidConfiguration,
    InvalidOption,
    PyjobsError,
    StoreUnavailable,
    UnknownJob,
)
from pyjobs.records import ClaimRequest, NewJob, Outcome
from pyjobs.store import mysql, open_store
from pyjobs.store.base import Store
from pyjobs.store.mysql_url import settings
from servers.databases import Database

on_mysql = pytest.mark.databases("mysql")


class TestUrls:
    def test_all_parts_are_read(self) -> None:
        assert settings("mysql://%C3%A4da:p%40ss@db.example.org:3307/sh%2Fop?ssl_ca=/ca.pem&ssl_verify_cert=true") == {
            "host": "db.example.org",
            "port": 3307,
            "user": "äda",
            "password": "p@ss",
            "database": "sh/op",
            "ssl_ca": "/ca.pem",
            "ssl_verify_cert": True,
        }

    def test_what_is_not_said_is_left_to_the_driver(self) -> None:
        assert settings("mariadb:///shop?unix_socket=/run/mysqld/mysqld.sock") == {
            "database": "shop",
            "unix_socket": "/run/mysqld/mysqld.sock",
        }

    @pytest.mark.parametrize(
        ("url", "told"),
        [
            ("mysql://localhost", "names no database"),
            ("mysql://localhost/", "names no database"),
            ("mysql://localhost:port/shop", "cannot be read"),
            ("mysql://localhost/shop?schema=jobs", "option 'schema'"),
            ("mysql://localhost/shop?ssl_disabled=perhaps", "ssl_disabled"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, url: str, told: str) -> None:
        with pytest.raises(InvalidConfiguration, match=told) as refusal:
            open_store(url)
        assert refusal.value.hint

    def test_a_server_that_is_not_there_is_not_waited_for(self) -> None:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            open_store("mysql://root@127.0.0.1:1/shop").contract()
        assert time.monotonic() - started < 2


@on_mysql
class TestCalls:
    def test_without_the_contract(self, empty_database: Database) -> None:
        store = open_store(empty_database.url)
        with pytest.raises(ContractMismatch) as refusal:
            store.contract()
        assert refusal.value.hint == "run: pyjobs migrate"
        store.close()

    def test_a_routine_that_is_being_replaced_is_waited_for(self, store: Store, database: Database) -> None:
        store.define("work", {})
        text = create_text(database, "jobs_forget")
        with changed(database, "DROP PROCEDURE jobs_forget", text, after=0.3):
            assert store.forget("work")

    def test_a_connection_that_was_killed_is_made_anew(self, store: Store, database: Database) -> None:
        store.define("work", {})
        with database.connect() as other:
            mine = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            for (thread,) in other.execute(mine).fetchall():
                other.execute(f"KILL {thread}")
        assert store.forget("work")

    @pytest.mark.parametrize("number", [1105, 1317, 1329, 1467])
    def test_a_call_that_was_killed_is_made_again(self, store: Store, database: Database, number: int) -> None:
        """By ``KILL QUERY``, of which each step says something else."""
        store.define("work", {})
        text = create_text(database, "jobs_forget")
        killed = f"CREATE PROCEDURE jobs_forget(name TEXT) SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}"
        with database.connect() as other:
            other.execute("DROP PROCEDURE jobs_forget")
            other.execute(killed)

            def mend() -> None:
                other.execute("DROP PROCEDURE jobs_forget")
                other.execute(text)

            with in_a_while(mend):
                assert store.forget("work")

    def test_a_call_that_the_server_hangs_up_on_for_its_size(self, store: Store, database: Database) -> None:
        store.define("work", {})
        with database.connect() as other:
            [most] = other.execute("SELECT @@GLOBAL.max_allowed_packet").fetchone()
            other.execute("SET GLOBAL max_allowed_packet = 1048576")
            try:
                store.close()
                store.contract()
                with pytest.raises(InvalidOption, match="larger than the server takes"):
                    store.enqueue_many([NewJob("work", '"' + "x" * 400_000 + '"')] * 6)
            finally:
                other.execute(f"SET GLOBAL max_allowed_packet = {most}")
        assert store.forget("work")

    def test_a_refusal_is_told_in_full(self, store: Store) -> None:
        long = "n" * 180
        store.define("the one that is there", {})
        with pytest.raises(UnknownJob) as refusal:
            store.enqueue(long, "{}")
        assert long in refusal.value.message
        assert "the one that is there" in refusal.value.hint

    @pytest.mark.parametrize("args", ['"\\udc80"', '"\0"'])
    def test_what_cannot_be_sent_is_refused_before(self, store: Store, args: str) -> None:
        store.define("work", {})
        with pytest.raises(PyjobsError):
            store.enqueue("work", args.encode().decode("unicode_escape"))

    def test_a_name_that_cannot_be_sent_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidOption):
            store.forget("\udc80")

    def test_in_any_mode_and_time_zone_of_the_session(self, store: Store, database: Database) -> None:
        store.define("work", {})
        args = r'{"a": "back\\slash \"quoted\" it' 's"}'
        with database.connect() as connection:
            connection.execute(
                "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT', time_zone = '+13:00'"
            )
            id = store.join(connection).enqueue("work", args)
        job = store.job(id)
        assert job is not None
        assert job.args == args
        assert abs((job.enqueued_at - store.now()).total_seconds()) < 60

    @pytest.mark.parametrize("cursor", [pymysql.cursors.DictCursor, pymysql.cursors.SSCursor])
    def test_with_any_kind_of_cursor(self, store: Store, database: Database, cursor: Any) -> None:
        store.define("work", {})
        with database.connect() as connection:
            connection.cursorclass = cursor
            [answer] = store.join(connection).enqueue_many([NewJob("work")])
        assert answer.inserted

    def test_with_a_cursor_for_its_connection(self, store: Store, database: Database) -> None:
        store.define("work", {})
        with database.connect() as connection:
            connection.execute("BEGIN")
            store.join(connection.cursor()).enqueue("work", "{}")
            connection.rollback()
        assert store.count() == 0

    def test_another_drivers_connection_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidConfiguration, match="not a connection of PyMySQL"):
            store.join(object())

    def test_a_workers_routine_in_a_callers_transaction_is_refused_and_commits_nothing(
        self, store: Store, database: Database
    ) -> None:
        store.define("work", {})
        with database.connect() as connection:
            connection.execute("BEGIN")
            joined = store.join(connection)
            joined.enqueue("work", "{}")
            with pytest.raises(InvalidOption, match="cannot be part of another"):
                joined.claim(ClaimRequest("w", uuid4()))
            connection.rollback()
        assert store.count() == 0


@on_mysql
class TestWaiting:
    def test_new_work_ends_it(self, store: Store, database: Database) -> None:
        store.define("work", {})
        assert not store.wait(0.05)
        with in_a_while(lambda: store.enqueue("work", "{}")):
            started = time.monotonic()
            assert store.wait(10)
        assert time.monotonic() - started < 1

    def test_a_wake_that_came_before_is_not_lost(self, store: Store) -> None:
        store.wake()
        assert store.wait(10)
        assert not store.wait(0.01)

    def test_work_that_falls_due_ends_it(self, store: Store) -> None:
        store.define("work", {})
        store.enqueue("work", "{}", {"delay_ms": 200})
        started = time.monotonic()
        assert store.wait(10)
        assert 0.1 < time.monotonic() - started < 2

    def test_work_that_is_not_claimed_wakes_seldom_and_newer_at_once(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.define("work", {})
        store.define("other", {})
        store.enqueue("other", "{}")
        deadline = time.monotonic() + 1
        woken = 0
        while (left := deadline - time.monotonic()) > 0:
            woken += store.wait(left)
            store.claim(ClaimRequest("w", uuid4(), names=("work",)))
        assert 2 <= woken <= 15
        monkeypatch.setattr(mysql, "LONGEST_DOUBT", 60)
        for _ in range(2):
            assert store.wait(5)  # each time twice as long, in the end a second
        with in_a_while(lambda: store.enqueue("work", "{}"), after=0.02):
            started = time.monotonic()
            while not store.claim(ClaimRequest("w", uuid4(), names=("work",))):
                store.wait(5)
        assert time.monotonic() - started < 0.8

    def test_a_database_that_is_away_is_no_error_and_not_asked_all_the_time(self) -> None:
        store = open_store("mysql://root@127.0.0.1:1/shop")
        started = time.monotonic()
        assert not store.wait(0.2)
        assert 0.2 <= time.monotonic() - started < 1
        store.close()


@pytest.mark.databases("mariadb")  # which bounds the time of every statement, MySQL only that of SELECT
def test_a_call_that_the_server_gives_up_says_nothing_of_what_was_sent(store: Store, database: Database) -> None:
    store.define("work", {})
    id, token = store.enqueue("work", "{}"), uuid4()
    store.claim(ClaimRequest("w", token))
    with database.connect() as connection, database.connect() as other:
        connection.execute("SET GLOBAL max_statement_time = 0.3")
        try:
            hasty = open_store(database.url)
            assert hasty.contract() == 1
            other.execute("BEGIN")
            other.execute("SELECT id FROM jobs FOR UPDATE")
            started = time.monotonic()
            with pytest.raises(StoreUnavailable, match="could not finish"):
                hasty.settle_many([Outcome(id, token, "done")])
            assert time.monotonic() - started < 3
            hasty.close()
        finally:
            connection.execute("SET GLOBAL max_statement_time = 0")
    assert store.settle_many([Outcome(id, token, "done")])[0].accepted


def create_text(database: Database, routine: str) -> str:
    with database.connect() as connection:
        return str(connection.execute(f"SHOW CREATE PROCEDURE {routine}").fetchone()[2])


@contextmanager
def changed(database: Database, now: str, later: str, *, after: float) -> Iterator[None]:
    with database.connect() as connection:
        connection.execute(now)
        with in_a_while(lambda: connection.execute(later), after=after):
            yield


@contextmanager
def in_a_while(act: Callable[[], Any], *, after: float = 0.1) -> Iterator[None]:
    timer = threading.Timer(after, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()
