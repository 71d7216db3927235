"""The error codes: each comes as an exception with a name and a hint, and leaves the caller's transaction alone."""

from __future__ import annotations

import json
import sqlite3
import traceback
from typing import Any
from uuid import uuid4

import psycopg
import pymysql
import pytest

from pyjobs.errors import (
    FROM_CONTRACT,
    BadName,
    ContractMismatch,
    InvalidArguments,
    InvalidOption,
    PyjobsError,
    UnknownJob,
)
from pyjobs.store import open_store
from pyjobs.store.base import Store
from steps import call, claim, claim_one, define, each, enqueue, refused

# How each code comes about by plain SQL; PJ012 is the driver's.
PLAIN: dict[str, tuple[str, str]] = {
    "PJ001": ("jobs_enqueue", """('wrok', '{}', '{}')"""),
    "PJ002": ("jobs_enqueue", """('work', '{', '{}')"""),
    "PJ003": ("jobs_enqueue", """('work', '{}', '{"prioritty": 1}')"""),
    "PJ004": ("jobs_enqueue", """('work', '{}', '{"batch_id": "11111111-1111-7111-8111-111111111111"}')"""),
    "PJ005": ("jobs_enqueue", """('work', '{}', '{"batch_id": "22222222-2222-7222-8222-222222222222"}')"""),
    "PJ010": ("jobs_enqueue", """('work', '{}', '{"tenant": ""}')"""),
}


def test_every_code_has_an_exception_of_its_own() -> None:
    assert sorted(FROM_CONTRACT) == [f"PJ{number:03}" for number in range(1, 13)]
    assert len({error.code for error in FROM_CONTRACT.values()}) == 12


@pytest.mark.sql
@pytest.mark.parametrize("code", PLAIN)
def test_plain_sql_is_refused_with_the_code(store: Store, sql: Any, code: str) -> None:
    define(store)
    store.open_batch({"id": "11111111-1111-7111-8111-111111111111"})
    store.seal_batch(store.batches()[0].id)
    routine, arguments = PLAIN[code]

    if sql.dialect == "sqlite":
        with pytest.raises(sqlite3.IntegrityError) as refusal:
            sql(f"INSERT INTO {routine} (name, args, options) VALUES {arguments}")
        assert str(refusal.value).startswith(code)
    elif sql.dialect == "mysql":
        with pytest.raises(pymysql.Error) as told:
            sql(f"CALL {routine} {arguments}")
        assert (told.value.sqlstate, told.value.args[0]) == (code, 20_000 + int(code[2:]))
        [said] = sql("SELECT @jobs_message AS message, @jobs_hint AS hint")
        assert all(said.values())
        assert said["message"][:100] in told.value.args[1]
    else:
        with pytest.raises(psycopg.Error) as raised:
            sql(f"SELECT {routine} {arguments}")
        assert raised.value.sqlstate == code
        assert raised.value.diag.message_primary
        assert raised.value.diag.message_hint
    assert store.count() == 0


UUID_TEXT = "33333333-3333-7333-8333-333333333333"


@pytest.mark.sql
@each(
    ("code", "routine", "arguments"),
    [
        ("PJ002", "jobs_enqueue_many", ['[{"name": "work"}']),
        ("PJ002", "jobs_enqueue_many", ['[{"name": "work", "args": "{"}]']),
        ("PJ003", "jobs_enqueue_many", ['{"name": "work"}']),
        ("PJ003", "jobs_enqueue_many", ["[1]"]),
        ("PJ003", "jobs_enqueue_many", ['[{"name": 5}]']),
        ("PJ003", "jobs_enqueue_many", ['[{"name": "work", "arguments": "{}"}]']),
        ("PJ003", "jobs_enqueue_many", ['[{"name": "work", "id": "not-a-uuid"}]']),
        ("PJ003", "jobs_enqueue_many", ['[{"name": "work", "id": 5}]']),
        ("PJ003", "jobs_enqueue_many", ['[{"name": "work", "options": []}]']),
        ("PJ003", "jobs_enqueue", ["work", "{}", "[]"]),
        ("PJ003", "jobs_enqueue", ["work", "{}", "no json"]),
        ("PJ003", "jobs_define", ["work", "no json"]),
        ("PJ003", "jobs_define", ["work", "5"]),
        ("PJ010", "jobs_define", [None, "{}"]),
        ("PJ003", "jobs_claim", ["w", None, "{}"]),
        ("PJ010", "jobs_claim", [None, UUID_TEXT, "{}"]),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"max_job": 1}']),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"max_jobs": "1"}']),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"max_jobs": 1.5}']),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"lease_ms": "5m"}']),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"queues": "default"}']),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"queues": [1]}']),
        ("PJ003", "jobs_claim", ["w", UUID_TEXT, '{"names": {"a": 1}}']),
        ("PJ003", "jobs_heartbeat", ["w", "no json", "{}"]),
        ("PJ003", "jobs_heartbeat", ["w", "{}", "{}"]),
        ("PJ003", "jobs_heartbeat", ["w", '[{"id": "not-a-uuid"}]', "{}"]),
        ("PJ003", "jobs_heartbeat", ["w", "[]", '{"lease": 5}']),
        ("PJ003", "jobs_heartbeat", ["w", "[]", '{"info": 5}']),
        ("PJ003", "jobs_heartbeat", ["w", "[]", '{"leaving": "yes"}']),
        ("PJ003", "jobs_settle", [UUID_TEXT, UUID_TEXT, None, "{}"]),
        ("PJ003", "jobs_settle", [UUID_TEXT, UUID_TEXT, "done", "no json"]),
        ("PJ003", "jobs_settle_many", ["no json"]),
        ("PJ003", "jobs_settle_many", ["{}"]),
        ("PJ003", "jobs_settle_many", [f'[{{"id": "{UUID_TEXT}", "outcome": "done"}}]']),
        ("PJ003", "jobs_settle_many", [f'[{{"id": "{UUID_TEXT}", "token": "{UUID_TEXT}"}}]']),
        ("PJ003", "jobs_settle_many", [f'[{{"id": "x", "token": "{UUID_TEXT}", "outcome": "done"}}]']),
        ("PJ003", "jobs_open_batch", ["no json"]),
        ("PJ003", "jobs_sweep", ["no json"]),
        ("PJ003", "jobs_cancel", ["no json"]),
        ("PJ003", "jobs_cancel", [None]),
    ],
)
def test_what_no_driver_would_send_is_refused_too(
    store: Store, sql: Any, code: str, routine: str, arguments: list[str | None]
) -> None:
    define(store)

    with pytest.raises((sqlite3.Error, psycopg.Error, pymysql.Error)) as refusal:
        call(sql, routine, *arguments)

    said = getattr(refusal.value, "sqlstate", None) or str(refusal.value)
    assert said.startswith(code)
    assert store.count() == 0


ATTEMPT = f'"id": "{UUID_TEXT}", "token": "{UUID_TEXT}"'


@pytest.mark.sql
@each(
    ("named", "routine", "arguments"),
    [
        ("priority", "jobs_enqueue", ["work", "{}", '{"priority": 1, "priority": 5}']),
        ("priority", "jobs_enqueue", ["work", "{}", '{"priority": 1, "queue": "a", "priority": 1}']),
        ("priority", "jobs_enqueue", ["work", "{}", '{"priority": 1, "priorit\\u0079": 5}']),
        ("tenant", "jobs_enqueue", ["work", "{}", '{"tenant": "acme", "tenant": null}']),
        ("priority", "jobs_enqueue_many", ['[{"name": "work", "options": {"priority": 1, "priority": 5}}]']),
        ("name", "jobs_enqueue_many", ['[{"name": "work"}, {"name": "work", "name": "work"}]']),
        ("max_jobs", "jobs_claim", ["w", UUID_TEXT, '{"max_jobs": 1, "max_jobs": 5}']),
        ("lease_ms", "jobs_heartbeat", ["w", "[]", '{"lease_ms": 1000, "lease_ms": 5000}']),
        ("token", "jobs_heartbeat", ["w", f'[{{{ATTEMPT}, "token": "{UUID_TEXT}"}}]']),
        ("message", "jobs_settle", [UUID_TEXT, UUID_TEXT, "failed", '{"message": "a", "message": "b"}']),
        ("outcome", "jobs_settle_many", [f'[{{{ATTEMPT}, "outcome": "done", "outcome": "failed"}}]']),
        (
            "permanent",
            "jobs_settle_many",
            [f'[{{{ATTEMPT}, "outcome": "failed", "detail": {{"permanent": true, "permanent": false}}}}]'],
        ),
        ("queue", "jobs_define", ["other", '{"queue": "a", "queue": "b"}']),
        ("limit", "jobs_define", ["other", '{"concurrency": {"limit": 1, "limit": 5}}']),
        ("base_ms", "jobs_define", ["other", '{"backoff": {"base_ms": 1, "base_ms": 5}}']),
        ("name", "jobs_open_batch", ['{"name": "a", "name": "b"}']),
        ("args", "jobs_open_batch", ['{"callback": {"name": "work", "args": {}, "args": {}}}']),
        ("limit", "jobs_sweep", ['{"limit": 1, "limit": 5}']),
        ("queue", "jobs_cancel", ['{"queue": "a", "queue": "b"}']),
    ],
)
def test_a_key_given_twice_is_refused_by_name(
    store: Store, sql: Any, named: str, routine: str, arguments: list[str | None]
) -> None:
    """Readers of JSON do not agree on which of the two counts."""
    define(store)

    with pytest.raises((sqlite3.Error, psycopg.Error, pymysql.Error)) as refusal:
        call(sql, routine, *arguments)

    assert (getattr(refusal.value, "sqlstate", None) or str(refusal.value)).startswith("PJ003")
    if sql.dialect != "sqlite":  # whose refusals are literals
        assert named in str(refusal.value)
    assert store.count() == 0


@pytest.mark.sql
def test_args_may_hold_a_key_twice(store: Store, sql: Any) -> None:
    define(store)
    args = '{"a":1,"a":2}'
    call(sql, "jobs_enqueue", "work", args, "{}")

    assert claim_one(store).args == args


class TestTheCallersTransaction:
    """A refusal undoes the call that was refused, and nothing else."""

    def test_work_before_and_after_a_refusal_is_kept(self, store: Store, database: Any) -> None:
        define(store)
        connection = database.connect()
        connection.execute("CREATE TABLE orders (id integer)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO orders VALUES (1)")
        joined = store.join(connection)
        before = joined.enqueue("work", "1", {})
        for bad in ({"prioritty": 1}, {"delay_ms": -1}, {"tenant": ""}):
            connection.execute("SAVEPOINT attempt")
            with pytest.raises((InvalidOption, BadName)):
                joined.enqueue("work", "2", bad)
            connection.execute("ROLLBACK TO SAVEPOINT attempt")
        later = joined.enqueue("work", "3", {})
        connection.execute("COMMIT")

        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]
        assert {job.id for job in claim(store, 10)} == {before, later}
        connection.close()

    def test_a_refusal_does_not_end_the_transaction(self, store: Store, database: Any) -> None:
        define(store)
        connection = database.connect()
        connection.execute("BEGIN")
        joined = store.join(connection)
        joined.enqueue("work", "1", {})
        with pytest.raises(UnknownJob):
            joined.enqueue("wrok", "2", {})
        connection.execute("ROLLBACK")

        assert store.count() == 0
        connection.close()


class TestWhatIsSaid:
    def test_the_names_that_are_defined(self, store: Store) -> None:
        for name in ("alpha", "beta"):
            define(store, name)

        with refused(store, UnknownJob, "gamma", "alpha", "beta"):
            enqueue(store, "gamma")

    def test_also_when_none_is(self, store: Store) -> None:
        with refused(store, UnknownJob, "gamma"):
            enqueue(store, "gamma")

    def test_no_arguments_however_they_are_refused(self, store: Store) -> None:
        define(store)
        store.set("max_args_bytes", 40)
        secret = "hunter2"
        attempts: list[tuple[str, dict[str, Any]]] = [
            (f'{{"password": "{secret}"', {}),
            (json.dumps({"password": secret * 10}), {}),
            (f'{{"p": "{secret}"}}', {"prioritty": 1}),
            (f'{{"p": "{secret}"}}', {"tenant": ""}),
            (f'{{"p": "{secret}"}}', {"batch_id": str(uuid4())}),
        ]
        for args, options in attempts:
            with pytest.raises(PyjobsError) as caught:
                store.enqueue("work", args, options)
            assert secret not in "".join(traceback.format_exception(caught.value))

    def test_a_store_is_usable_after_a_refusal(self, store: Store) -> None:
        define(store)
        for _ in range(3):
            with refused(store, InvalidArguments):
                enqueue(store, args="{")

        id = enqueue(store)
        assert claim_one(store).id == id


def test_a_database_without_the_contract_says_so(empty_database: Any) -> None:
    store = open_store(empty_database.url)
    with pytest.raises(ContractMismatch) as caught:
        store.contract()
    store.close()

    assert caught.value.hint
