"""The contract against a model of it: whatever is called in whatever order, the database and plain Python agree.

Hypothesis makes up the calls, and boils a disagreement down to the shortest story that shows it. The model keeps
jobs, keys, batches and the clock; what the contract leaves open (which bucket is served first) it checks instead of
predicting.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from invariants import assert_invariants
from pyjobs.errors import BatchClosed, JobRunning, UniqueKeyHeld
from pyjobs.records import ClaimedJob, ClaimRequest, Enqueued, Held, NewJob, Outcome, OutcomeKind, State
from pyjobs.store.base import Store
from pyjobs.testing import TestClock

pytestmark = pytest.mark.slow

ENDED = ("done", "dead", "cancelled")
LEASE = timedelta(seconds=300)
BACKOFF = timedelta(seconds=10)
ATTEMPTS = 2
QUEUES = ("a", "b")
NAMES = ("free", "bounded", "brief", "after")
LIMIT = 2
OUTCOMES: tuple[OutcomeKind, ...] = ("done", "done", "failed", "released", "snoozed", "cancelled")
TABLES = (
    "jobs_failures",
    "jobs_slots",
    "jobs_keys",
    "jobs",
    "jobs_batches",
    "jobs_schedules",
    "jobs_definitions",
    "jobs_groups",
    "jobs_workers",
    "jobs_paused",
)


@dataclass
class Job:
    id: UUID
    name: str
    queue: str
    priority: int
    run_at: datetime
    state: State
    bucket: str | None
    key: str | None
    kept: str
    batch: UUID | None
    attempts: int = 0
    token: UUID | None = None
    lease_until: datetime | None = None
    cancelling: bool = False

    @property
    def place(self) -> tuple[int, datetime, UUID]:
        return self.priority, self.run_at, self.id


@dataclass
class Batch:
    done: int = 0
    failed: int = 0
    total: int | None = None
    finished: bool = False


@dataclass
class Model:
    """What the contract says is there."""

    now: datetime
    jobs: dict[UUID, Job] = field(default_factory=dict)
    keys: dict[str, Job] = field(default_factory=dict)
    batches: dict[UUID, Batch] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)

    def promote(self) -> int:
        due = [job for job in self.jobs.values() if job.state == "scheduled" and job.run_at <= self.now]
        for job in due:
            job.state = "pending"
        return len(due)

    def claimable(self, queues: tuple[str, ...] | None, names: tuple[str, ...] | None) -> list[Job]:
        wanted = [
            job
            for job in self.jobs.values()
            if job.state == "pending"
            and job.queue not in self.paused
            and (queues is None or job.queue in queues)
            and (names is None or job.name in names)
        ]
        return sorted(wanted, key=lambda job: job.place)

    def room(self, bucket: str) -> int:
        return LIMIT - sum(job.bucket == bucket for job in self.jobs.values() if job.state == "running")

    def end(self, job: Job, state: State) -> None:
        self.let_go(job)
        job.state = state
        if job.key is not None and job.kept == "active":
            self.drop_key(job)
        if job.batch is not None:
            batch = self.batches[job.batch]
            batch.done += 1
            batch.failed += state != "done"
            self.advance(batch)
        if state == "done" and job.name == "brief":
            self.remove(job)

    def wait(self, job: Job, state: State, run_at: datetime) -> None:
        self.let_go(job)
        job.state, job.run_at = state, run_at

    def let_go(self, job: Job) -> None:
        job.token = job.lease_until = None

    def fail(self, job: Job) -> None:
        if job.cancelling:
            self.end(job, "cancelled")
        elif job.attempts == ATTEMPTS:
            self.end(job, "dead")
        else:
            self.wait(job, "scheduled", self.now + BACKOFF)

    def advance(self, batch: Batch) -> None:
        if batch.total == batch.done:
            batch.finished = True

    def remove(self, job: Job) -> None:
        """The row goes: a key kept for the row goes with it, and what waited counts as failed in its batch."""
        if job.key is not None and job.kept != "ever":
            self.drop_key(job)
        if job.batch is not None and job.state not in ENDED:
            batch = self.batches[job.batch]
            batch.done += 1
            batch.failed += 1
            self.advance(batch)
        del self.jobs[job.id]

    def drop_key(self, job: Job) -> None:
        if job.key is not None and self.keys.get(job.key) is job:
            del self.keys[job.key]

    def put_back(self, job: Job, delay: int) -> None:
        if job.key is not None:
            self.keys[job.key] = job
        if job.batch is not None and job.state in ENDED:
            batch = self.batches[job.batch]
            batch.done -= 1
            batch.failed -= job.state != "done"
        job.state, job.run_at = "scheduled" if delay else "pending", self.now + timedelta(seconds=delay)
        job.attempts, job.cancelling = 0, False

    def callbacks(self) -> int:
        return sum(batch.finished for batch in self.batches.values())


class Contract(RuleBasedStateMachine):
    """Calls of the contract, each checked against the model, and all that always holds after each."""

    def __init__(self, store: Store, clock: TestClock, sql: Any) -> None:
        super().__init__()
        self.store, self.clock, self.sql = store, clock, sql
        for table in TABLES:
            sql(f"DELETE FROM {table}")
        backoff = {"base_ms": 10_000, "factor": 1, "jitter": 0}
        for name in NAMES:
            store.define(name, {"queue": "a", "max_attempts": ATTEMPTS, "backoff": backoff})
        store.define("brief", {"queue": "a", "max_attempts": ATTEMPTS, "backoff": backoff, "keep_done_ms": 0})
        bounded = {"limit": LIMIT, "key": "k"}
        store.define("bounded", {"queue": "b", "max_attempts": ATTEMPTS, "backoff": backoff, "concurrency": bounded})
        self.model = Model(clock.now())
        self.numbers = itertools.count(1)
        self.claims: list[ClaimedJob] = []

    ids: Bundle[UUID] = Bundle("ids")
    batches: Bundle[UUID] = Bundle("batches")

    # Producing

    @rule(target=batches)
    def open_batch(self) -> UUID:
        id = self.new_id()
        assert self.store.open_batch({"id": str(id), "callback": {"name": "after"}}) == id
        self.model.batches[id] = Batch()
        return id

    @rule(id=batches)
    def seal_batch(self, id: UUID) -> None:
        batch = self.model.batches[id]
        if batch.total is None:
            members = [job for job in self.model.jobs.values() if job.batch == id and job.state not in ENDED]
            batch.total = len(members) + batch.done
            self.model.advance(batch)
        record = self.store.seal_batch(id)
        self.adopt_callbacks()

        assert (record.total, record.done, record.failed) == (batch.total, batch.done, batch.failed)
        assert (record.finished_at is not None) == batch.finished

    @rule(
        target=ids,
        name=st.sampled_from(NAMES[:3]),
        k=st.sampled_from(["1", '"x"', "null"]),
        delay=st.sampled_from([0, 0, 5, 400]),
        priority=st.integers(-1, 1),
        key=st.sampled_from([None, None, "k1", "k2"]),
        kept=st.sampled_from(["active", "row", "ever"]),
        batch=st.none() | batches,
    )
    def enqueue(
        self, name: str, k: str, delay: int, priority: int, key: str | None, kept: str, batch: UUID | None
    ) -> UUID:
        options: dict[str, Any] = {"delay_ms": delay * 1_000, "priority": priority}
        if key:
            options |= {"unique_key": key, "unique_for": kept}
        if batch:
            options["batch_id"] = str(batch)
        id = self.new_id()
        new = NewJob(name, f'{{"k": {k}}}', options, id)
        holder = self.model.keys.get(key) if key else None
        if batch and self.model.batches[batch].total is not None and holder is None:
            with pytest.raises(BatchClosed):
                self.store.enqueue_many([new])
            return id
        if holder is not None:
            if not batch or self.model.batches[batch].total is None:
                assert self.store.enqueue_many([new]) == [Enqueued(holder.id, inserted=False)]
            return holder.id
        assert self.store.enqueue_many([new]) == [Enqueued(id, inserted=True)]
        assert self.store.enqueue_many([new]) == [Enqueued(id, inserted=False)]
        value = k.strip('"')
        job = Job(
            id=id,
            name=name,
            queue="b" if name == "bounded" else "a",
            priority=priority,
            run_at=self.model.now + timedelta(seconds=delay),
            state="scheduled" if delay else "pending",
            bucket=f"bounded:{value}" if name == "bounded" else None,
            key=key,
            kept=kept,
            batch=batch,
        )
        self.model.jobs[job.id] = job
        if key:
            self.model.keys[key] = job
        return job.id

    # Working

    @rule(
        max_jobs=st.integers(1, 5),
        queues=st.none() | st.sampled_from([("a",), ("b",), ("a", "b")]),
        names=st.none() | st.sampled_from([("free",), ("bounded",), ("free", "bounded")]),
    )
    def claim(self, max_jobs: int, queues: tuple[str, ...] | None, names: tuple[str, ...] | None) -> None:
        self.model.promote()
        eligible = self.model.claimable(queues, names)
        unlimited = [job for job in eligible if job.bucket is None]
        waiting = Counter(job.bucket for job in eligible if job.bucket is not None)
        room = {bucket: self.model.room(bucket) for bucket in waiting}
        request = ClaimRequest("w", uuid4(), queues, names, max_jobs)

        claimed = self.store.claim(request)

        took = [self.model.jobs[job.id] for job in claimed]
        assert len({job.id for job in took}) == len(took)
        assert all(job in eligible for job in took)
        assert len(took) == min(max_jobs, len(unlimited) + sum(min(waiting[each], room[each]) for each in waiting))
        assert [job for job in took if job.bucket is None] == unlimited[: sum(job.bucket is None for job in took)]
        assert [job.place for job in took] == sorted(job.place for job in took)
        for bucket, number in Counter(job.bucket for job in took if job.bucket is not None).items():
            assert number <= room[bucket]
            ours = [job for job in eligible if job.bucket == bucket]
            assert [job for job in took if job.bucket == bucket] == ours[:number]
        left = [job for job in eligible if job not in took and (job.bucket is None or has_room(job, took, room))]
        assert not left or max(job.priority for job in took) <= min(job.priority for job in left)
        for job, answer in zip(took, claimed, strict=True):
            job.state, job.token, job.lease_until = "running", answer.token, self.model.now + LEASE
            job.attempts += 1
            assert (answer.attempt, answer.lease_until) == (job.attempts, job.lease_until)
        assert self.store.claim(request) == claimed or not claimed
        self.claims += claimed

    @rule(
        which=st.integers(0, 9),
        outcome=st.sampled_from(OUTCOMES),
        times=st.integers(1, 2),
    )
    def settle(self, which: int, outcome: OutcomeKind, times: int) -> None:
        if not self.claims:
            return
        claimed = self.claims.pop(which % len(self.claims))
        job = self.model.jobs.get(claimed.id)
        held = job is not None and job.token == claimed.token
        if job is not None and held:
            self.settled(job, outcome)
        expected = self.model.jobs[claimed.id].state if claimed.id in self.model.jobs else None
        for time in range(times):
            answer = self.store.settle(claimed.id, claimed.token, outcome, detail(outcome))
            gone_at_once = held and time == 0 and expected is None
            assert answer.state == ("done" if gone_at_once else expected)
            if held:
                assert answer.accepted == (expected is not None or time == 0)
            elif outcome != "failed":
                assert not answer.accepted
        self.adopt_callbacks()

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=2, max_size=5))
    def settle_many(self, outcomes: list[OutcomeKind]) -> None:
        told: list[tuple[Outcome, State | None]] = []
        for kind in outcomes[: len(self.claims)]:
            claimed = self.claims.pop(0)
            job = self.model.jobs.get(claimed.id)
            becomes: State | None = None
            if job is not None and job.token == claimed.token:
                self.settled(job, kind)
                becomes = job.state
            told.append((Outcome(claimed.id, claimed.token, kind, detail(kind)), becomes))

        answers = self.store.settle_many([outcome for outcome, _ in told])

        for (outcome, becomes), answer in zip(told, answers, strict=True):
            assert answer.id == outcome.id
            if becomes is not None:
                assert (answer.accepted, answer.state) == (True, becomes)
            elif outcome.outcome != "failed":
                assert not answer.accepted
        self.adopt_callbacks()

    def settled(self, job: Job, outcome: str) -> None:
        match outcome:
            case "done":
                self.model.end(job, "done")
            case "cancelled":
                self.model.end(job, "cancelled")
            case "failed":
                self.model.fail(job)
            case _ if job.cancelling:
                job.attempts -= 1
                self.model.end(job, "cancelled")
            case "released":
                job.attempts -= 1
                self.model.wait(job, "pending", job.run_at)
            case "snoozed":
                job.attempts -= 1
                self.model.wait(job, "scheduled", self.model.now + timedelta(seconds=7))

    @rule(which=st.integers(0, 9))
    def heartbeat(self, which: int) -> None:
        if not self.claims:
            return
        claimed = self.claims[which % len(self.claims)]
        signals = self.store.heartbeat("w", [Held(claimed.id, claimed.token)])
        job = self.model.jobs.get(claimed.id)
        if job is None or job.token != claimed.token:
            assert [attention.signal for attention in signals] == ["lost"]
        else:
            assert [attention.signal for attention in signals] == ["cancel"] * job.cancelling
            job.lease_until = self.model.now + LEASE

    @rule(seconds=st.sampled_from([1, 10, 120, 301]))
    def advance(self, seconds: int) -> None:
        self.model.now = self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        promoted = self.model.promote()
        over = [
            job
            for job in self.model.jobs.values()
            if job.state == "running" and job.lease_until is not None and job.lease_until < self.model.now
        ]
        for job in over:
            self.model.fail(job)
        old = [job for job in self.model.jobs.values() if job.state == "cancelled" and job.name == "brief"]
        for job in old:
            self.model.remove(job)
        swept = self.store.sweep()
        self.adopt_callbacks()

        assert swept.promoted == promoted
        assert swept.rescued + swept.buried == len(over)
        assert (swept.slots_freed, swept.batches_finished, swept.pruned) == (0, 0, len(old))

    # Operating

    @rule(id=ids, delay=st.sampled_from([0, 60]))
    def retry(self, id: UUID, delay: int) -> None:
        job = self.model.jobs.get(id)
        filter = {"id": str(id)}
        if job is not None and job.state == "running":
            with pytest.raises(JobRunning):
                self.store.retry(filter)
        elif job is not None and job.key is not None and self.model.keys.get(job.key, job) is not job:
            with pytest.raises(UniqueKeyHeld):
                self.store.retry(filter)
        elif job is None or job.state == "pending":
            assert self.store.retry(filter) == 0
        else:
            self.model.put_back(job, delay)
            assert self.store.retry(filter, {"delay_ms": delay * 1_000}) == 1

    @rule(id=ids)
    def cancel(self, id: UUID) -> None:
        job = self.model.jobs.get(id)
        if job is not None and job.state in ("scheduled", "pending"):
            self.model.end(job, "cancelled")
        elif job is not None and job.state == "running":
            job.cancelling = True
        self.store.cancel({"id": str(id)})
        self.adopt_callbacks()

    @rule(id=ids)
    def discard(self, id: UUID) -> None:
        job = self.model.jobs.get(id)
        if job is not None and job.state == "running":
            with pytest.raises(JobRunning):
                self.store.discard({"id": str(id)})
            return
        if job is not None:
            self.model.remove(job)
        assert self.store.discard({"id": str(id)}) == (job is not None)
        self.adopt_callbacks()

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        self.model.paused.add(queue)
        self.store.pause_queue(queue)

    @precondition(lambda self: self.model.paused)
    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        self.model.paused.discard(queue)
        self.store.resume_queue(queue)

    def new_id(self) -> UUID:
        """Ids decide between equals: they are the same in each run, so that a story can be told again."""
        return UUID(int=next(self.numbers))

    def adopt_callbacks(self) -> None:
        """The database made the ids of the callbacks: there are as many as finished batches, and they are jobs now."""
        records = self.store.jobs({"name": "after"}, limit=1_000)
        assert len(records) == self.model.callbacks()
        for record in records:
            if record.id not in self.model.jobs:
                self.model.jobs[record.id] = Job(
                    id=record.id,
                    name="after",
                    queue="a",
                    priority=0,
                    run_at=self.model.now,
                    state="pending",
                    bucket=None,
                    key=None,
                    kept="active",
                    batch=None,
                )

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        rows = {job.id: job for job in self.store.jobs(limit=1_000)}
        assert set(rows) == set(self.model.jobs)
        for job in self.model.jobs.values():
            row = rows[job.id]
            assert (row.state, row.attempts, row.run_at) == (job.state, job.attempts, job.run_at)
            assert (row.bucket, row.lease_until) == (job.bucket, job.lease_until)
            assert row.state != "running" or (row.cancel_at is not None) == job.cancelling

    @invariant()
    def the_batches_are_those_of_the_model(self) -> None:
        for id, batch in self.model.batches.items():
            record = self.store.batch(id)
            assert record is not None
            assert (record.total, record.done, record.failed) == (batch.total, batch.done, batch.failed)
            assert (record.finished_at is not None) == batch.finished

    @invariant()
    def what_always_holds_holds(self) -> None:
        assert_invariants(self.sql)


def detail(outcome: OutcomeKind) -> dict[str, Any]:
    return {"delay_ms": 7_000} if outcome == "snoozed" else {}


def has_room(job: Job, took: list[Job], room: dict[str, int]) -> bool:
    assert job.bucket is not None
    return sum(other.bucket == job.bucket for other in took) < room[job.bucket]


def test_the_database_does_what_the_model_does(store: Store, clock: TestClock, sql: Any) -> None:
    run_state_machine_as_test(
        lambda: Contract(store, clock, sql),  # type: ignore[arg-type]
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
