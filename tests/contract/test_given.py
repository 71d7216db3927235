"""Whatever any routine is given in place of an argument, by plain SQL: it answers, or refuses with a code of the
contract and has done nothing. (PostgreSQL itself refuses, with a code of class 22, what is not of a type it asks for.)
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from pyjobs.store.base import Store
from steps import define

pytestmark = pytest.mark.sql

ID = "33333333-3333-7333-8333-333333333333"
BATCH = "11111111-1111-7111-8111-111111111111"
MOMENT = {"mysql": "2040-01-02 03:04:05", "postgresql": "2040-01-02T03:04:05Z", "sqlite": "2040-01-02T03:04:05Z"}
BAD = (None, "", "garbage", "[1", '{"a": ', "é" * 200, "x" * 3000, "[]", "{}", "5", "-1", "1e400")

# Each routine with its parameters: something that is right for each, and None for a moment.
ROUTINES: dict[str, dict[str, Any]] = {
    "jobs_define": {"name": "other", "options": "{}"},
    "jobs_forget": {"name": "other"},
    "jobs_enqueue": {"name": "work", "args": "{}", "options": "{}", "id": ID},
    "jobs_enqueue_many": {"jobs": '[{"name": "work"}]'},
    "jobs_open_batch": {"options": "{}"},
    "jobs_seal_batch": {"batch_id": BATCH},
    "jobs_advance_batch": {"batch_id": BATCH},
    "jobs_claim": {"worker": "w", "token": ID, "options": "{}"},
    "jobs_heartbeat": {"worker": "w", "held": "[]", "options": "{}"},
    "jobs_settle": {"id": ID, "token": ID, "outcome": "done", "detail": "{}"},
    "jobs_settle_many": {"outcomes": "[]"},
    "jobs_take_slot": {"bucket": "g", "job_id": ID, "token": ID},
    "jobs_free_slot": {"bucket": "g", "slot": 0, "token": ID},
    "jobs_put_schedule": {"name": "s", "options": '{"job": "work", "every_ms": 1000}', "next_run_at": None},
    "jobs_prune_schedules": {"source": "a", "names": "[]"},
    "jobs_tick_schedule": {"name": "s", "expected": None, "next": None},
    "jobs_sweep": {"options": "{}"},
    "jobs_retry": {"filter": '{"state": "dead"}', "options": "{}"},
    "jobs_cancel": {"filter": '{"queue": "none"}'},
    "jobs_discard": {"filter": '{"queue": "none"}'},
    "jobs_pause_queue": {"queue": "q"},
    "jobs_resume_queue": {"queue": "q"},
    "jobs_set": {"name": "notify", "value": "true"},
    "jobs_grant": {"principal": "nobody", "role": "viewer"},
}
# What nothing but these answers is to be expected of, on every database.
ANSWERS = {
    ("jobs_define", "name", None): "PJ010",
    ("jobs_define", "name", ""): "PJ010",
    ("jobs_enqueue", "name", None): "PJ010",
    ("jobs_enqueue", "args", "garbage"): "PJ002",
    ("jobs_enqueue", "args", ""): "PJ002",
    ("jobs_enqueue_many", "jobs", None): "PJ002",
    ("jobs_enqueue_many", "jobs", "{}"): "PJ003",
    ("jobs_seal_batch", "batch_id", None): "PJ005",
    ("jobs_advance_batch", "batch_id", None): "PJ005",
    ("jobs_claim", "worker", None): "PJ010",
    ("jobs_claim", "token", None): "PJ003",
    ("jobs_heartbeat", "worker", None): "PJ010",
    ("jobs_settle", "id", None): "PJ003",
    ("jobs_settle", "token", None): "PJ003",
    ("jobs_settle", "outcome", None): "PJ003",
    ("jobs_settle_many", "outcomes", None): "PJ003",
    ("jobs_take_slot", "bucket", None): "answered",
    ("jobs_take_slot", "bucket", "x" * 3000): "answered",
    ("jobs_take_slot", "job_id", None): "PJ003",
    ("jobs_take_slot", "token", None): "PJ003",
    ("jobs_free_slot", "slot", None): "answered",
    ("jobs_free_slot", "slot", "-1"): "answered",
    ("jobs_free_slot", "slot", "garbage"): "PJ003",
    ("jobs_free_slot", "slot", ""): "PJ003",
    ("jobs_free_slot", "token", None): "answered",
    ("jobs_free_slot", "token", "garbage"): "PJ003",
    ("jobs_put_schedule", "name", None): "PJ010",
    ("jobs_put_schedule", "next_run_at", None): "PJ011",
    ("jobs_prune_schedules", "source", None): "answered",
    ("jobs_prune_schedules", "names", None): "PJ003",
    ("jobs_prune_schedules", "names", "garbage"): "PJ003",
    ("jobs_prune_schedules", "names", "{}"): "PJ003",
    ("jobs_tick_schedule", "name", None): "answered",
    ("jobs_tick_schedule", "expected", None): "answered",
    ("jobs_cancel", "filter", None): "PJ003",
    ("jobs_cancel", "filter", "{}"): "PJ003",
    ("jobs_pause_queue", "queue", None): "PJ010",
    ("jobs_set", "name", None): "PJ003",
    ("jobs_set", "value", "garbage"): "PJ003",
    ("jobs_grant", "role", None): "PJ003",
    ("jobs_grant", "principal", "x" * 3000): "PJ003",
}
NAMED_IN_MYSQL = {"jobs_enqueue": "jobs_enqueue_with_id"}
TABLES = ("definitions", "groups", "batches", "keys", "slots", "failures", "schedules", "workers", "paused")
OPEN_TRANSACTIONS = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()"


def test_no_routine_is_left_out() -> None:
    folder = Path(__file__).parents[2] / "sql" / "mysql"
    text = "".join(file.read_text() for file in folder.glob("*.sql"))
    public = set(re.findall(r"^CREATE PROCEDURE (jobs_[a-z]\w*)", text, re.MULTILINE))
    assert public - {"jobs_contract", "jobs_enqueue_with_id"} == ROUTINES.keys()


@pytest.mark.parametrize("routine", ROUTINES)
def test_every_argument(store: Store, sql: Any, routine: str, subtests: pytest.Subtests) -> None:
    if routine == "jobs_grant" and sql.dialect == "sqlite":  # where there are no users
        return
    define(store)
    define(store, "limited", concurrency={"limit": 100, "group": "g"})
    store.open_batch({"id": BATCH})
    right = {name: MOMENT[sql.dialect] if value is None else value for name, value in ROUTINES[routine].items()}
    for name in right:
        for given in BAD:
            with subtests.test(f"{name} = {str(given)[:10]!r}"):
                before = rows(sql)
                said = answer(sql, routine, right | {name: given})
                if said != "answered":
                    assert rows(sql) == before
                assert not in_transaction(sql)
                typed = sql.dialect == "postgresql" and said.startswith("22") and given is not None
                assert typed or said == ANSWERS.get((routine, name, given), said)
                assert typed or said == "answered" or re.fullmatch(r"PJ0(0[1-9]|1[0-2])", said)


def answer(sql: Any, routine: str, arguments: dict[str, Any]) -> str:
    """The code of the refusal, or that there was none."""
    places = ", ".join("?" * len(arguments))
    statement = {
        "sqlite": f"INSERT INTO {routine} ({', '.join(arguments)}) VALUES ({places})",
        "mysql": f"CALL {NAMED_IN_MYSQL.get(routine, routine)}({places})",
        "postgresql": f"SELECT * FROM {routine}({places})",
    }[sql.dialect]
    try:
        sql(statement, *arguments.values())
    except sqlite3.IntegrityError as error:
        return str(error).partition(" ")[0]
    except psycopg.Error as error:
        return str(error.sqlstate)
    except pymysql.Error as error:
        return str(error.sqlstate)  # type: ignore[attr-defined]
    return "answered"


def rows(sql: Any) -> list[int]:
    """How many there are of everything."""
    return [sql.value(f"SELECT COUNT(*) FROM {table}") for table in ("jobs", *(f"jobs_{name}" for name in TABLES))]


def in_transaction(sql: Any) -> bool:
    if sql.dialect == "mysql":
        return bool(sql.value(OPEN_TRANSACTIONS))
    if sql.dialect == "sqlite":
        return bool(sql.connection.in_transaction)
    return bool(sql.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE)
