"""Races for real: several processes at the same rows at the same time, and what must hold then.

Who wins is nobody's to say; what is checked is that each job went to one, that no bound was broken at any moment,
and, from the rows afterwards, all that always holds. What the processes do is in racers.py.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import psycopg
import pytest

from invariants import assert_invariants
from pyjobs.records import NewJob, Outcome
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from racers import (
    CONTEXT,
    Visit,
    answer,
    claimer,
    hoarder,
    race,
    rival,
    running,
    settler,
    stormer,
    ticker,
    visitor,
)
from steps import MINUTE, batch_meta, claim, define, enqueue_all

pytestmark = pytest.mark.slow


def drain(store: Store, clock: TestClock) -> None:
    """Let time pass and perform what is there until all has ended."""
    for _ in range(200):
        clock.advance(400)
        store.sweep()
        while jobs := claim(store, 200):
            store.settle_many([Outcome(job.id, job.token, "done") for job in jobs])
        if not any(store.count({"state": state}) for state in ("scheduled", "pending", "running")):
            return
    raise AssertionError("there is work that never ends")


@pytest.mark.parametrize("definition", [{}, {"concurrency": {"limit": 1_000}}], ids=["unlimited", "limited"])
def test_eight_claimers_take_each_job_once(store: Store, database: Any, sql: Any, definition: dict[str, Any]) -> None:
    define(store, **definition)
    ids = [
        job.id
        for job in store.enqueue_many([NewJob("work", options={"priority": number % 7}) for number in range(5_000)])
    ]

    claimed = list(chain.from_iterable(race(claimer, database)))
    # A claim passes over what another has locked, so the last of them may see nothing while there is something.
    claimed += claimer_alone(store)

    assert sorted(id for id, _ in claimed) == sorted(ids)
    assert {attempt for _, attempt in claimed} == {1}
    assert store.count({"state": "done"}) == 5_000
    assert_invariants(sql)


def claimer_alone(store: Store) -> list[tuple[UUID, int]]:
    jobs = claim(store, 1_000)
    store.settle_many([Outcome(job.id, job.token, "done") for job in jobs])
    return [(job.id, job.attempt) for job in jobs]


@pytest.mark.parametrize("limit", [1, 3])
def test_eight_workers_never_exceed_a_limit(store: Store, database: Any, sql: Any, limit: int) -> None:
    define(store, concurrency={"limit": limit, "key": "k"}, max_attempts=1_000, backoff={"base_ms": 0})
    store.enqueue_many([NewJob("work", f'{{"k": {number % 5}}}') for number in range(300)])

    visits: list[Visit] = list(chain.from_iterable(race(visitor, database, shared=CONTEXT.Array("i", 5))))

    assert len(visits) >= 300
    assert max(visit.together for visit in visits) <= limit
    assert most_at_once(visits) <= limit
    assert_invariants(sql)


def most_at_once(visits: list[Visit]) -> int:
    """The most jobs of one bucket that were in hand at one moment, by when each was entered and left."""
    most = 0
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for visit in visits:
        steps[visit.bucket] += [(visit.entered, +1), (visit.left, -1)]
    for bucket in steps.values():
        inside = 0
        for _, step in sorted(bucket):
            inside += step
            most = max(most, inside)
    return most


def test_eight_settlers_of_one_batch_finish_it_once_after_the_last(store: Store, database: Any, sql: Any) -> None:
    define(store, max_attempts=1)
    define(store, "after")
    batch_id = store.open_batch({"callback": {"name": "after"}})
    store.enqueue_many([NewJob("work", options={"batch_id": str(batch_id)})] * 400)
    store.seal_batch(batch_id)
    jobs = claim(store, 400)
    failed = sum(job.id.int % 3 == 0 for job in jobs)

    early = race(settler, database, shared=[jobs[number::8] for number in range(8)])

    assert early == [0] * 8
    [callback] = claim(store, 10)
    batch = store.batch(batch_id)
    assert batch is not None
    assert (batch.done, batch.failed, batch.callback_id) == (400, failed, callback.id)
    assert batch_meta(callback.meta)["failed"] == failed
    assert_invariants(sql)


def test_of_fifty_tickers_one_fires(store: Store, database: Any) -> None:
    define(store)
    expected = store.now() - timedelta(seconds=1)
    store.put_schedule("tidy", {"job": "work", "every_ms": MINUTE}, expected)

    fired = race(ticker, database, racers=5, shared=(expected, expected + timedelta(hours=1)))

    [id] = chain.from_iterable(fired)
    assert [job.id for job in store.jobs()] == [id]


def test_of_eight_that_want_a_key_one_has_it_even_when_the_first_rolls_back(
    store: Store, database: Any, sql: Any
) -> None:
    define(store)

    answers = race(rival, database, shared=CONTEXT.Value("b", False))

    inserted = [id for id, inserted, _ in answers if inserted]
    kept = [id for id, inserted, committed in answers if inserted and committed]
    assert len(inserted) == 2
    assert [job.id for job in store.jobs()] == kept
    assert {id for id, inserted, _ in answers if not inserted} <= set(kept)
    assert_invariants(sql)


def test_a_storm_of_everything_breaks_nothing(store: Store, database: Any, sql: Any) -> None:
    define(store, max_attempts=3, backoff={"base_ms": 0})
    define(store, "limited", max_attempts=3, concurrency={"limit": 2, "key": "k"})
    define(store, "after")

    seconds = 6
    with running(stormer, database, racers=6, shared=seconds) as processes:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not any(pipe.poll(0.2) for _, pipe in processes):
            assert_invariants(sql)
        did = Counter[str]()
        for process, pipe in processes:
            did.update(answer(process, pipe))
    assert_invariants(sql)

    drain(store, TestClock(database.url))
    assert_invariants(sql)
    assert did["settled"] > 100
    assert did["batches"] == len(store.batches(finished=True, limit=100_000)) > 10
    callbacks = did["batches"]
    assert store.count() == did["inserted"] + callbacks - did["discard"]
    assert store.batches(finished=False) == []


def test_work_of_killed_processes_is_not_lost(store: Store, database: Any, sql: Any) -> None:
    define(store, concurrency={"limit": 1_000})
    ids = enqueue_all(store, 2_000)
    progress = CONTEXT.Array("i", 4)

    with running(hoarder, database, racers=4, shared=progress) as processes:
        deadline = time.monotonic() + 15
        for number, (process, _) in enumerate(processes):
            while sum(progress[:]) < 40 * (number + 1) and time.monotonic() < deadline:
                assert process.is_alive()
                process.join(0.01)
            process.kill()
            process.join()

    assert_invariants(sql)
    assert 0 < store.count({"state": "done"}) < 2_000
    assert store.count({"state": "running"}) > 0

    drain(store, TestClock(database.url))
    assert store.count({"state": "done"}) == 2_000 == len(ids)
    assert_invariants(sql)


@pytest.mark.databases("postgresql")
class TestTwoSessions:
    """Who waits for whom, told apart by two sessions and no timing: a session that may not wait is refused at once."""

    @pytest.fixture
    def theirs(self, store: Store, database: Any) -> Iterator[Any]:
        """Another session, in the middle of a transaction."""
        define(store)
        connection = database.connect()
        connection.execute("BEGIN")
        yield connection
        connection.close()

    @pytest.fixture
    def impatient(self, sql: Any) -> Any:
        sql("SET lock_timeout = '50ms'")
        return sql

    def test_an_enqueue_waits_for_the_uncommitted_holder_of_its_key(
        self, store: Store, theirs: Any, impatient: Any
    ) -> None:
        store.join(theirs).enqueue("work", "{}", {"unique_key": "k"})

        with pytest.raises(psycopg.errors.LockNotAvailable):
            impatient("SELECT jobs_enqueue('work', '{}', '{\"unique_key\": \"k\"}')")

    def test_an_enqueue_waits_for_nobody_else(self, store: Store, theirs: Any, impatient: Any) -> None:
        store.join(theirs).enqueue("work", "{}", {"unique_key": "k"})

        impatient("SELECT jobs_enqueue('work', '{}', '{\"unique_key\": \"other\"}')")

    def test_sealing_waits_for_an_enqueue_into_the_batch(self, store: Store, theirs: Any, impatient: Any) -> None:
        batch_id = store.open_batch({})
        store.join(theirs).enqueue("work", "{}", {"batch_id": str(batch_id)})
        with pytest.raises(psycopg.errors.LockNotAvailable):
            impatient("SELECT * FROM jobs_seal_batch(?)", batch_id)

        theirs.execute("COMMIT")
        assert store.seal_batch(batch_id).total == 1

    def test_counting_does_not_wait_for_an_enqueue_into_the_batch(
        self, store: Store, theirs: Any, impatient: Any
    ) -> None:
        batch_id = store.open_batch({})
        store.enqueue("work", "{}", {"batch_id": str(batch_id)})
        [job] = claim(store)
        store.join(theirs).enqueue("work", "{}", {"batch_id": str(batch_id)})

        impatient("SELECT * FROM jobs_settle(?, ?, 'done')", job.id, job.token)

        batch = store.batch(batch_id)
        assert batch is not None
        assert batch.done == 1

    def test_a_claim_steps_over_rows_that_are_locked_elsewhere(self, store: Store, theirs: Any, impatient: Any) -> None:
        ids = enqueue_all(store, 300)
        theirs.execute("SELECT FROM jobs ORDER BY run_at, id LIMIT 200 FOR UPDATE")

        claimed = impatient("SELECT id FROM jobs_claim('w', gen_random_uuid(), '{\"max_jobs\": 10}')")

        assert len(claimed) == 10
        assert {row["id"] for row in claimed} <= set(ids[200:])

    def test_a_job_whose_enqueuer_did_not_see_the_new_limit_is_bounded(self, store: Store, theirs: Any) -> None:
        """Definitions are not locked by those who enqueue; the claim that meets such a job puts it right."""
        joined = store.join(theirs)
        for _ in range(3):
            joined.enqueue("work", "{}")
        define(store, concurrency={"limit": 1})
        theirs.execute("COMMIT")

        assert len([job for _ in range(5) for job in claim(store, 10)]) == 1

    def test_a_sweep_leaves_what_is_locked_for_the_next_one(
        self, store: Store, theirs: Any, impatient: Any, clock: TestClock
    ) -> None:
        enqueue_all(store, 4)
        claim(store, 2)
        enqueue_all(store, 2, delay_ms=1_000)
        clock.advance(301)
        theirs.execute("SELECT FROM jobs FOR UPDATE")
        [swept] = impatient("SELECT promoted, rescued FROM jobs_sweep()")
        assert swept == {"promoted": 0, "rescued": 0}

        theirs.execute("ROLLBACK")
        [swept] = impatient("SELECT promoted, rescued FROM jobs_sweep()")
        assert swept == {"promoted": 2, "rescued": 2}

    def test_calls_with_one_token_queue_up(self, store: Store, theirs: Any, impatient: Any) -> None:
        enqueue_all(store, 2)
        token = "44444444-4444-4444-8444-444444444444"
        theirs.execute("SELECT FROM jobs_claim('w', %s)", [token])

        with pytest.raises(psycopg.errors.LockNotAvailable):
            impatient("SELECT FROM jobs_claim('w', ?)", token)

    def test_of_two_takers_of_a_slot_the_second_waits_and_goes_on(
        self, store: Store, theirs: Any, impatient: Any
    ) -> None:
        define(store, concurrency={"limit": 1})
        enqueue_all(store, 2)
        theirs.execute("SELECT FROM jobs_claim('w', gen_random_uuid())")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            impatient("SELECT FROM jobs_claim('w', gen_random_uuid())")

        theirs.execute("ROLLBACK")
        assert len(impatient("SELECT id FROM jobs_claim('w', gen_random_uuid())")) == 1
