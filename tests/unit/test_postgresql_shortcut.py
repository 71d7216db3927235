"""The short way of an enqueue on PostgreSQL: where it fails, the call is made, or refused, as on the long one."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Iterator
from hashlib import md5
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from pyjobs.errors import ContractMismatch, InvalidOption, UnknownJob
from pyjobs.store.base import Store
from pyjobs.store.postgresql_shortcut import Shortcut

pytestmark = pytest.mark.databases("postgresql")

ECHO = "SELECT coalesce(%s::uuid, md5(%s::text)::uuid)"


@pytest.fixture
def connection(empty_database: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database.url, autocommit=True) as connection:
        yield connection


class TestTheWay:
    def test_what_goes_comes_back(self, connection: psycopg.Connection) -> None:
        shortcut, id = Shortcut(connection, ECHO), uuid4()
        assert shortcut.answer([id, None]) == id
        assert shortcut.answer([None, "Zürich 🚀"]) == UUID(md5("Zürich 🚀".encode()).hexdigest())

    def test_in_the_encoding_of_the_connection(self, connection: psycopg.Connection) -> None:
        connection.execute("SET client_encoding TO 'LATIN1'")
        shortcut = Shortcut(connection, ECHO)
        assert shortcut.answer([None, "Zürich"]) == UUID(md5("Zürich".encode()).hexdigest())
        with pytest.raises(UnicodeEncodeError):
            shortcut.answer([None, "🚀"])

    def test_two_on_one_connection_are_two_statements(self, connection: psycopg.Connection) -> None:
        first, second = Shortcut(connection, ECHO), Shortcut(connection, "SELECT md5(%s)::uuid")
        assert first.answer([None, "a"]) == second.answer(["a"])
        assert first.answer([None, "b"]) == second.answer(["b"])

    def test_no_answer_is_none_and_does_no_harm(self, connection: psycopg.Connection) -> None:
        shortcut = Shortcut(connection, ECHO)
        assert shortcut.answer([None, "a\0b"]) is None
        assert Shortcut(connection, "SELECT no_such_routine(%s)").answer(["a"]) is None
        assert shortcut.answer([None, "a"]) is not None
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def test_a_statement_that_was_forgotten_is_prepared_anew(self, connection: psycopg.Connection) -> None:
        shortcut = Shortcut(connection, ECHO)
        assert shortcut.answer([None, "a"]) is not None
        connection.execute("DEALLOCATE ALL")
        assert shortcut.answer([None, "a"]) is None
        assert shortcut.answer([None, "a"]) is not None

    def test_a_wait_can_be_interrupted(self, connection: psycopg.Connection) -> None:
        shortcut = Shortcut(connection, "SELECT md5(pg_sleep(%s::text::float8)::text)::uuid")
        assert shortcut.answer(["0"]) is not None
        began = time.monotonic()
        threading.Timer(0.2, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            shortcut.answer(["60"])
        assert time.monotonic() - began < 30
        assert shortcut.answer(["0"]) is not None


class TestTheStore:
    @pytest.fixture(autouse=True)
    def defined(self, store: Store) -> None:
        store.define("work", {})
        store.enqueue("work", "{}")

    def test_a_lost_connection_is_made_again(self, store: Store, sql: Any) -> None:
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database()"
        )
        id = store.enqueue("work", '{"n": 1}')
        assert store.job(id) is not None
        assert store.count() == 2

    def test_a_refusal_is_told_as_ever(self, store: Store) -> None:
        with pytest.raises(UnknownJob, match="nobody"):
            store.enqueue("nobody", "{}")
        with pytest.raises(InvalidOption, match="cannot keep"):
            store.enqueue("wo\0rk", "{}")
        with pytest.raises(InvalidOption, match="cannot keep"):
            store.enqueue("wo\ud800rk", "{}")
        assert store.count() == 1

    def test_a_routine_that_was_replaced_is_called_anew(self, store: Store, sql: Any) -> None:
        sql("DROP FUNCTION jobs_enqueue(text, text, text, uuid)")
        with pytest.raises(ContractMismatch):
            store.enqueue("work", "{}")
        new = uuid4()
        sql(
            "CREATE FUNCTION jobs_enqueue(name text, args text, options text, id uuid) RETURNS uuid"
            f" LANGUAGE sql AS $$ SELECT '{new}'::uuid $$"
        )
        assert store.enqueue("work", "{}") == new
