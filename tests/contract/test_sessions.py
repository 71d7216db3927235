"""What a session has set, and who kills a call of it, changes nothing of what the routines do (MySQL, MariaDB)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from invariants import assert_invariants
from pyjobs.errors import InvalidOption
from pyjobs.records import Held, NewJob, Outcome
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import claim, claim_one, define, enqueue, enqueue_all, settle

pytestmark = pytest.mark.databases("mysql")

MANY = 300
PATIENCE = 30  # seconds
SETTINGS = {"group_concat_max_len": 100, "sql_safe_updates": 1, "max_join_size": 1_000}


@pytest.fixture(params=[*SETTINGS, "global group_concat_max_len"])
def connection(request: pytest.FixtureRequest, database: Any, sql: Any) -> Iterator[Any]:
    """A connection with such a setting."""
    scope, _, name = request.param.rpartition(" ")
    before = sql.value("SELECT @@GLOBAL.group_concat_max_len")
    if scope:
        sql(f"SET GLOBAL {name} = {SETTINGS[name]}")
    connection = database.connect()
    try:
        if not scope:
            connection.execute(f"SET SESSION {name} = {SETTINGS[name]}")
        yield connection
        # Whatever was called, and however it ended, it is as it was.
        assert connection.execute(f"SELECT @@SESSION.{name}").fetchone() == (SETTINGS[name],)
    finally:
        connection.close()
        sql(f"SET GLOBAL group_concat_max_len = {before}")


@pytest.fixture
def calls(store: Store, connection: Any) -> Store:
    """The routines as called on it."""
    return store.join(connection)


def test_producers_and_workers(calls: Store, sql: Any) -> None:
    define(calls)
    define(calls, "limited", concurrency={"limit": 5, "key": "k"})
    define(calls, "single", concurrency={"limit": 1, "key": "k"}, keep_done_ms=0)
    define(calls, "after")
    batch_id = calls.open_batch({"callback": {"name": "after"}})
    jobs = [
        NewJob(
            ["work", "limited", "single"][number % 3],
            f'{{"k": {number}, "deep": {{"a": [1]}}}}',
            {"unique_key": f"k{number}", "batch_id": str(batch_id), "meta": {"n": {"m": number}}},
        )
        for number in range(MANY)
    ]
    assert {answer.inserted for answer in calls.enqueue_many(jobs)} == {True}
    assert {answer.inserted for answer in calls.enqueue_many(jobs)} == {False}
    enqueue(calls, unique_key="one", batch_id=str(batch_id))
    assert calls.seal_batch(batch_id).total == MANY + 1

    queues = ["default", *(f"queue-{number}" for number in range(MANY))]
    claimed = claim(calls, 1_000, queues=queues, names=["work", "limited", "single"])
    assert len(claimed) == MANY + 1
    assert calls.cancel({"ids": [str(job.id) for job in claimed]}) == MANY + 1
    attention = calls.heartbeat("worker-1", [Held(job.id, job.token) for job in claimed])
    assert {each.signal for each in attention} == {"cancel"}

    outcomes = [Outcome(job.id, job.token, "done") for job in claimed]
    half = MANY // 2
    mixed = [Outcome(claimed[0].id, claimed[0].token, "failed", {"permanent": True}), *outcomes[1:half]]
    assert all(answer.accepted for answer in calls.settle_many(mixed))
    assert all(answer.accepted for answer in calls.settle_many(outcomes[half:]))
    batch = calls.advance_batch(batch_id)
    assert (batch.done, batch.finished_at is not None) == (MANY + 1, True)
    assert_invariants(sql)


def test_sweeps_and_operators(calls: Store, clock: TestClock, sql: Any) -> None:
    define(calls, concurrency={"limit": 1_000}, max_attempts=2, backoff={"base_ms": 60_000})
    ids = [str(id) for id in enqueue_all(calls, MANY)]
    claim(calls, MANY)
    clock.advance(301)
    swept = calls.sweep({"limit": 10_000})
    assert (swept.rescued, swept.buried) == (MANY, 0)
    clock.advance(100)
    assert calls.sweep({"limit": 10_000}).promoted == MANY

    assert calls.cancel({"ids": ids}) == MANY
    assert calls.retry({"name": "work"}) == MANY
    claim(calls, MANY)
    clock.advance(301)
    assert calls.sweep({"limit": 10_000}).rescued == MANY
    assert calls.discard({"ids": ids[:100]}) == 100
    assert calls.cancel({"name": "work"}) == MANY - 100
    clock.advance(2 * 86_400)
    assert calls.sweep({"limit": 10_000}).pruned == MANY - 100
    assert_invariants(sql)


def test_the_rest(calls: Store) -> None:
    define(calls, concurrency={"limit": 2})
    define(calls, concurrency={"limit": 3, "key": "k"})
    define(calls)
    now = calls.now()
    calls.put_schedule("hourly", {"job": "work", "every_ms": 3_600_000, "source": "app"}, now - timedelta(hours=1))
    calls.put_schedule("hourly", {"job": "work", "every_ms": 60_000, "source": "app"}, now - timedelta(minutes=1))
    assert calls.tick_schedule("hourly", now - timedelta(minutes=1), now + timedelta(hours=1))
    assert calls.prune_schedules("app", ["other"]) == 1
    token, id = uuid4(), uuid4()
    assert calls.take_slot("work", id, token) == 0
    assert calls.free_slot("work", 0, token)
    job = claim_one(calls)
    assert settle(calls, job, "failed", message="no").accepted
    calls.pause_queue("slow")
    calls.resume_queue("slow")
    calls.set("keep_keys_ms", 1_000)
    calls.heartbeat("worker-1", [], info={"names": ["work"]})
    calls.leave("worker-1")
    assert calls.forget("work")
    assert calls.orphans()
    assert calls.timings() == []


def test_what_is_refused(calls: Store) -> None:
    define(calls)
    with pytest.raises(InvalidOption):
        calls.enqueue_many([NewJob("work", options={"nonsense": 1})])
    with pytest.raises(InvalidOption):
        calls.sweep({"nonsense": 1})


def test_a_call_that_is_killed_leaves_no_transaction(store: Store, database: Any, sql: Any) -> None:
    """No handler runs then, and what the routine has locked stays so: the store rolls it back, and calls again."""
    define(store)
    enqueue_all(store, 4)
    held = claim(store, 4)
    theirs = database.connect()
    theirs.execute("BEGIN")
    theirs.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", [str(held[3].id)])
    answers: list[Any] = []
    outcomes = [Outcome(job.id, job.token, "released") for job in held]
    settler = threading.Thread(target=lambda: answers.extend(store.settle_many(outcomes)))

    settler.start()
    [waiting] = eventually(sql, "SELECT trx_mysql_thread_id AS thread FROM {trx} WHERE trx_state = 'LOCK WAIT'")
    sql(f"KILL QUERY {waiting['thread']}")
    eventually(sql, f"SELECT 1 FROM {{trx}} HAVING SUM(trx_mysql_thread_id = {waiting['thread']}) = 0")
    theirs.execute("ROLLBACK")
    settler.join(PATIENCE)

    assert [answer.accepted for answer in answers] == [True] * 4
    assert len(claim(store, 10)) == 4
    theirs.close()


def eventually(sql: Any, question: str) -> list[dict[str, Any]]:
    """What it is answered once there is an answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := sql(question.format(trx="information_schema.innodb_trx")):
            return list(found)
        time.sleep(0.15)  # the table is made anew every tenth of a second, if nobody reads it
    raise AssertionError(f"no answer to {question}")
