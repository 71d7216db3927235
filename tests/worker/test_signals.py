"""What the database tells a worker about a job it runs: that it is to be cancelled, or not its any more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.context import JobContext
from pyjobs.definition import Backoff
from pyjobs.store.base import Store
from pyjobs.worker import Event, Report
from steps import found, state
from worker.running import PATIENCE, Work, eventually

QUICK = {"lease": "800ms"}  # a heartbeat each 200 ms


class TestCancel:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_running_job_hears_of_it(self, jobs: Jobs, work: Work, store: Store, is_async: bool) -> None:
        begun = threading.Event()
        heard = threading.Event()

        def plain(*, context: JobContext) -> None:
            begun.set()
            assert context.cancelled.wait(PATIENCE)
            heard.set()

        async def coroutine() -> None:
            begun.set()
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                heard.set()
                raise

        jobs.define("work", coroutine if is_async else plain)
        running = work(**QUICK)
        id = jobs.enqueue("work")
        assert begun.wait(PATIENCE)
        assert store.cancel({"id": str(id)}) == 1
        assert heard.wait(PATIENCE)
        eventually(lambda: state(store, id) == "cancelled")

        running.stop()
        assert running.report() == Report(claimed=1, cancelled=1)
        assert found(store, id).attempts == 1

    def test_one_that_waits_in_hand_never_begins(self, jobs: Jobs, work: Work, store: Store) -> None:
        gate = threading.Event()
        begun = threading.Event()
        performed = []

        @jobs.job
        def short() -> None: ...

        @jobs.job(priority=5)
        def first() -> None:
            begun.set()
            assert gate.wait(PATIENCE)

        @jobs.job(priority=6)
        def second() -> None:
            performed.append(1)

        for _ in range(30):
            short.enqueue()
        first.enqueue()
        id = second.enqueue()
        running = work(concurrency=1, **QUICK)
        assert begun.wait(PATIENCE)
        store.cancel({"id": str(id)})
        eventually(lambda: state(store, id) == "cancelled")
        gate.set()
        eventually(lambda: store.count({"state": "done"}) == 31)
        running.stop()
        running.report()
        assert performed == []


class TestLost:
    def test_its_handler_is_told_and_its_result_counts_no_more(
        self, jobs: Jobs, work: Work, store: Store, sql: Any
    ) -> None:
        events: list[Event] = []
        contexts: list[JobContext] = []
        ended = threading.Event()

        @jobs.job(backoff=Backoff(base="1h", max="1h"))
        def job(*, context: JobContext) -> None:
            contexts.append(context)
            assert context.cancelled.wait(PATIENCE)
            ended.set()

        running = work(**QUICK, on_event=events.append)
        id = job.enqueue()
        eventually(lambda: contexts)
        past = "0" if sql.dialect == "sqlite" else "'2000-01-01'"

        def rescued() -> bool:
            sql(f"UPDATE jobs SET lease_until = {past} WHERE state = 'running'")
            store.sweep()
            return state(store, id) == "scheduled"

        eventually(rescued)
        assert ended.wait(PATIENCE)
        eventually(lambda: [event for event in events if event.kind == "lost"])
        running.stop()

        assert running.report() == Report(claimed=1)
        assert (found(store, id).state, found(store, id).attempts) == ("scheduled", 1)
        assert [failure.kind for failure in store.failures(id)] == ["lost"]
