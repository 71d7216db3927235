"""settle.sql: what an attempt came to, once, whoever says it how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from pyjobs.errors import InvalidOption
from pyjobs.records import ClaimedJob, NewJob, Outcome, OutcomeKind, Settled
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    claim,
    claim_one,
    define,
    each,
    enqueue,
    enqueue_all,
    found,
    perform,
    refused,
    request,
    settle,
    state,
)

OUTCOMES: list[tuple[OutcomeKind, dict[str, Any], str]] = [
    ("done", {}, "done"),
    ("failed", {"message": "no"}, "scheduled"),
    ("failed", {"permanent": True}, "dead"),
    ("released", {}, "pending"),
    ("snoozed", {"delay_ms": MINUTE}, "scheduled"),
    ("cancelled", {"message": "no"}, "cancelled"),
]


@pytest.fixture
def job(store: Store) -> ClaimedJob:
    define(store)
    enqueue(store)
    return claim_one(store)


class TestDone:
    def test_it_is_done(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        clock.advance(2)

        assert settle(store, job) == Settled(job.id, accepted=True, state="done")
        record = found(store, job.id)
        assert (record.state, record.attempts, record.finished_at) == ("done", 1, clock.now())
        assert (record.worker, record.lease_until, record.dead_reason) == (None, None, None)
        assert record.started_at == clock.now() - timedelta(seconds=2)

    def test_the_row_goes_at_once_where_done_rows_are_not_kept(self, store: Store) -> None:
        define(store, keep_done_ms=0)
        id = enqueue(store)
        job = claim_one(store)

        assert settle(store, job) == Settled(id, accepted=True, state="done")
        assert state(store, id) is None

    def test_a_dead_row_stays_where_done_rows_are_not_kept(self, store: Store) -> None:
        define(store, keep_done_ms=0)
        id = enqueue(store)
        perform(store, "failed", permanent=True)

        assert state(store, id) == "dead"

    def test_a_job_whose_name_was_forgotten_settles_by_the_defaults(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=0, backoff={"base_ms": 60_000, "jitter": 0})
        done, failed = enqueue_all(store, 2)
        store.forget("work")
        perform(store)
        perform(store, "failed")

        assert state(store, done) == "done"
        assert timedelta(seconds=4) < found(store, failed).run_at - clock.now() < timedelta(seconds=6)


class TestFailed:
    def test_it_is_written_down(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        started = clock.now()
        clock.advance(3)
        detail = {"type": "ValueError", "message": "no such user ' é \U0001f40d", "stack": "line 1\n  line 2"}
        settle(store, job, "failed", kind="timeout", **detail)
        [failure] = store.failures(job.id)

        assert (failure.job_id, failure.attempt, failure.worker, failure.kind) == (job.id, 1, "worker-1", "timeout")
        assert (failure.type, failure.message, failure.stack) == tuple(detail.values())
        assert (failure.started_at, failure.failed_at) == (started, clock.now())

    def test_each_attempt_is_written_down(self, store: Store) -> None:
        define(store, max_attempts=3, backoff={"base_ms": 0})
        id = enqueue(store)
        for message in ("first", "second", "third"):
            perform(store, "failed", message=message)

        assert [(failure.attempt, failure.message) for failure in store.failures(id)] == [
            (1, "first"),
            (2, "second"),
            (3, "third"),
        ]

    def test_nothing_needs_to_be_said_about_it(self, store: Store, job: ClaimedJob) -> None:
        settle(store, job, "failed")
        [failure] = store.failures(job.id)

        assert (failure.kind, failure.type, failure.message, failure.stack) == ("error", None, None, None)

    @pytest.mark.parametrize("kind", ["error", "timeout", "unknown_name", "lost"])
    def test_it_is_tried_again(self, store: Store, job: ClaimedJob, kind: str) -> None:
        assert settle(store, job, "failed", kind=kind).state == "scheduled"
        record = found(store, job.id)
        assert (record.attempts, record.dead_reason, record.finished_at, record.worker) == (1, None, None, None)

    @each(
        ("max_attempts", "detail", "reason"),
        [
            (1, {}, "exhausted"),
            (1, {"kind": "error"}, "exhausted"),
            (1, {"kind": "timeout"}, "exhausted"),
            (1, {"kind": "unknown_name"}, "unknown_name"),
            (1, {"kind": "lost"}, "lost"),
            (1, {"retry_in_ms": 5}, "exhausted"),
            (9, {"permanent": True}, "permanent"),
            (9, {"permanent": True, "retry_in_ms": 5}, "permanent"),
            (9, {"kind": "invalid_args"}, "invalid_args"),
            (9, {"kind": "invalid_args", "retry_in_ms": 5}, "invalid_args"),
        ],
    )
    def test_it_is_buried_and_the_reason_kept(
        self, store: Store, max_attempts: int, detail: dict[str, Any], reason: str
    ) -> None:
        define(store, max_attempts=max_attempts)
        id = enqueue(store)
        assert settle(store, claim_one(store), "failed", **detail).state == "dead"
        record = found(store, id)

        assert (record.dead_reason, record.attempts) == (reason, 1)
        assert record.finished_at is not None
        assert len(store.failures(id)) == 1

    def test_permanent_false_is_tried_again(self, store: Store, job: ClaimedJob) -> None:
        assert settle(store, job, "failed", permanent=False).state == "scheduled"

    def test_it_is_buried_after_its_last_attempt_and_not_before(self, store: Store) -> None:
        define(store, backoff={"base_ms": 0})
        id = enqueue(store, max_attempts=3)

        states = []
        for _ in range(3):
            perform(store, "failed")
            states.append(state(store, id))

        assert states == ["scheduled", "scheduled", "dead"]
        assert claim(store) == []


class TestBackoff:
    def waits(self, store: Store, clock: TestClock, number: int) -> list[int]:
        """How long after each of so many failures the next attempt falls due, in ms."""
        id = enqueue(store)
        waits = []
        for _ in range(number):
            perform(store, "failed")
            wait = found(store, id).run_at - clock.now()
            waits.append(round(wait / timedelta(milliseconds=1)))
            clock.advance(wait.total_seconds())
        return waits

    def test_it_grows_by_the_factor_up_to_the_maximum(self, store: Store, clock: TestClock) -> None:
        define(store, max_attempts=20, backoff={"base_ms": 5_000, "factor": 4, "max_ms": HOUR, "jitter": 0})

        assert self.waits(store, clock, 7) == [5_000, 20_000, 80_000, 320_000, 1_280_000, HOUR, HOUR]

    def test_a_factor_of_one_and_a_half(self, store: Store, clock: TestClock) -> None:
        define(store, backoff={"base_ms": 1_000, "factor": 1.5, "jitter": 0})

        assert self.waits(store, clock, 4) == [1_000, 1_500, 2_250, 3_375]

    def test_hundreds_of_attempts_do_not_overflow(self, store: Store, sql: Any, clock: TestClock) -> None:
        define(store, max_attempts=100_000, backoff={"base_ms": 1_000, "factor": 10, "max_ms": DAY, "jitter": 0})
        id = enqueue(store)
        sql("UPDATE jobs SET attempts = 50000")
        perform(store, "failed")

        assert found(store, id).run_at - clock.now() == timedelta(days=1)

    def test_it_is_jittered_within_its_bounds_and_not_always_the_same(self, store: Store, clock: TestClock) -> None:
        define(store, backoff={"base_ms": 10_000, "jitter": 0.2})
        enqueue_all(store, 50)
        jobs = claim(store, 50)
        store.settle_many([Outcome(job.id, job.token, "failed") for job in jobs])
        waits = [(found(store, job.id).run_at - clock.now()) / timedelta(seconds=1) for job in jobs]

        assert all(8 <= wait <= 12 for wait in waits)
        assert min(waits) < 10 < max(waits)

    def test_the_jitter_comes_after_the_maximum(self, store: Store, clock: TestClock) -> None:
        define(store, backoff={"base_ms": HOUR, "max_ms": 10_000, "jitter": 0.2})
        enqueue_all(store, 50)
        jobs = claim(store, 50)
        store.settle_many([Outcome(job.id, job.token, "failed") for job in jobs])
        waits = [(found(store, job.id).run_at - clock.now()) / timedelta(seconds=1) for job in jobs]

        assert all(8 <= wait <= 12 for wait in waits)
        assert min(waits) < 10 < max(waits)

    def test_retry_in_is_exact(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        settle(store, job, "failed", retry_in_ms=7 * HOUR)

        assert found(store, job.id).run_at == clock.now() + timedelta(hours=7)

    def test_retry_in_nothing_is_at_once(self, store: Store, job: ClaimedJob) -> None:
        settle(store, job, "failed", retry_in_ms=0)

        assert claim_one(store).attempt == 2


class TestReleased:
    def test_it_is_pending_again_and_the_attempt_uncounted(self, store: Store, job: ClaimedJob) -> None:
        assert settle(store, job, "released") == Settled(job.id, accepted=True, state="pending")
        record = found(store, job.id)

        assert (record.attempts, record.worker, record.lease_until) == (0, None, None)
        assert store.failures(job.id) == []
        assert claim_one(store).attempt == 1

    def test_its_place_in_the_order_is_kept(self, store: Store, clock: TestClock) -> None:
        define(store)
        first = enqueue(store)
        clock.advance(1)
        enqueue(store)
        before = found(store, first).run_at
        settle(store, claim_one(store), "released")

        assert found(store, first).run_at == before
        assert claim_one(store).id == first


class TestSnoozed:
    def test_it_is_put_off_and_the_attempt_uncounted(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        assert settle(store, job, "snoozed", delay_ms=HOUR) == Settled(job.id, accepted=True, state="scheduled")
        record = found(store, job.id)

        assert (record.attempts, record.run_at) == (0, clock.now() + timedelta(hours=1))
        assert store.failures(job.id) == []

    def test_it_can_go_on_for_ever(self, store: Store) -> None:
        define(store, max_attempts=1)
        enqueue(store)
        for _ in range(5):
            job = claim_one(store)
            assert job.attempt == 1
            settle(store, job, "snoozed", delay_ms=0)

    def test_a_delay_is_needed(self, store: Store, job: ClaimedJob) -> None:
        with refused(store, InvalidOption, "delay_ms"):
            settle(store, job, "snoozed")

        assert state(store, job.id) == "running"


class TestCancelled:
    def test_it_is_cancelled(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        assert settle(store, job, "cancelled", message="stopped") == Settled(job.id, accepted=True, state="cancelled")
        record = found(store, job.id)

        assert (record.finished_at, record.dead_reason) == (clock.now(), None)

    @pytest.mark.parametrize(
        ("outcome", "detail"),
        [
            ("failed", {"message": "interrupted"}),
            ("failed", {"permanent": True}),
            ("failed", {"retry_in_ms": 0}),
            ("released", {}),
            ("snoozed", {"delay_ms": 0}),
            ("cancelled", {}),
        ],
    )
    def test_a_job_that_is_to_be_cancelled_never_runs_again(
        self, store: Store, job: ClaimedJob, outcome: Any, detail: dict[str, Any]
    ) -> None:
        store.cancel({"id": str(job.id)})

        assert settle(store, job, outcome, **detail) == Settled(job.id, accepted=True, state="cancelled")
        assert found(store, job.id).dead_reason is None
        assert len(store.failures(job.id)) == (outcome == "failed")
        assert claim(store) == []

    def test_a_job_that_was_to_be_cancelled_but_got_done_is_done(self, store: Store, job: ClaimedJob) -> None:
        store.cancel({"id": str(job.id)})

        assert settle(store, job).state == "done"


class TestWhoMaySettle:
    @each(("outcome", "detail", "becomes"), OUTCOMES)
    def test_a_token_that_does_not_hold_the_job_changes_nothing(
        self, store: Store, job: ClaimedJob, outcome: OutcomeKind, detail: dict[str, Any], becomes: str
    ) -> None:
        before = found(store, job.id)

        assert store.settle(job.id, uuid4(), outcome, detail) == Settled(job.id, accepted=False, state="running")
        assert found(store, job.id) == before
        assert store.failures(job.id) == []

    def test_a_job_that_waits_is_held_by_nobody(self, store: Store) -> None:
        define(store)
        id = enqueue(store)

        assert store.settle(id, uuid4(), "done", {}) == Settled(id, accepted=False, state="pending")

    @each(("outcome", "detail", "becomes"), OUTCOMES)
    def test_a_row_that_is_gone_has_no_state(
        self, store: Store, outcome: OutcomeKind, detail: dict[str, Any], becomes: str
    ) -> None:
        nowhere = uuid4()

        assert store.settle(nowhere, uuid4(), outcome, detail) == Settled(nowhere, accepted=False, state=None)

    def test_a_holder_whose_lease_is_over_but_not_rescued_may_still_settle(
        self, store: Store, clock: TestClock, job: ClaimedJob
    ) -> None:
        clock.advance(3_600)

        assert settle(store, job).accepted

    def test_a_holder_that_was_rescued_may_not(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        clock.advance(301)
        store.sweep()

        assert settle(store, job) == Settled(job.id, accepted=False, state="scheduled")

    def test_the_next_holder_is_not_disturbed_by_the_last(self, store: Store, clock: TestClock) -> None:
        define(store, backoff={"base_ms": 0})
        enqueue(store)
        late = claim_one(store)
        clock.advance(301)
        store.sweep()
        current = claim_one(store, worker="worker-2")

        assert settle(store, late) == Settled(late.id, accepted=False, state="running")
        assert settle(store, current).state == "done"


class TestTheSameOutcomeAgain:
    @pytest.mark.parametrize(("outcome", "detail", "becomes"), OUTCOMES)
    def test_is_accepted_and_changes_nothing(
        self, store: Store, clock: TestClock, outcome: OutcomeKind, detail: dict[str, Any], becomes: str
    ) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        first = settle(store, job, outcome, **detail)
        before, failures = found(store, job.id), store.failures(job.id)
        clock.advance(5)

        assert first == Settled(job.id, accepted=True, state=becomes)  # type: ignore[arg-type]
        assert settle(store, job, outcome, **detail) == first
        assert (found(store, job.id), store.failures(job.id)) == (before, failures)

    @pytest.mark.parametrize(("outcome", "detail", "becomes"), OUTCOMES)
    def test_another_outcome_afterwards_is_not_accepted(
        self, store: Store, outcome: OutcomeKind, detail: dict[str, Any], becomes: str
    ) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        settle(store, job, outcome, **detail)
        before = found(store, job.id)

        for other, its_detail, _ in OUTCOMES:
            if other != outcome:
                answer = settle(store, job, other, **its_detail)
                assert answer == Settled(job.id, accepted=False, state=becomes)  # type: ignore[arg-type]
        assert found(store, job.id) == before

    def test_a_failure_told_again_while_another_holds_the_job_is_accepted(self, store: Store) -> None:
        define(store, backoff={"base_ms": 0})
        enqueue(store)
        first = claim_one(store)
        settle(store, first, "failed", message="no")
        second = claim_one(store)

        assert settle(store, first, "failed", message="no").accepted
        assert (found(store, second.id).state, len(store.failures(second.id))) == ("running", 1)
        assert settle(store, second).state == "done"

    def test_a_failure_by_a_token_that_met_its_job_before_is_settled(self, store: Store, clock: TestClock) -> None:
        """A claim that is repeated after its jobs were rescued may get one of them again."""
        define(store)
        enqueue(store)
        asked = request()
        store.claim(asked)
        clock.advance(600)
        store.sweep()
        clock.advance(7_200)

        [job] = store.claim(asked)

        assert job.attempt == 2
        assert settle(store, job, "failed").state == "scheduled"
        clock.advance(7_200)
        store.claim(asked)
        clock.advance(7_200)
        assert store.sweep().rescued == 1

    def test_of_a_row_not_kept_it_is_gone(self, store: Store) -> None:
        define(store, keep_done_ms=0)
        enqueue(store)
        job = claim_one(store)
        settle(store, job)

        assert settle(store, job) == Settled(job.id, accepted=False, state=None)


class TestMany:
    def test_each_is_answered_in_its_order(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 6)
        jobs = claim(store, 6)
        outcomes = [
            Outcome(job.id, job.token, outcome, detail)
            for job, (outcome, detail, _) in zip(jobs, OUTCOMES, strict=True)
        ]
        stale, nowhere = Outcome(jobs[0].id, uuid4(), "done"), Outcome(uuid4(), uuid4(), "done")

        answers = store.settle_many([*outcomes, nowhere])
        assert answers == [
            *(
                Settled(job.id, accepted=True, state=becomes)  # type: ignore[arg-type]
                for job, (_, _, becomes) in zip(jobs, OUTCOMES, strict=True)
            ),
            Settled(nowhere.id, accepted=False, state=None),
        ]
        assert store.settle_many([stale]) == [Settled(jobs[0].id, accepted=False, state="done")]

    def test_a_whole_call_can_be_sent_again(self, store: Store) -> None:
        define(store)
        batch_id = store.open_batch({})
        store.enqueue_many([NewJob("work", options={"batch_id": str(batch_id)})] * 20)
        store.seal_batch(batch_id)
        outcomes = [
            Outcome(job.id, job.token, "failed" if n % 2 else "done", {"permanent": True} if n % 2 else {})
            for n, job in enumerate(claim(store, 20))
        ]

        assert store.settle_many(outcomes) == store.settle_many(outcomes)
        batch = store.batch(batch_id)
        assert batch is not None
        assert (batch.done, batch.failed) == (20, 10)

    def test_the_same_outcome_twice_in_one_call_counts_once(self, store: Store, job: ClaimedJob) -> None:
        outcome = Outcome(job.id, job.token, "failed", {"message": "no"})

        assert [answer.accepted for answer in store.settle_many([outcome, outcome])] == [True, True]
        assert len(store.failures(job.id)) == 1
        assert found(store, job.id).attempts == 1

    @each(
        ("first", "second"),
        [
            ("done", "failed"),
            ("failed", "done"),
            ("released", "failed"),
            ("cancelled", "failed"),
            ("failed", "released"),
        ],
    )
    def test_of_two_outcomes_of_one_attempt_the_first_counts(
        self, store: Store, first: OutcomeKind, second: OutcomeKind
    ) -> None:
        define(store)
        enqueue_all(store, 2)
        job, other = claim(store, 2)
        outcomes = [
            Outcome(job.id, job.token, first, {}),
            Outcome(job.id, job.token, second, {}),
            Outcome(other.id, other.token, "failed", {"permanent": True}),
        ]

        assert [answer.accepted for answer in store.settle_many(outcomes)] == [True, False, True]
        assert [answer.accepted for answer in store.settle_many(outcomes)] == [True, False, True]
        assert len(store.failures(job.id)) == (first == "failed")
        assert len(store.failures(other.id)) == 1
        store.discard({"id": str(job.id)})

    def test_none_is_nothing(self, store: Store) -> None:
        assert store.settle_many([]) == []

    def test_a_thousand_in_one_call(self, store: Store) -> None:
        define(store, concurrency={"limit": 1_000})
        enqueue_all(store, 1_000)
        store.settle_many([Outcome(job.id, job.token, "done") for job in claim(store, 1_000)])

        assert store.count({"state": "done"}) == 1_000
        assert all(row.job_id is None for row in store.limits())

    def test_a_refused_outcome_among_others_settles_none(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 2)
        good, bad = claim(store, 2)

        with refused(store, InvalidOption, "retry_in_ms"):
            store.settle_many(
                [Outcome(good.id, good.token, "done"), Outcome(bad.id, bad.token, "failed", {"retry_in_ms": -1})]
            )

        assert store.count({"state": "running"}) == 2


class TestRefusals:
    @each(
        ("outcome", "detail", "named"),
        [
            ("finished", {}, "finished"),
            ("failed", {"mesage": "x"}, "mesage"),
            ("failed", {"kind": "bad luck"}, "kind"),
            ("failed", {"permanent": "yes"}, "permanent"),
            ("failed", {"retry_in_ms": -1}, "retry_in_ms"),
            ("failed", {"retry_in_ms": "1h"}, "retry_in_ms"),
            ("failed", {"message": 5}, "message"),
            ("snoozed", {"delay_ms": -1}, "delay_ms"),
            ("snoozed", {"delay_ms": 0.5}, "delay_ms"),
            ("snoozed", {"delay": 5}, "delay"),
        ],
    )
    def test_an_outcome_or_detail_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
        self, store: Store, job: ClaimedJob, outcome: Any, detail: dict[str, Any], named: str
    ) -> None:
        with refused(store, InvalidOption, named):
            settle(store, job, outcome, **detail)

        assert state(store, job.id) == "running"
        assert store.failures(job.id) == []


class TestWhatGoesWithIt:
    """The slot, the unique key and the batch are settled in the same transaction."""

    @pytest.mark.parametrize(("outcome", "detail", "becomes"), OUTCOMES)
    def test_slot_key_and_batch(self, store: Store, outcome: OutcomeKind, detail: dict[str, Any], becomes: str) -> None:
        define(store, concurrency={"limit": 1})
        batch_id = store.open_batch({})
        id = enqueue(store, unique_key="k", batch_id=str(batch_id))
        store.seal_batch(batch_id)
        perform(store, outcome, **detail)
        ended = becomes in ("done", "dead", "cancelled")
        batch = store.batch(batch_id)

        assert all(row.job_id is None for row in store.limits())
        assert (enqueue(store, unique_key="k") != id) == ended
        assert batch is not None
        assert (batch.done, batch.finished_at is not None) == (int(ended), ended)

    def test_a_message_of_any_length_is_taken(self, store: Store, job: ClaimedJob) -> None:
        settle(store, job, "failed", message="m" * 100_000, stack="s" * 1_000_000, type="t" * 500)

        [failure] = store.failures(job.id)
        assert (failure.message or "").startswith("mmm")

    def test_a_message_may_hold_anything(self, store: Store, job: ClaimedJob) -> None:
        settle(store, job, "failed", message="a\x00b \ud800 \"'\\ \n", stack="%s\x00")

        assert len(store.failures(job.id)) == 1
        assert state(store, job.id) == "scheduled"

    def test_the_time_it_took_is_kept(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        clock.advance(1.5)
        settle(store, job)
        [timing] = store.timings()

        assert (timing.runs, timing.min_ms, timing.max_ms) == (1, 1_500, 1_500)
        assert found(store, job.id).finished_at == job.lease_until - timedelta(milliseconds=300 * SECOND - 1_500)
