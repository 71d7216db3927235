"""Locks of InnoDB: who waits for whom, and how seldom it gives a call up (MySQL, MariaDB).

A session that may not wait is refused after a second; nothing else here is a matter of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from invariants import assert_invariants
from pyjobs.errors import StoreUnavailable
from pyjobs.records import NewJob, Outcome
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from racers import CONTEXT, passer, race
from steps import claim, claim_one, define, enqueue, enqueue_all, found, perform, settle

pytestmark = pytest.mark.databases("mysql")


def aborted(sql: Any) -> int:
    """How many transactions the server has given up: deadlocks (1213) and waits that took too long (1205)."""
    metrics = "information_schema.innodb_metrics"
    return int(sql.value(f"SELECT SUM(count) FROM {metrics} WHERE name IN ('lock_deadlocks', 'lock_timeouts')"))


@pytest.mark.slow
def test_of_a_thousand_calls_of_claimers_and_settlers_hardly_one_is_given_up(
    store: Store, database: Any, sql: Any
) -> None:
    define(store, max_attempts=3, backoff={"base_ms": 0})
    define(store, "limited", max_attempts=3, concurrency={"limit": 40, "key": "k"})
    define(store, "after")
    batch_id = store.open_batch({"callback": {"name": "after"}})
    store.enqueue_many(
        [
            NewJob(
                "limited" if number % 4 == 0 else "work",
                f'{{"k": {number % 3}}}',
                ({"unique_key": f"k{number}"} if number % 3 == 0 else {})
                | ({"batch_id": str(batch_id)} if number % 5 == 0 else {}),
            )
            for number in range(6_000)
        ]
    )
    store.seal_batch(batch_id)
    before = aborted(sql)

    calls = sum(race(passer, database, racers=16, shared=CONTEXT.Queue()))

    assert calls > 1_000
    assert (aborted(sql) - before) * 1_000 < calls
    assert store.count({"state": "done"}) > 3_000
    assert_invariants(sql)


@pytest.fixture
def theirs(store: Store, database: Any) -> Iterator[Any]:
    """Another session, in the middle of a transaction."""
    define(store)
    connection = database.connect()
    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("BEGIN")
    yield connection
    connection.close()


@pytest.fixture
def impatient(store: Store, database: Any) -> Iterator[Store]:
    """A store that may wait for a lock a second, and does not repeat what was given up."""
    connection = database.connect()
    connection.execute("SET SESSION innodb_lock_wait_timeout = 1")
    yield store.join(connection)
    connection.close()


class TestPastAnEnqueuerInALongTransaction:
    """What it put in, under keys and into batches, stands in the gaps between what the others work on."""

    @pytest.fixture
    def batch_id(self, store: Store) -> UUID:
        return store.open_batch({})

    @pytest.fixture
    def jobs(self, store: Store, theirs: Any, batch_id: UUID) -> list[UUID]:
        """Jobs that are there, of every kind; and an enqueuer that has met their keys and added its own."""
        define(store, "limited", concurrency={"limit": 100, "key": "k"})
        ids = [
            enqueue(store, name, f'{{"k": {number}}}', unique_key=f"{name}-{number}", batch_id=str(batch_id))
            for name in ("work", "limited")
            for number in range(20)
        ]
        joined = store.join(theirs)
        joined.enqueue("work", "{}", {"unique_key": "work-5x", "batch_id": str(batch_id)})
        joined.enqueue("limited", '{"k": 3}', {"unique_key": "limited-3", "batch_id": str(batch_id)})
        joined.enqueue_many(
            [
                NewJob(name, f'{{"k": {number}}}', {"unique_key": f"{name}-{number}", "batch_id": str(batch_id)})
                for name in ("work", "limited")
                for number in range(10, 30)
            ]
        )
        return ids

    def test_claims_and_settles_go_on(
        self, store: Store, theirs: Any, impatient: Store, jobs: list[UUID], batch_id: UUID
    ) -> None:
        claimed = claim(impatient, 100)
        assert {job.id for job in claimed} == set(jobs)

        impatient.heartbeat("worker-1", [])
        outcomes = ["done", "failed", "released", "snoozed", "cancelled"]
        for number, job in enumerate(claimed):
            outcome = outcomes[number % 5]
            detail = {"failed": {"permanent": number % 2 == 0}, "snoozed": {"delay_ms": 1}}.get(outcome, {})
            assert impatient.settle(job.id, job.token, outcome, detail).accepted  # type: ignore[arg-type]
        again = claim(impatient, 100)
        impatient.settle_many([Outcome(job.id, job.token, "done") for job in again])

        batch = store.batch(batch_id)
        assert batch is not None
        assert batch.done >= 24
        theirs.execute("COMMIT")
        assert {job.id for job in claim(store, 100)} - set(jobs)

    def test_sweeps_and_operators_go_on(
        self, clock: TestClock, theirs: Any, impatient: Store, jobs: list[UUID], sql: Any
    ) -> None:
        claim(impatient, 5)
        clock.advance(301)
        assert impatient.sweep().rescued == 5

        assert impatient.cancel({"ids": [str(id) for id in jobs[:20]]}) == 20
        assert impatient.discard({"ids": [str(id) for id in jobs[10:20]]}) == 10
        assert impatient.retry({"ids": [str(id) for id in jobs[:5]]}) == 5
        theirs.execute("COMMIT")
        impatient.sweep()  # takes the keys away that could not be let go meanwhile
        assert_invariants(sql)

    @pytest.mark.parametrize("options", [{}, {"priority": 1}])
    def test_who_gives_an_id_twice_locks_nothing_either(
        self, store: Store, theirs: Any, impatient: Store, jobs: list[UUID], options: dict[str, Any]
    ) -> None:
        same = [NewJob("work", options=options, id=uuid4())] * 3
        assert [answer.inserted for answer in store.join(theirs).enqueue_many(same)] == [True, False, False]

        claimed = claim(impatient, 100)
        assert {job.id for job in claimed} == set(jobs)
        enqueue(impatient)
        assert all(settle(impatient, job).accepted for job in claimed)

    def test_others_enqueue(self, impatient: Store, jobs: list[UUID], batch_id: UUID) -> None:
        assert enqueue(impatient, unique_key="work-5", batch_id=None) in jobs
        enqueue(impatient, unique_key="work-5y")
        assert {answer.inserted for answer in impatient.enqueue_many([NewJob("work")] * 20)} == {True}

    @pytest.mark.parametrize("options", [{}, {"priority": 1}])
    @pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
    def test_who_repeats_many_by_their_ids_locks_none(
        self, store: Store, theirs: Any, impatient: Store, options: dict[str, Any], isolation: str
    ) -> None:
        jobs = [NewJob("work", options=options, id=uuid4()) for _ in range(5)]
        store.enqueue_many(jobs)
        theirs.execute("COMMIT")
        theirs.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")

        for _ in range(2):  # while they wait, and while they are in hand
            theirs.execute("BEGIN")
            assert {answer.inserted for answer in store.join(theirs).enqueue_many(jobs)} == {False}
            claimed = claim(impatient, 10)
            theirs.execute("COMMIT")
            assert len(claimed) == 5
            theirs.execute("BEGIN")
            store.join(theirs).enqueue_many(jobs)
            outcomes = [Outcome(job.id, job.token, "released") for job in claimed]
            assert all(answer.accepted for answer in impatient.settle_many(outcomes))
            theirs.execute("COMMIT")

    def test_a_key_that_was_let_go_meanwhile_can_be_had_again(
        self, store: Store, theirs: Any, impatient: Store, jobs: list[UUID]
    ) -> None:
        job = next(job for job in claim(impatient, 100) if job.unique_key == "work-12")
        settle(impatient, job)
        theirs.execute("COMMIT")

        [answer] = store.enqueue_many([NewJob("work", options={"unique_key": "work-12"})])
        assert answer.inserted


class TestTwoSessions:
    def test_an_enqueue_waits_for_the_uncommitted_holder_of_its_key(
        self, store: Store, theirs: Any, impatient: Store
    ) -> None:
        id = store.join(theirs).enqueue("work", "{}", {"unique_key": "k"})
        with pytest.raises(StoreUnavailable):
            enqueue(impatient, unique_key="k")

        theirs.execute("COMMIT")
        assert enqueue(impatient, unique_key="k") == id

    def test_sealing_waits_for_an_enqueue_into_the_batch(self, store: Store, theirs: Any, impatient: Store) -> None:
        batch_id = store.open_batch({})
        store.join(theirs).enqueue("work", "{}", {"batch_id": str(batch_id)})
        with pytest.raises(StoreUnavailable):
            impatient.seal_batch(batch_id)

        theirs.execute("COMMIT")
        assert impatient.seal_batch(batch_id).total == 1

    def test_a_claim_steps_over_rows_that_are_locked_elsewhere(
        self, store: Store, theirs: Any, impatient: Store
    ) -> None:
        ids = enqueue_all(store, 300)
        theirs.execute("SELECT id FROM jobs WHERE id <= %s FOR UPDATE", [str(ids[199])])

        claimed = claim(impatient, 10)

        assert len(claimed) == 10
        assert {job.id for job in claimed} <= set(ids[200:])

    def test_a_sweep_leaves_what_is_locked_for_the_next_one(
        self, store: Store, theirs: Any, impatient: Store, clock: TestClock
    ) -> None:
        enqueue_all(store, 4)
        claim(store, 2)
        enqueue_all(store, 2, delay_ms=1_000)
        clock.advance(301)
        theirs.execute("SELECT id FROM jobs FOR UPDATE")
        swept = impatient.sweep()
        assert (swept.promoted, swept.rescued) == (0, 0)

        theirs.execute("ROLLBACK")
        swept = impatient.sweep()
        assert (swept.promoted, swept.rescued) == (2, 2)

    def test_a_job_whose_enqueuer_did_not_see_the_new_limit_is_bounded(self, store: Store, theirs: Any) -> None:
        joined = store.join(theirs)
        for _ in range(3):
            joined.enqueue("work", "{}")
        define(store, concurrency={"limit": 1})
        theirs.execute("COMMIT")

        assert len([job for _ in range(5) for job in claim(store, 10)]) == 1

    def test_a_worker_call_in_a_transaction_of_the_caller_is_refused_and_ends_nothing(
        self, store: Store, theirs: Any
    ) -> None:
        joined = store.join(theirs)
        id = joined.enqueue("work", "{}")
        with pytest.raises(Exception, match="transaction"):
            claim_one(joined)

        theirs.execute("ROLLBACK")
        assert store.job(id) is None
        enqueue(store, id=uuid4())
        assert found(store, perform(store)).state == "done"


def test_a_refused_call_undoes_nothing_but_itself(theirs: Any, sql: Any) -> None:
    """Whether it had begun or not: what its caller wrote between two refused calls stays."""
    for refused in ("nobody", "work"):  # the second time it is the tenant in scope
        with pytest.raises(Exception, match=r"nobody|tenant"):
            theirs.execute(f"""CALL jobs_enqueue_many('[{{"name": "{refused}"}}]')""")
        theirs.execute(f"INSERT INTO jobs_paused (queue, paused_at) VALUES ('{refused}', NOW())")
        theirs.execute("SET @pyjobs_tenant = REPEAT('x', 191)")
    theirs.execute("COMMIT")

    assert sql.value("SELECT COUNT(*) FROM jobs_paused") == 2


def test_a_schedule_is_put_by_a_session_that_does_not_commit_by_itself(store: Store, database: Any) -> None:
    define(store)
    connection = database.connect()
    connection.execute("SET autocommit = 0")

    connection.execute("CALL jobs_put_schedule('hourly', '{\"job\": \"work\", \"every_ms\": 3600000}', '2030-01-01')")

    assert [each.name for each in store.schedules()] == ["hourly"]
    connection.close()


@pytest.mark.parametrize("odd", ["done", "failed"])
def test_what_claims_and_settles_read_grows_as_their_jobs_do(store: Store, database: Any, odd: Any) -> None:
    """In a batch, one of each bucket: not with the square of it, as lists do that are joined with one another."""
    define(store, concurrency={"limit": 1, "key": "k"})
    batch_id = str(store.open_batch({}))
    connection = database.connect()
    calls = store.join(connection)

    def entries_read(number: int) -> int:
        options = {"batch_id": batch_id}
        store.enqueue_many([NewJob("work", f'{{"k": {number * place}}}', options) for place in range(number)])
        connection.execute("FLUSH STATUS")
        jobs = claim(calls, number)
        assert len(jobs) == number
        outcomes = [Outcome(jobs[0].id, jobs[0].token, odd), *(Outcome(job.id, job.token, "done") for job in jobs[1:])]
        assert all(answer.accepted for answer in calls.settle_many(outcomes))
        read = connection.execute("SHOW SESSION STATUS LIKE 'Handler_read%'").fetchall()
        return sum(int(entries) for _, entries in read)

    assert entries_read(400) < 6 * entries_read(100)
    connection.close()
