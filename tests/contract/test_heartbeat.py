"""heartbeat.sql: keeping what is held, hearing what became of it, and being seen."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import pytest

from pyjobs.errors import BadName, InvalidOption
from pyjobs.records import Attention, ClaimedJob, Held
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from servers.databases import Database
from steps import MINUTE, claim, claim_one, define, each, enqueue, enqueue_all, found, refused, settle, state


def held(*jobs: ClaimedJob) -> list[Held]:
    return [Held(job.id, job.token) for job in jobs]


@pytest.fixture
def job(store: Store) -> ClaimedJob:
    define(store)
    enqueue(store)
    return claim_one(store)


class TestLeases:
    def test_a_named_claim_is_extended(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        clock.advance(200)

        assert store.heartbeat("worker-1", held(job), lease_ms=MINUTE) == []
        assert found(store, job.id).lease_until == clock.now() + timedelta(minutes=1)

    def test_a_claim_that_is_not_named_expires(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue_all(store, 2)
        token = uuid4()
        named, unnamed = claim(store, 2, token=token)
        clock.advance(200)
        store.heartbeat("worker-1", held(named))
        clock.advance(200)
        store.sweep()

        assert (state(store, named.id), state(store, unnamed.id)) == ("running", "scheduled")

    @pytest.mark.databases("postgresql", "mysql")
    def test_a_row_that_somebody_holds_costs_no_other_its_lease(
        self, store: Store, clock: TestClock, database: Database
    ) -> None:
        define(store)
        enqueue_all(store, 3)
        jobs = claim(store, 3)
        clock.advance(200)

        with closing(database.connect()) as other:
            other.execute("BEGIN")
            other.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", (str(jobs[1].id),))
            beating = threading.Thread(target=store.heartbeat, args=("worker-1", held(*jobs)), daemon=True)
            beating.start()
            beating.join(10)
            assert not beating.is_alive()
            clock.advance(200)
            assert store.sweep().rescued == 0
            other.execute("COMMIT")

        assert store.sweep().rescued == 1
        assert [state(store, job.id) for job in jobs] == ["running", "scheduled", "running"]

    def test_a_lease_that_is_over_but_not_rescued_yet_is_taken_up_again(
        self, store: Store, clock: TestClock, job: ClaimedJob
    ) -> None:
        clock.advance(301)

        assert store.heartbeat("worker-1", held(job)) == []
        assert store.sweep().rescued == 0

    def test_five_hundred_at_once(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue_all(store, 500)
        jobs = claim(store, 500)
        clock.advance(299)

        assert store.heartbeat("worker-1", held(*jobs)) == []
        clock.advance(299)
        assert store.sweep().rescued == 0


class TestSignals:
    def test_cancel_is_told_and_the_lease_extended(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        store.cancel({"id": str(job.id)})
        clock.advance(10)

        assert store.heartbeat("worker-1", held(job)) == [Attention(job.id, "cancel")]
        assert found(store, job.id).lease_until == clock.now() + timedelta(minutes=5)

    def test_it_is_told_each_time(self, store: Store, job: ClaimedJob) -> None:
        store.cancel({"id": str(job.id)})

        assert [store.heartbeat("worker-1", held(job)) for _ in range(2)] == [[Attention(job.id, "cancel")]] * 2

    def test_a_job_that_was_rescued_is_lost(self, store: Store, clock: TestClock, job: ClaimedJob) -> None:
        clock.advance(301)
        store.sweep()

        assert store.heartbeat("worker-1", held(job)) == [Attention(job.id, "lost")]
        assert state(store, job.id) == "scheduled"

    def test_a_job_that_another_holds_now_is_lost(self, store: Store, clock: TestClock) -> None:
        define(store, backoff={"base_ms": 0})
        enqueue(store)
        first = claim_one(store)
        clock.advance(301)
        store.sweep()
        second = claim_one(store, worker="worker-2")
        clock.advance(1)

        assert store.heartbeat("worker-1", held(first)) == [Attention(first.id, "lost")]
        assert found(store, second.id).lease_until == second.lease_until

    def test_a_job_that_is_settled_or_gone_is_lost(self, store: Store, job: ClaimedJob) -> None:
        settle(store, job)
        nowhere = Held(uuid4(), uuid4())

        signals = store.heartbeat("worker-1", [*held(job), nowhere])

        assert {(attention.id, attention.signal) for attention in signals} == {(job.id, "lost"), (nowhere.id, "lost")}

    def test_only_what_needs_attention_is_told(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 3)
        jobs = claim(store, 3)
        store.cancel({"id": str(jobs[1].id)})

        assert store.heartbeat("worker-1", held(*jobs)) == [Attention(jobs[1].id, "cancel")]


class TestWorkers:
    def test_a_worker_is_recorded_as_it_describes_itself(self, store: Store, clock: TestClock) -> None:
        info = {"host": "h", "pid": 7, "version": "0.1", "queues": ["a"], "names": None, "concurrency": 10}
        store.heartbeat("worker-1", [], info=info, lease_ms=MINUTE)
        [worker] = store.workers()

        assert (worker.id, json.loads(worker.info)) == ("worker-1", info)
        assert worker.started_at == worker.seen_at == clock.now()
        assert worker.live_until == clock.now() + timedelta(minutes=1)
        assert (worker.live, worker.running) == (True, 0)

    def test_it_is_seen_again_and_keeps_its_start(self, store: Store, clock: TestClock) -> None:
        start = clock.now()
        store.heartbeat("worker-1", [], info={"pid": 1})
        clock.advance(10)
        store.heartbeat("worker-1", [], info={"pid": 2})
        [worker] = store.workers()

        assert (worker.started_at, worker.seen_at) == (start, clock.now())
        assert json.loads(worker.info) == {"pid": 2}

    def test_it_is_live_until_its_lease_is_over(self, store: Store, clock: TestClock) -> None:
        store.heartbeat("worker-1", [], lease_ms=MINUTE)
        clock.advance(59)
        assert store.workers()[0].live
        clock.advance(2)
        assert not store.workers()[0].live

    def test_it_counts_what_it_runs(self, store: Store, job: ClaimedJob) -> None:
        store.heartbeat("worker-1", held(job))
        store.heartbeat("worker-2", [])

        assert {worker.id: worker.running for worker in store.workers()} == {"worker-1": 1, "worker-2": 0}

    def test_one_that_leaves_is_struck_off(self, store: Store) -> None:
        store.heartbeat("worker-1", [])
        store.heartbeat("worker-2", [])
        store.leave("worker-1")
        store.leave("worker-1")

        assert [worker.id for worker in store.workers()] == ["worker-2"]

    def test_one_long_gone_is_swept_away(self, store: Store, clock: TestClock) -> None:
        store.heartbeat("worker-1", [])
        clock.advance(30 * 86_400)
        store.sweep()

        assert store.workers() == []


class TestRefusals:
    @each("worker", ["", "w" * 191])
    def test_a_worker_is_neither_empty_nor_over_190_characters(self, store: Store, worker: str) -> None:
        with refused(store, BadName, "worker"):
            store.heartbeat(worker, [])

        assert store.workers() == []

    def test_a_lease_is_not_negative(self, store: Store, job: ClaimedJob) -> None:
        with refused(store, InvalidOption, "lease_ms"):
            store.heartbeat("worker-1", held(job), lease_ms=-1)

        assert found(store, job.id).lease_until == job.lease_until
