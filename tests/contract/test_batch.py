"""batch.sql: jobs that are counted together, and what happens once, when the last of them has ended."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import DatabaseError

from payloads import BROKEN, VERBATIM
from pyjobs.errors import BadName, BatchClosed, InvalidArguments, InvalidOption, UnknownBatch, UnknownJob
from pyjobs.records import BatchRecord, NewJob, Outcome
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import (
    HOUR,
    MINUTE,
    batch_meta,
    claim,
    claim_one,
    define,
    each,
    enqueue,
    found,
    perform,
    refused,
    settle,
    state,
)


def batch(store: Store, number: int = 0, *, callback: dict[str, Any] | None = None, **options: Any) -> UUID:
    """A batch that is still open, with that many jobs in it."""
    define(store)
    define(store, "after")
    id = store.open_batch(options | ({"callback": callback} if callback else {}))
    store.enqueue_many([NewJob("work", options={"batch_id": str(id)})] * number)
    return id


def sealed(store: Store, number: int, **options: Any) -> UUID:
    id = batch(store, number, **options)
    store.seal_batch(id)
    return id


def counted(store: Store, id: UUID) -> BatchRecord:
    record = store.batch(id)
    assert record is not None
    return record


def callbacks(store: Store) -> int:
    return store.count({"name": "after"})


AFTER: dict[str, Any] = {"callback": {"name": "after", "args": '{"n": 1}'}}


class TestOpening:
    def test_it_is_open_and_counts_nothing(self, store: Store) -> None:
        before = store.now()
        record = counted(store, batch(store, name="import acme", tenant="acme", **AFTER))

        assert (record.name, record.tenant, record.callback) == ("import acme", "acme", "after")
        assert (record.total, record.done, record.failed) == (None, 0, 0)
        assert before <= record.opened_at <= store.now()
        assert (record.sealed_at, record.finished_at, record.callback_id) == (None, None, None)

    def test_an_id_may_be_brought_along_and_sent_again(self, store: Store) -> None:
        mine = uuid4()

        assert batch(store, id=str(mine)) == mine
        assert store.open_batch({"id": str(mine)}) == mine
        assert len(store.batches()) == 1

    def test_an_undefined_callback_is_refused_now_and_not_later(self, store: Store) -> None:
        define(store)

        with refused(store, UnknownJob, "aftre", "work"):
            store.open_batch({"callback": {"name": "aftre"}})

        assert store.batches() == []

    @each(
        ("options", "named"),
        [
            ({"nmae": "x"}, "nmae"),
            ({"name": 5}, "name"),
            ({"id": "not-a-uuid"}, "id"),
            ({"id": 5}, "id"),
            ({"tenant": 5}, "tenant"),
            ({"callback": "after"}, "callback"),
            ({"callback": {}}, "name"),
            ({"callback": {"name": 5}}, "name"),
            ({"callback": {"nmae": "after"}}, "nmae"),
            ({"callback": {"name": "after", "options": {"delay": 5}}}, "delay"),
            ({"callback": {"name": "after", "options": 5}}, "options"),
            ({"callback": {"name": "after", "options": {"priority": "high"}}}, "priority"),
            ({"callback": {"name": "after", "options": {"delay_ms": -1}}}, "delay_ms"),
            ({"callback": {"name": "after", "options": {"run_at": "2999-01-01T00:00:00"}}}, "run_at"),
            ({"callback": {"name": "after", "options": {"unique_key": "k"}}}, "unique_key"),
            ({"callback": {"name": "after", "options": {"unique_for": "row"}}}, "unique_for"),
            ({"callback": {"name": "after", "options": {"batch_id": str(uuid4())}}}, "batch_id"),
        ],
    )
    def test_an_option_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
        self, store: Store, options: dict[str, Any], named: str
    ) -> None:
        define(store, "after")

        with refused(store, InvalidOption, named):
            store.open_batch(options)

        assert store.batches() == []

    @each("tenant", ["", "x" * 191])
    def test_a_tenant_is_neither_empty_nor_over_190_characters(self, store: Store, tenant: str) -> None:
        with refused(store, BadName, "tenant"):
            store.open_batch({"tenant": tenant})

    def test_args_of_the_callback_that_are_too_large_are_refused(self, store: Store) -> None:
        define(store, "after")
        store.set("max_args_bytes", 20)

        with refused(store, InvalidArguments, "20"):
            store.open_batch({"callback": {"name": "after", "args": '"' + "x" * 20 + '"'}})


class TestSealing:
    def test_it_fixes_the_total(self, store: Store) -> None:
        record = store.seal_batch(batch(store, 3))

        assert (record.total, record.done, record.failed) == (3, 0, 0)
        assert record.sealed_at is not None
        assert record.finished_at is None

    def test_jobs_that_ended_before_are_in_the_total(self, store: Store) -> None:
        id = batch(store, 3)
        perform(store)
        perform(store, "failed", permanent=True)

        record = store.seal_batch(id)

        assert (record.total, record.done, record.failed, record.succeeded) == (3, 2, 1, 1)

    def test_jobs_pruned_before_are_in_the_total(self, store: Store) -> None:
        id = batch(store, 3)
        define(store, keep_done_ms=0)
        perform(store)

        assert store.count() == 2
        assert (store.seal_batch(id).total, counted(store, id).done) == (3, 1)

    def test_twice_answers_the_same(self, store: Store) -> None:
        id = batch(store, 2, **AFTER)

        assert store.seal_batch(id) == store.seal_batch(id)
        perform(store)
        perform(store)
        finished = store.seal_batch(id)
        assert finished.finished_at is not None
        assert store.seal_batch(id) == finished
        assert callbacks(store) == 1

    def test_a_sealed_batch_takes_no_more(self, store: Store) -> None:
        id = sealed(store, 1)

        with refused(store, BatchClosed, str(id)):
            enqueue(store, batch_id=str(id))
        with refused(store, BatchClosed, str(id)):
            store.enqueue_many([NewJob("work"), NewJob("work", options={"batch_id": str(id)})])

    def test_an_enqueue_sent_again_after_the_seal_is_answered(self, store: Store) -> None:
        id, mine = batch(store), uuid4()
        enqueue(store, id=mine, batch_id=str(id))
        store.seal_batch(id)

        assert enqueue(store, id=mine, batch_id=str(id)) == mine
        assert counted(store, id).total == 1

    def test_an_unknown_batch_cannot_be_sealed_or_advanced(self, store: Store) -> None:
        nowhere = uuid4()

        with refused(store, UnknownBatch, str(nowhere)):
            store.seal_batch(nowhere)
        with refused(store, UnknownBatch, str(nowhere)):
            store.advance_batch(nowhere)

    @pytest.mark.databases("postgresql")
    @pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_a_snapshot_that_may_lack_a_job_does_not_fix_the_total(
        self, store: Store, database: Any, isolation: str
    ) -> None:
        id = batch(store)
        with database.connect() as early:
            early.execute(f"BEGIN ISOLATION LEVEL {isolation}")
            early.execute("SELECT count(*) FROM jobs")
            enqueue(store, batch_id=str(id))

            with pytest.raises(DatabaseError, match=isolation):
                early.execute("SELECT * FROM jobs_seal_batch(%s)", [id])

        assert counted(store, id).total is None
        assert store.seal_batch(id).total == 1

    @pytest.mark.databases("postgresql")
    def test_the_database_may_prefer_another_isolation(self, store: Store, sql: Any) -> None:
        id = batch(store, 1)
        name = sql.value("SELECT quote_ident(current_database())")
        sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        store.close()

        assert store.seal_batch(id).total == 1

    def test_an_empty_batch_finishes_when_it_is_sealed(self, store: Store) -> None:
        id = batch(store, **AFTER)
        assert callbacks(store) == 0

        record = store.seal_batch(id)

        assert (record.total, record.done) == (0, 0)
        assert record.finished_at is not None
        assert batch_meta(claim_one(store).meta) == {
            "id": str(id),
            "name": None,
            "total": 0,
            "done": 0,
            "failed": 0,
            "succeeded": 0,
        }

    def test_a_batch_whose_jobs_have_all_ended_finishes_when_it_is_sealed(self, store: Store) -> None:
        id = batch(store, 2, **AFTER)
        perform(store)
        perform(store)
        assert callbacks(store) == 0

        assert store.seal_batch(id).finished_at is not None
        assert callbacks(store) == 1


class TestCounting:
    def test_every_end_counts_and_some_count_as_failed(self, store: Store) -> None:
        id = sealed(store, 3)
        perform(store)
        assert (counted(store, id).done, counted(store, id).failed) == (1, 0)
        perform(store, "failed", permanent=True)
        assert (counted(store, id).done, counted(store, id).failed) == (2, 1)
        perform(store, "cancelled")
        record = counted(store, id)

        assert (record.done, record.failed, record.succeeded) == (3, 2, 1)
        assert record.finished_at is not None

    @pytest.mark.parametrize(
        ("outcome", "detail"), [("failed", {}), ("released", {}), ("snoozed", {"delay_ms": MINUTE})]
    )
    def test_what_has_not_ended_does_not_count(self, store: Store, outcome: Any, detail: dict[str, Any]) -> None:
        id = sealed(store, 1)
        perform(store, outcome, **detail)

        assert counted(store, id).done == 0

    def test_an_outcome_sent_twice_counts_once(self, store: Store) -> None:
        id = sealed(store, 2)
        job = claim_one(store)
        settle(store, job)
        settle(store, job)

        assert counted(store, id).done == 1

    def test_many_outcomes_in_one_call_count_all(self, store: Store) -> None:
        first, second = sealed(store, 3, **AFTER), sealed(store, 2, **AFTER)
        store.settle_many([Outcome(job.id, job.token, "done") for job in claim(store, 10)])

        assert [(counted(store, id).done, counted(store, id).finished_at is None) for id in (first, second)] == [
            (3, False),
            (2, False),
        ]
        assert callbacks(store) == 2

    def test_a_cancelled_waiting_job_counts_as_failed(self, store: Store) -> None:
        id = sealed(store, 2, **AFTER)
        store.cancel({"batch_id": str(id)})
        record = counted(store, id)

        assert (record.done, record.failed) == (2, 2)
        assert record.finished_at is not None
        assert callbacks(store) == 1

    def test_a_discarded_waiting_job_counts_as_failed(self, store: Store) -> None:
        id = sealed(store, 2, **AFTER)
        perform(store)
        store.discard({"batch_id": str(id), "state": "pending"})
        record = counted(store, id)

        assert (record.total, record.done, record.failed) == (2, 2, 1)
        assert record.finished_at is not None
        assert callbacks(store) == 1

    def test_a_discarded_ended_job_stays_counted(self, store: Store) -> None:
        id = sealed(store, 2)
        perform(store)
        store.discard({"batch_id": str(id), "state": "done"})

        assert (counted(store, id).total, counted(store, id).done, counted(store, id).failed) == (2, 1, 0)

    def test_a_pruned_job_stays_counted(self, store: Store, clock: TestClock) -> None:
        id = sealed(store, 2)
        define(store, keep_done_ms=MINUTE)
        perform(store)
        clock.advance(61)
        assert store.sweep().pruned == 1

        assert (counted(store, id).total, counted(store, id).done) == (2, 1)
        perform(store)
        assert counted(store, id).finished_at is not None

    def test_a_job_not_kept_at_all_is_counted(self, store: Store) -> None:
        id = sealed(store, 1, **AFTER)
        define(store, keep_done_ms=0)
        perform(store)

        assert counted(store, id).done == 1
        assert callbacks(store) == 1

    def test_a_job_put_back_gives_its_count_back_first(self, store: Store) -> None:
        id = sealed(store, 2, **AFTER)
        dead = perform(store, "failed", permanent=True)
        assert (counted(store, id).done, counted(store, id).failed) == (1, 1)

        store.retry({"id": str(dead)})
        assert (counted(store, id).done, counted(store, id).failed) == (0, 0)

        perform(store)
        assert callbacks(store) == 0
        perform(store)
        assert (counted(store, id).done, counted(store, id).failed) == (2, 0)
        assert callbacks(store) == 1

    def test_a_finished_batch_stays_finished_when_a_job_is_put_back(self, store: Store) -> None:
        id = sealed(store, 1, **AFTER)
        dead = perform(store, "failed", permanent=True)
        finished = counted(store, id).finished_at
        store.retry({"id": str(dead)})
        assert (counted(store, id).done, counted(store, id).finished_at) == (0, finished)

        settle(store, claim_one(store, names=("work",)))

        record = counted(store, id)
        assert (record.done, record.failed, record.finished_at) == (1, 0, finished)
        assert callbacks(store) == 1

    def test_a_rescheduled_waiting_job_gives_back_nothing(self, store: Store) -> None:
        id = batch(store)
        waiting = enqueue(store, batch_id=str(id), delay_ms=HOUR)
        store.seal_batch(id)
        store.retry({"id": str(waiting)})

        assert (counted(store, id).total, counted(store, id).done) == (1, 0)

    def test_a_unique_key_held_elsewhere_adds_nothing(self, store: Store) -> None:
        id = batch(store)
        enqueue(store, unique_key="k")
        enqueue(store, unique_key="k", batch_id=str(id))

        assert store.seal_batch(id).total == 0


class TestTheCallback:
    def test_it_is_enqueued_once_after_the_last_outcome(self, store: Store) -> None:
        id = sealed(store, 3, name="import", **AFTER)
        jobs = claim(store, 3)
        for job in jobs[:2]:
            settle(store, job)
            assert callbacks(store) == 0
        settle(store, jobs[2], "failed", permanent=True)
        assert callbacks(store) == 1

        callback = claim_one(store)
        assert (callback.name, callback.batch_id, callback.unique_key) == ("after", None, None)
        assert counted(store, id).callback_id == callback.id
        assert batch_meta(callback.meta) == {
            "id": str(id),
            "name": "import",
            "total": 3,
            "done": 3,
            "failed": 1,
            "succeeded": 2,
        }

    def test_its_options_are_those_of_an_enqueue(self, store: Store, clock: TestClock) -> None:
        options = {"queue": "late", "priority": 9, "max_attempts": 2, "timeout_ms": 50, "delay_ms": HOUR}
        id = batch(store, callback={"name": "after", "options": options | {"meta": {"trace": "t"}}}, tenant="acme")
        clock.advance(100)
        store.seal_batch(id)
        callback_id = counted(store, id).callback_id
        assert callback_id is not None
        record = found(store, callback_id)

        assert (record.queue, record.priority, record.max_attempts, record.timeout_ms) == ("late", 9, 2, 50)
        assert (record.state, record.tenant) == ("scheduled", "acme")
        assert (record.run_at - clock.now()).total_seconds() == 3_600
        assert batch_meta(record.meta)["total"] == 0
        assert '"trace"' in (record.meta or "")

    def test_it_has_what_its_definition_says_at_the_end(self, store: Store) -> None:
        id = sealed(store, 1, **AFTER)
        define(store, "after", queue="moved", max_attempts=9)
        perform(store)
        callback = claim_one(store, queues=("moved",))

        assert (callback.id, callback.max_attempts) == (counted(store, id).callback_id, 9)

    def test_it_is_bounded_by_its_own_limit(self, store: Store) -> None:
        batch(store)
        define(store, "after", concurrency={"limit": 1, "key": "k"})
        for value in (1, 1, 2):
            store.seal_batch(store.open_batch({"callback": {"name": "after", "args": f'{{"k": {value}}}'}}))

        assert len(claim(store, 10)) == 2

    def test_a_forgotten_definition_does_not_stop_a_settle(self, store: Store) -> None:
        id = sealed(store, 1, **AFTER)
        store.forget("after")
        perform(store)
        callback = claim_one(store)

        assert counted(store, id).finished_at is not None
        assert (callback.name, callback.queue, callback.max_attempts) == ("after", "default", 5)

    def test_a_smaller_size_limit_since_does_not_stop_a_settle(self, store: Store) -> None:
        id = sealed(store, 1, **AFTER)
        store.set("max_args_bytes", 1)
        perform(store)

        assert counted(store, id).finished_at is not None
        assert callbacks(store) == 1

    def test_none_is_fine(self, store: Store) -> None:
        id = sealed(store, 1)
        perform(store)
        record = counted(store, id)

        assert record.finished_at is not None
        assert (record.callback, record.callback_id, store.count()) == (None, None, 1)


class TestAdvancing:
    def test_it_leaves_an_open_or_unfinished_batch_as_it_is(self, store: Store) -> None:
        id = batch(store, 1, **AFTER)
        assert store.advance_batch(id).finished_at is None
        store.seal_batch(id)
        before = counted(store, id)

        assert store.advance_batch(id) == before

    def test_it_can_be_repeated(self, store: Store) -> None:
        id = sealed(store, 1, **AFTER)
        perform(store)
        before = counted(store, id)

        assert store.advance_batch(id) == store.advance_batch(id) == before
        assert callbacks(store) == 1


class TestReading:
    def test_batches_are_listed_by_whether_they_are_finished(self, store: Store) -> None:
        waiting, finished = sealed(store, 1), sealed(store, 0)

        assert {record.id for record in store.batches()} == {waiting, finished}
        assert [record.id for record in store.batches(finished=True)] == [finished]
        assert [record.id for record in store.batches(finished=False)] == [waiting]
        assert store.batch(uuid4()) is None

    def test_the_jobs_of_a_batch_can_be_listed(self, store: Store) -> None:
        id = batch(store, 2)
        enqueue(store)

        assert store.count({"batch_id": str(id)}) == len(store.jobs({"batch_id": str(id)})) == 2


@each("args", VERBATIM)
def test_the_args_of_a_callback_are_kept_verbatim(store: Store, args: str) -> None:
    """They travel inside the options, as text: what a caller in any language wrote is what the callback gets."""
    define(store, "after")
    store.seal_batch(store.open_batch({"callback": {"name": "after", "args": args}}))

    assert claim_one(store).args == args


@each("args", BROKEN)
def test_broken_args_of_a_callback_are_refused(store: Store, args: str) -> None:
    define(store, "after")

    with refused(store, InvalidArguments):
        store.open_batch({"callback": {"name": "after", "args": args}})


def test_a_batch_may_have_a_job_whose_state_is_read(store: Store) -> None:
    id = sealed(store, 1)
    [record] = store.jobs({"batch_id": str(id)})

    assert state(store, record.id) == "pending"
