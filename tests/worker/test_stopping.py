"""How a worker ends: what it finishes, what it gives back, and what happens when it is not asked."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time

import pytest

from pyjobs.app import Jobs
from pyjobs.context import JobContext
from pyjobs.definition import Concurrency
from pyjobs.store.base import Store
from pyjobs.worker import Report, Worker
from steps import claim_one, found, state
from worker.running import PATIENCE, Work, eventually


class TestStop:
    @pytest.mark.parametrize("still_starting", [False, True])
    def test_one_that_ctrl_c_has_ended_can_run_again(
        self, jobs: Jobs, store: Store, monkeypatch: pytest.MonkeyPatch, still_starting: bool
    ) -> None:
        start = threading.Thread.start

        def start_slowly(thread: threading.Thread) -> None:
            start(thread)
            if still_starting and thread.name == "pyjobs-dispatcher":
                threading.Event().wait(PATIENCE)

        monkeypatch.setattr(threading.Thread, "start", start_slowly)

        @jobs.job
        def interrupts() -> None:
            os.kill(os.getpid(), signal.SIGINT)

        @jobs.job
        def plain() -> None: ...

        worker = Worker(jobs)
        interrupts.enqueue()
        with pytest.raises(KeyboardInterrupt):
            worker.run()
        assert not [thread for thread in threading.enumerate() if thread.name == "pyjobs-dispatcher"]
        monkeypatch.undo()
        store.discard({"name": "interrupts"})
        id = plain.enqueue()

        assert worker.run(once=True) == Report(claimed=1, done=1)
        assert state(store, id) == "done"

    def test_what_runs_is_finished_and_nothing_else_is_begun(
        self, jobs: Jobs, work: Work, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        begun = threading.Event()
        gate = threading.Event()

        @jobs.job
        def job() -> None:
            begun.set()
            assert gate.wait(PATIENCE)

        caplog.set_level(logging.INFO)
        first = job.enqueue()
        running = work(concurrency=1)
        assert begun.wait(PATIENCE)
        running.stop()
        eventually(lambda: "stopping" in caplog.text)
        second = job.enqueue()
        assert state(store, first) == "running"
        gate.set()

        assert running.report() == Report(claimed=1, done=1)
        assert [state(store, id) for id in (first, second)] == ["done", "pending"]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_does_not_finish_within_the_grace_is_given_back_uncounted(
        self, jobs: Jobs, work: Work, store: Store, is_async: bool
    ) -> None:
        begun = threading.Event()
        told = threading.Event()

        def plain(*, context: JobContext) -> None:
            begun.set()
            assert context.cancelled.wait(PATIENCE)
            told.set()

        async def coroutine() -> None:
            begun.set()
            try:
                await asyncio.sleep(3_600)
            finally:
                told.set()

        jobs.define("work", coroutine if is_async else plain)
        id = jobs.enqueue("work")
        running = work(grace="100ms")
        assert begun.wait(PATIENCE)
        running.stop()

        assert running.report() == Report(claimed=1, released=1)
        assert told.is_set()
        assert (found(store, id).state, found(store, id).attempts) == ("pending", 0)

    def test_a_handler_that_will_not_stop_is_left_behind(self, jobs: Jobs, work: Work, store: Store) -> None:
        begun = threading.Event()
        gate = threading.Event()

        @jobs.job
        def deaf() -> None:
            begun.set()
            gate.wait(PATIENCE)

        id = deaf.enqueue()
        running = work(grace=0)
        assert begun.wait(PATIENCE)
        running.stop()

        assert running.report() == Report(claimed=1, released=1)
        assert state(store, id) == "pending"
        gate.set()

    def test_a_second_stop_gives_everything_back_at_once(self, jobs: Jobs, work: Work, store: Store) -> None:
        begun = threading.Event()
        gate = threading.Event()

        @jobs.job
        def deaf() -> None:
            begun.set()
            gate.wait(PATIENCE)

        id = deaf.enqueue()
        running = work(grace="1h")
        assert begun.wait(PATIENCE)
        running.stop()
        running.stop()

        assert running.report() == Report(claimed=1, released=1)
        assert state(store, id) == "pending"
        gate.set()

    def test_what_was_fetched_ahead_is_given_back_at_once(self, jobs: Jobs, work: Work, store: Store) -> None:
        begun = threading.Event()
        gate = threading.Event()

        @jobs.job
        def short() -> None: ...

        @jobs.job(priority=5)
        def first() -> None:
            begun.set()
            assert gate.wait(PATIENCE)

        @jobs.job(priority=6)
        def second() -> None: ...

        for _ in range(20):
            short.enqueue()
        first.enqueue()
        id = second.enqueue()
        running = work(concurrency=1)
        assert begun.wait(PATIENCE)
        running.stop()
        eventually(lambda: state(store, id) == "pending")
        assert running.thread.is_alive()
        gate.set()
        running.report()

    def test_a_stop_before_the_start_counts(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def job() -> None: ...

        job.enqueue()
        worker = Worker(jobs)
        worker.stop()

        assert worker.run().done <= 1  # and it returns

    def test_a_worker_is_listed_while_it_runs(self, jobs: Jobs, work: Work, store: Store) -> None:
        @jobs.job
        def job() -> None: ...

        running = work(queues=["default"], concurrency=3)
        [record] = eventually(store.workers)
        assert record.id == running.worker.id
        assert '"job"' in record.info
        running.stop()
        running.report()

        assert store.workers() == []


class TestOnce:
    def test_it_empties_the_queue_what_its_handlers_enqueue_included(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def job(depth: int) -> None:
            if depth:
                jobs.enqueue("job", {"depth": depth - 1})

        job.enqueue(5)

        assert Worker(jobs).run(once=True) == Report(claimed=6, done=6)

    def test_an_empty_queue_ends_it(self, jobs: Jobs) -> None:
        @jobs.job
        def job() -> None: ...

        began = time.monotonic()
        assert Worker(jobs, poll_interval="30s").run(once=True) == Report()
        assert time.monotonic() - began < 10

    def test_a_retry_in_the_future_is_left_alone(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def job() -> None:
            raise ValueError

        id = job.enqueue()

        assert Worker(jobs).run(once=True) == Report(claimed=1, failed=1)
        assert state(store, id) == "scheduled"

    def test_it_waits_for_what_it_runs(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def long() -> None:
            time.sleep(0.3)
            jobs.enqueue("next")

        @jobs.job
        def next() -> None: ...

        long.enqueue()

        assert Worker(jobs).run(once=True) == Report(claimed=2, done=2)

    def test_schedules_that_are_due_fire_before(self, jobs: Jobs, store: Store) -> None:
        performed = threading.Event()

        @jobs.job
        def job() -> None:
            performed.set()

        store.define("job", {})
        past = store.now()
        store.put_schedule("now", {"job": "job", "every_ms": 3_600_000}, past)

        assert Worker(jobs).run(once=True) == Report(claimed=1, done=1)
        assert performed.is_set()

    def test_a_full_bucket_that_another_worker_holds_does_not_keep_it(self, jobs: Jobs, store: Store) -> None:
        @jobs.job(concurrency=Concurrency(limit=1))
        def bounded() -> None: ...

        bounded.enqueue()
        for _ in range(3):
            bounded.enqueue()
        held = claim_one(store)

        assert Worker(jobs).run(once=True) == Report()
        assert store.count({"state": "pending"}) == 3
        assert store.settle(held.id, held.token, "done").accepted
        assert Worker(jobs).run(once=True) == Report(claimed=3, done=3)
