"""sweep.sql: what nobody else is there to do, in bounded steps that any number may take at once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from invariants import assert_invariants
from pyjobs.errors import InvalidOption
from pyjobs.records import Held, NewJob, Swept
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import (
    DAY,
    HOUR,
    MINUTE,
    batch_meta,
    bury,
    claim,
    claim_one,
    define,
    each,
    enqueue,
    enqueue_all,
    found,
    perform,
    refused,
    settle,
    state,
)

NOTHING = Swept(promoted=0, rescued=0, buried=0, slots_freed=0, batches_finished=0, pruned=0)


def test_there_may_be_nothing_to_do(store: Store) -> None:
    define(store)
    enqueue(store)
    enqueue(store, delay_ms=HOUR)
    claim_one(store)

    assert store.sweep() == NOTHING
    assert NOTHING.total == 0


@each(("options", "named"), [({"limmit": 5}, "limmit"), ({"limit": -1}, "limit"), ({"limit": "5"}, "limit")])
def test_an_option_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
    store: Store, options: dict[str, Any], named: str
) -> None:
    with refused(store, InvalidOption, named):
        store.sweep(options)


class TestPromoting:
    def test_due_jobs_become_pending_oldest_first(self, store: Store, clock: TestClock) -> None:
        define(store)
        ids = [enqueue(store, delay_ms=delay) for delay in (3_000, 1_000, 2_000, HOUR)]
        clock.advance(60)

        assert store.sweep({"limit": 2}).promoted == 2
        assert [state(store, id) for id in ids] == ["scheduled", "pending", "pending", "scheduled"]
        assert store.sweep().promoted == 1
        assert store.sweep() == NOTHING

    def test_they_keep_the_moment_they_were_due(self, store: Store, clock: TestClock) -> None:
        define(store)
        id = enqueue(store, delay_ms=MINUTE)
        due = found(store, id).run_at
        clock.advance(600)
        store.sweep()

        assert found(store, id).run_at == due


class TestRescuing:
    def lost(self, store: Store, clock: TestClock, **options: Any) -> UUID:
        """A job whose worker was not heard of until its lease was over."""
        define(store, **options)
        enqueue(store)
        job = claim_one(store)
        clock.advance(301)
        return job.id

    def test_a_job_whose_lease_is_over_is_tried_again(self, store: Store, clock: TestClock) -> None:
        id = self.lost(store, clock, backoff={"base_ms": 60_000, "jitter": 0})

        assert store.sweep() == Swept(promoted=0, rescued=1, buried=0, slots_freed=0, batches_finished=0, pruned=0)
        record = found(store, id)
        assert (record.state, record.attempts, record.worker) == ("scheduled", 1, None)
        assert (record.run_at - clock.now()).total_seconds() == 60
        [failure] = store.failures(id)
        assert (failure.kind, failure.attempt, failure.worker) == ("lost", 1, "worker-1")

    def test_a_lease_that_is_not_over_is_left_alone(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        claim_one(store)
        clock.advance(299)

        assert store.sweep() == NOTHING

    def test_a_job_without_attempts_left_is_buried(self, store: Store, clock: TestClock) -> None:
        id = self.lost(store, clock, max_attempts=1)

        swept = store.sweep()
        assert (swept.rescued, swept.buried) == (0, 1)
        assert (found(store, id).state, found(store, id).dead_reason) == ("dead", "lost")

    def test_a_job_that_was_to_be_cancelled_is_cancelled(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        store.cancel({"id": str(job.id)})
        clock.advance(301)
        store.sweep()

        assert state(store, job.id) == "cancelled"
        assert [failure.kind for failure in store.failures(job.id)] == ["lost"]

    def test_its_slot_is_freed(self, store: Store, clock: TestClock) -> None:
        self.lost(store, clock, concurrency={"limit": 1})
        waiting = enqueue(store)
        assert claim(store) == []
        store.sweep()

        assert all(row.job_id is None for row in store.limits())
        assert claim_one(store).id == waiting

    def test_its_unique_key_stays_while_it_is_tried_again(self, store: Store, clock: TestClock) -> None:
        define(store)
        id = enqueue(store, unique_key="k")
        claim_one(store)
        clock.advance(301)
        store.sweep()

        assert enqueue(store, unique_key="k") == id

    def test_its_unique_key_goes_when_it_is_buried(self, store: Store, clock: TestClock) -> None:
        define(store, max_attempts=1)
        id = enqueue(store, unique_key="k")
        claim_one(store)
        clock.advance(301)
        store.sweep()

        assert enqueue(store, unique_key="k") != id

    def test_a_key_taken_by_another_meanwhile_does_not_block_a_rescue(
        self, store: Store, clock: TestClock, sql: Any
    ) -> None:
        define(store)
        id = enqueue(store, unique_key="k")
        claim_one(store)
        sql("DELETE FROM jobs_keys")
        enqueue(store, unique_key="k", queue="other")
        clock.advance(301)

        assert store.sweep().rescued == 1
        assert state(store, id) == "scheduled"

    def test_it_is_counted_in_its_batch_when_it_is_buried(self, store: Store, clock: TestClock) -> None:
        define(store, max_attempts=1)
        define(store, "after")
        batch_id = store.open_batch({"callback": {"name": "after"}})
        enqueue(store, batch_id=str(batch_id))
        store.seal_batch(batch_id)
        claim_one(store)
        clock.advance(301)
        store.sweep()
        store.sweep()
        batch = store.batch(batch_id)

        assert batch is not None
        assert (batch.done, batch.failed, batch.finished_at is not None) == (1, 1, True)
        assert batch_meta(claim_one(store, names=("after",)).meta)["failed"] == 1

    def test_so_many_at_a_time(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue_all(store, 5)
        claim(store, 5)
        clock.advance(301)

        assert [store.sweep({"limit": 2}).rescued for _ in range(4)] == [2, 2, 1, 0]

    def test_a_heartbeat_keeps_a_job_from_it(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        for _ in range(5):
            clock.advance(200)
            store.heartbeat("worker-1", [Held(job.id, job.token)])
            assert store.sweep() == NOTHING


class TestPruning:
    @pytest.mark.parametrize("outcome", ["done", "cancelled"])
    def test_done_and_cancelled_rows_go_after_keep_done(self, store: Store, clock: TestClock, outcome: Any) -> None:
        define(store, keep_done_ms=HOUR)
        enqueue(store)
        id = perform(store, outcome)
        clock.advance(3_599)
        assert store.sweep() == NOTHING

        clock.advance(2)
        assert store.sweep().pruned == 1
        assert state(store, id) is None

    def test_dead_rows_go_after_keep_dead(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=0, keep_dead_ms=HOUR)
        id = bury(store)
        clock.advance(3_599)
        assert store.sweep() == NOTHING

        clock.advance(2)
        assert store.sweep().pruned == 1
        assert (state(store, id), store.failures(id)) == (None, [])

    def test_dead_rows_stay_for_ever_unless_told(self, store: Store, clock: TestClock) -> None:
        define(store)
        id = bury(store)
        clock.advance(3_650 * 86_400)
        store.sweep()

        assert state(store, id) == "dead"

    def test_each_definition_has_its_own_time(self, store: Store, clock: TestClock) -> None:
        define(store, "short", keep_done_ms=MINUTE)
        define(store, "long", keep_done_ms=30 * DAY)
        short, long = enqueue(store, "short"), enqueue(store, "long")
        perform(store)
        perform(store)
        clock.advance(61)
        store.sweep()

        assert (state(store, short), state(store, long)) == (None, "done")

    def test_a_changed_time_holds_for_what_has_ended_already(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=30 * DAY)
        enqueue(store)
        id = perform(store)
        define(store, keep_done_ms=MINUTE)
        clock.advance(61)
        store.sweep()

        assert state(store, id) is None

    def test_rows_of_a_forgotten_name_go_by_the_defaults(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=30 * DAY)
        enqueue(store)
        id = perform(store)
        store.forget("work")
        clock.advance(86_400 - 1)
        store.sweep()
        assert state(store, id) == "done"

        clock.advance(2)
        store.sweep()
        assert state(store, id) is None

    def test_rows_that_wait_or_run_never_go(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=0, keep_dead_ms=0)
        enqueue_all(store, 2)
        job = claim_one(store, lease_ms=400 * DAY)
        enqueue(store, delay_ms=400 * DAY)
        clock.advance(300 * 86_400)
        store.sweep()

        assert store.count() == 3
        assert state(store, job.id) == "running"

    def test_finished_batches_go_like_done_rows(self, store: Store, clock: TestClock) -> None:
        open_batch = store.open_batch({})
        finished = store.open_batch({})
        store.seal_batch(finished)
        clock.advance(86_400 + 1)
        assert store.sweep().pruned == 1

        assert store.batch(finished) is None
        assert store.batch(open_batch) is not None

    def test_so_many_at_a_time(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=MINUTE)
        enqueue_all(store, 5)
        for _ in range(5):
            perform(store)
        clock.advance(61)

        assert [store.sweep({"limit": 2}).pruned for _ in range(4)] == [2, 2, 1, 0]

    def test_a_key_kept_for_ever_outlives_its_row(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=MINUTE)
        id = enqueue(store, unique_key="k", unique_for="ever")
        perform(store)
        clock.advance(61)
        store.sweep()

        assert state(store, id) is None
        assert enqueue(store, unique_key="k") == id


class TestFinishingBatches:
    def test_one_that_was_left_behind_is_finished(self, store: Store, sql: Any) -> None:
        """Settling counts by itself; the sweep is there for what an operator's hand has undone."""
        define(store)
        define(store, "after")
        batch_id = store.open_batch({"callback": {"name": "after"}})
        store.enqueue_many([NewJob("work", options={"batch_id": str(batch_id)})] * 2)
        store.seal_batch(batch_id)
        perform(store)
        sql("DELETE FROM jobs WHERE state = 'pending'")
        sql("UPDATE jobs_batches SET done = 2")

        assert store.sweep().batches_finished == 1
        assert store.sweep().batches_finished == 0
        assert store.count({"name": "after"}) == 1


def test_everything_at_once_leaves_everything_in_order(store: Store, clock: TestClock, sql: Any) -> None:
    define(store, concurrency={"limit": 2, "key": "k"}, max_attempts=2, keep_done_ms=MINUTE)
    define(store, "after")
    batch_id = store.open_batch({"callback": {"name": "after"}})
    store.enqueue_many(
        [
            NewJob("work", f'{{"k": {n % 5}}}', {"batch_id": str(batch_id), "unique_key": f"k{n}", "delay_ms": n % 3})
            for n in range(30)
        ]
    )
    store.seal_batch(batch_id)
    for round in range(60):
        for n, job in enumerate(claim(store, 4)):
            if (n + round) % 3:
                settle(store, job, "done" if n % 2 else "failed")
        clock.advance(200)
        store.sweep({"limit": 5})
        assert_invariants(sql)

    assert store.count({"state": "running"}) == store.count({"state": "pending", "name": "work"}) == 0
    assert store.count({"name": "after"}) <= 1
