"""How many run at once, for how long, and who goes first out of the hand."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.context import JobContext
from pyjobs.definition import Concurrency
from pyjobs.store.base import Store
from pyjobs.worker import Report, Worker
from servers.databases import Database
from steps import found, state
from worker.running import PATIENCE, Work, eventually


class Gauge:
    """Counts who is inside, and lets them out when told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.open = threading.Event()

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1


class TestConcurrency:
    def test_threads_and_coroutines_are_counted_together(self, jobs: Jobs, work: Work, store: Store) -> None:
        gauge = Gauge()

        @jobs.job
        def plain() -> None:
            with gauge:
                assert gauge.open.wait(PATIENCE)

        @jobs.job
        async def coroutine() -> None:
            with gauge:
                assert await asyncio.to_thread(gauge.open.wait, PATIENCE)

        ids = [job.enqueue() for _ in range(6) for job in (plain, coroutine)]
        running = work(concurrency=4)
        eventually(lambda: gauge.inside == 4)
        assert len(store.jobs({"state": "running"})) == 4
        gauge.open.set()
        eventually(lambda: all(state(store, id) == "done" for id in ids))

        assert gauge.most == 4
        running.stop()
        assert running.report() == Report(claimed=12, done=12)

    def test_many_short_jobs_are_performed_once_each_by_two_workers(self, jobs: Jobs, work: Work, store: Store) -> None:
        performed = []

        @jobs.job
        def plain(number: int) -> None:
            performed.append(number)

        @jobs.job
        async def coroutine(number: int) -> None:
            performed.append(number)

        jobs.enqueue_many([(("plain", "coroutine")[number % 2], {"number": number}) for number in range(2_000)])
        workers = [work(concurrency=5), work(concurrency=5)]
        eventually(lambda: len(performed) >= 2_000 and not store.count({"state": "running"}))

        assert sorted(performed) == list(range(2_000))
        assert store.count({"state": "done"}) == 2_000
        for running in workers:
            running.stop()
        assert sum(running.report().done for running in workers) == 2_000

    def test_a_bound_of_the_database_holds_within_one_worker(self, jobs: Jobs, store: Store) -> None:
        gauge = Gauge()

        @jobs.job(concurrency=Concurrency(limit=2))
        def bounded() -> None:
            with gauge:
                time.sleep(0.001)

        for _ in range(30):
            bounded.enqueue()

        assert Worker(jobs).run(once=True) == Report(claimed=30, done=30)
        assert gauge.most <= 2

    def test_jobs_fetched_ahead_are_given_back_when_those_before_them_take_long(
        self, jobs: Jobs, work: Work, store: Store
    ) -> None:
        gauge = Gauge()

        @jobs.job
        def short() -> None: ...

        @jobs.job(priority=5)
        def long() -> None:
            with gauge:
                assert gauge.open.wait(PATIENCE)

        for _ in range(50):
            short.enqueue()
        waiting = [long.enqueue() for _ in range(20)]
        work(concurrency=2)
        eventually(lambda: gauge.inside == 2)
        eventually(lambda: store.count({"state": "running"}) == 2)

        assert sorted(found(store, id).attempts for id in waiting) == [0] * 18 + [1] * 2
        gauge.open.set()


class TestTimeout:
    def test_a_thread_that_does_not_stop_is_left_behind(self, jobs: Jobs, work: Work, store: Store) -> None:
        contexts: list[JobContext] = []
        release = threading.Event()
        released = threading.Event()

        @jobs.job(timeout="200ms", max_attempts=1)
        def deaf(*, context: JobContext) -> None:
            contexts.append(context)
            assert release.wait(PATIENCE)
            released.set()

        @jobs.job
        def next() -> None: ...

        id = deaf.enqueue()
        running = work(concurrency=1)
        eventually(lambda: state(store, id) == "dead")
        [failure] = store.failures(id)
        assert (failure.kind, failure.type) == ("timeout", "TimeoutError")
        assert "200ms" in (failure.message or "")
        assert (failure.failed_at - failure.started_at).total_seconds() < PATIENCE / 2
        assert contexts[0].cancelled.is_set()
        assert not released.is_set()

        # Its place is free again, and what it comes to later changes nothing.
        after = next.enqueue()
        eventually(lambda: state(store, after) == "done")
        release.set()
        assert released.wait(PATIENCE)
        last = next.enqueue()
        eventually(lambda: state(store, last) == "done")
        assert state(store, id) == "dead"
        running.stop()
        assert running.report() == Report(claimed=3, done=2, failed=1, dead=1)

    def test_a_thread_that_looks_can_stop_early_and_is_not_done(self, jobs: Jobs, store: Store) -> None:
        @jobs.job(timeout="100ms", max_attempts=1)
        def polite(*, context: JobContext) -> None:
            assert context.cancelled.wait(PATIENCE)

        id = polite.enqueue()

        assert Worker(jobs).run(once=True) == Report(claimed=1, failed=1, dead=1)
        assert store.failures(id)[0].kind == "timeout"

    @pytest.mark.parametrize("swallows", [False, True])
    def test_a_coroutine_is_cancelled(self, jobs: Jobs, store: Store, swallows: bool) -> None:
        ended = threading.Event()

        @jobs.job(timeout="100ms", max_attempts=1)
        async def slow() -> None:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                ended.set()
                if not swallows:
                    raise

        id = slow.enqueue()

        assert Worker(jobs, concurrency=1).run(once=True) == Report(claimed=1, failed=1, dead=1)
        assert store.failures(id)[0].kind == "timeout"
        assert ended.wait(PATIENCE)

    def test_each_attempt_has_the_whole_time_however_long_it_waited_in_hand(self, jobs: Jobs) -> None:
        @jobs.job(timeout="1s")
        def work() -> None:
            time.sleep(0.05)

        for _ in range(30):
            work.enqueue()

        assert Worker(jobs, concurrency=1).run(once=True) == Report(claimed=30, done=30)

    def test_a_coroutine_that_blocks_the_event_loop_does_not_take_the_others_with_it(
        self, jobs: Jobs, work: Work, store: Store
    ) -> None:
        release = threading.Event()
        beside = threading.Event()
        attempts = []

        @jobs.job(timeout="100ms", max_attempts=1)
        async def blocking() -> None:
            assert beside.wait(PATIENCE)
            release.wait(PATIENCE)

        @jobs.job
        async def harmless(*, context: JobContext) -> None:
            attempts.append(context.attempt)
            if not beside.is_set():
                beside.set()
                await asyncio.sleep(3_600)

        running = work()
        harmless_id = harmless.enqueue()
        assert beside.wait(PATIENCE)
        blocking_id = blocking.enqueue()
        eventually(lambda: state(store, blocking_id) == "dead")
        eventually(lambda: state(store, harmless_id) == "done")

        assert attempts == [1, 1]
        release.set()
        running.stop()
        assert running.report() == Report(claimed=3, done=1, failed=1, dead=1, released=1)


class TestWaking:
    """Nothing waits for a poll: these workers would look again after half a minute only."""

    SLOW: dict[str, Any] = {"poll_interval": "30s", "max_poll_interval": "30s"}  # noqa: RUF012

    def test_a_new_job_runs_at_once_and_is_settled_at_once(self, jobs: Jobs, work: Work, store: Store) -> None:
        performed = threading.Event()

        @jobs.job
        def job() -> None:
            performed.set()

        first = jobs.enqueue("job")
        work(**self.SLOW)
        eventually(lambda: state(store, first) == "done")  # from now on it sleeps
        performed.clear()
        began = time.monotonic()
        id = job.enqueue()
        assert performed.wait(PATIENCE)
        eventually(lambda: state(store, id) == "done")
        assert time.monotonic() - began < 10

    def test_a_place_that_gets_free_is_filled_at_once(self, jobs: Jobs, work: Work, store: Store) -> None:
        @jobs.job
        def job() -> None:
            time.sleep(0.01)

        began = time.monotonic()
        work(concurrency=1, prefetch=0, **self.SLOW)
        for _ in range(20):
            job.enqueue()
        eventually(lambda: store.count({"state": "done"}) == 20)
        assert time.monotonic() - began < 10

    def test_a_stop_is_heard_at_once(self, jobs: Jobs, work: Work, store: Store) -> None:
        @jobs.job
        def job() -> None: ...

        id = job.enqueue()
        running = work(**self.SLOW)
        eventually(lambda: state(store, id) == "done")
        began = time.monotonic()
        running.stop()
        running.report()
        assert time.monotonic() - began < 10


class Watched(Jobs):
    """An application that writes down how long its idle worker means to sleep."""

    def __init__(self, url: str) -> None:
        super().__init__(url, name="tests")
        self.naps: list[float] = []

    def open_store(self) -> Store:
        store = super().open_store()
        wait = store.wait

        def written_down(timeout: float) -> bool:
            self.naps.append(timeout)
            return wait(timeout)

        store.wait = written_down  # type: ignore[method-assign]
        return store


def test_an_idle_worker_looks_less_and_less_often(database: Database, work: Work) -> None:
    application = Watched(database.url)
    application.define("job", lambda: None)
    work(application, poll_interval="10ms", max_poll_interval="50ms")
    eventually(lambda: len(application.naps) > 8)

    before_the_first_claim, *naps = application.naps
    assert before_the_first_claim == 0
    assert naps[:6] == [0.01, 0.02, 0.04, 0.05, 0.05, 0.05]
