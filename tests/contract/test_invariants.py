"""What always holds: the tables refuse what would break it, and the queries of invariants.py see it when it is broken.

The first half is that CHECK constraints and keys say so (contract, section 7); the second half keeps the other tests
honest, which trust ``assert_invariants``.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from invariants import assert_invariants
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import HOUR, bury, claim, claim_one, define, each, enqueue, enqueue_all, perform

pytestmark = pytest.mark.sql


@pytest.fixture
def populated(store: Store, clock: TestClock) -> Store:
    """One job in each state; all but the limited one are unlimited."""
    define(store)
    define(store, "limited", concurrency={"limit": 1})
    batch_id = store.open_batch({})
    enqueue(store)
    perform(store)
    bury(store, unique_key="dead")
    store.cancel({"id": str(enqueue(store))})
    enqueue(store, "limited", batch_id=str(batch_id), unique_key="k")
    claim_one(store)
    store.seal_batch(batch_id)
    enqueue(store, unique_key="u")
    enqueue(store, delay_ms=HOUR)
    return store


def test_all_holds_in_an_ordinary_life(populated: Store, sql: Any) -> None:
    assert_invariants(sql)


@each(
    "statement",
    [
        "UPDATE jobs SET token = NULL WHERE state = 'running'",
        "UPDATE jobs SET worker = NULL WHERE state = 'running'",
        "UPDATE jobs SET lease_until = NULL WHERE state = 'running'",
        "UPDATE jobs SET state = 'running' WHERE state = 'pending'",
        "UPDATE jobs SET worker = 'w' WHERE state = 'pending'",
        "UPDATE jobs SET state = 'waiting' WHERE state = 'pending'",
        "UPDATE jobs SET finished_at = NULL WHERE state = 'done'",
        "UPDATE jobs SET finished_at = run_at WHERE state = 'pending'",
        "UPDATE jobs SET dead_reason = NULL WHERE state = 'dead'",
        "UPDATE jobs SET dead_reason = 'lost' WHERE state = 'done'",
        "UPDATE jobs SET dead_reason = 'bad luck' WHERE state = 'dead'",
        "UPDATE jobs SET attempts = 0 WHERE state = 'running'",
        "UPDATE jobs SET attempts = max_attempts + 1 WHERE state = 'running'",
        "UPDATE jobs SET attempts = max_attempts WHERE state = 'pending'",
        "UPDATE jobs SET attempts = -1 WHERE state = 'done'",
        "UPDATE jobs SET max_attempts = 0 WHERE state = 'done'",
        "UPDATE jobs SET name = ''",
        "UPDATE jobs SET queue = ''",
        "UPDATE jobs SET tenant = ''",
        "UPDATE jobs SET args = NULL",
        "INSERT INTO jobs_keys SELECT * FROM jobs_keys",
        "INSERT INTO jobs_slots SELECT * FROM jobs_slots",
        "UPDATE jobs_slots SET slot = -1",
        "UPDATE jobs_groups SET slots = 0",
        "UPDATE jobs_groups SET name = 'a:b'",
        "UPDATE jobs_batches SET done = -1",
        "UPDATE jobs_batches SET done = total + 1",
        "UPDATE jobs_batches SET failed = done + 1",
        "UPDATE jobs_batches SET sealed_at = NULL",
        "UPDATE jobs_batches SET total = NULL",
        "UPDATE jobs_settings SET name = 'other' WHERE name = 'notify'",
    ],
)
def test_the_tables_refuse_what_would_break_a_promise(populated: Store, sql: Any, statement: str) -> None:
    with pytest.raises(refusals(sql.dialect)):
        sql(statement)

    assert_invariants(sql)


def refusals(dialect: str) -> type[Exception]:
    """What the database raises when a constraint is broken."""
    if dialect == "sqlite":
        import sqlite3

        return sqlite3.IntegrityError
    if dialect == "mysql":
        import pymysql

        return pymysql.MySQLError  # a CHECK that fails is none of its IntegrityErrors
    import psycopg

    return psycopg.errors.IntegrityError


@each(
    ("promise", "breaking"),
    [
        ("2", "UPDATE jobs SET settled_token = token, settled_as = 'done' WHERE state = 'running'"),
        ("4", "UPDATE jobs SET unique_key = 'k' WHERE unique_key = 'u'"),
        ("4", "DELETE FROM jobs_keys"),
        ("4", "UPDATE jobs_keys SET job_id = (SELECT id FROM jobs WHERE state = 'dead')"),
        ("5", "UPDATE jobs_slots SET slot = 5"),
        ("5", "UPDATE jobs_slots SET token = job_id"),
        ("5", "DELETE FROM jobs_slots"),
        ("6", "UPDATE jobs_batches SET done = 1"),
        ("6", "UPDATE jobs SET batch_id = NULL"),
        ("6", "UPDATE jobs_batches SET callback_id = id"),
    ],
)
def test_a_broken_promise_is_seen(populated: Store, sql: Any, promise: str, breaking: str) -> None:
    sql("BEGIN")
    sql(breaking)
    with pytest.raises(AssertionError, match=rf"(^|; ){promise} "):
        assert_invariants(sql)
    sql("ROLLBACK")


class TestNoUniquenessBlocksWork:
    """No uniqueness rule can block a claim, a settle or a rescue, whatever has become of the keys."""

    @pytest.mark.parametrize("meddling", ["DELETE FROM jobs_keys", "UPDATE jobs_keys SET job_id = ?"])
    @pytest.mark.parametrize("outcome", ["done", "failed", "released"])
    def test_not_even_when_the_key_is_gone_or_anothers(
        self, store: Store, clock: TestClock, sql: Any, meddling: str, outcome: Any
    ) -> None:
        define(store)
        enqueue(store, unique_key="k")
        stranger = str(uuid4())
        values = [stranger] if "?" in meddling else []
        sql(meddling, *values)
        perform(store, outcome)

    def test_nor_a_rescue(self, store: Store, clock: TestClock, sql: Any) -> None:
        define(store)
        enqueue_all(store, 2)
        claim(store, 2)
        sql("UPDATE jobs SET unique_key = 'same'")
        clock.advance(301)

        assert store.sweep().rescued == 2
