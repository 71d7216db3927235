"""Schedules fire once a moment however many workers there are, and a broken one stops nothing."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.store.base import Store
from pyjobs.worker.scheduler import Duties, Scheduler
from worker.running import Work, eventually

MINUTE = 60_000
ALL = Duties(schedules=True, sweep_every=1)


def schedule(store: Store, name: str, **options: Any) -> None:
    """One that is due now."""
    store.define("job", {})
    given = {"job": "job", "every_ms": MINUTE, **options}
    store.put_schedule(name, {key: value for key, value in given.items() if value is not None}, store.now())


def test_one_job_a_moment_with_two_workers(jobs: Jobs, work: Work, store: Store) -> None:
    performed = []

    @jobs.schedule(every="300ms")
    @jobs.job
    def job() -> None:
        performed.append(1)

    workers = [work(), work()]
    eventually(lambda: len(performed) >= 4)
    for running in workers:
        running.stop()
    for running in workers:
        running.report()

    done = store.jobs(limit=1_000)
    keys = Counter(record.unique_key for record in done)
    assert len(done) >= 4
    assert set(keys.values()) == {1}


def test_many_callers_at_one_moment_fire_it_once(jobs: Jobs, store: Store, clock: Any) -> None:
    schedule(store, "each minute")
    stores = [jobs.open_store() for _ in range(6)]
    schedulers = [Scheduler(each, ALL) for each in stores]
    with ThreadPoolExecutor(6) as callers:
        for _ in range(5):
            list(callers.map(lambda scheduler: scheduler.fire(), schedulers))
            clock.advance(60)
    for each in stores:
        each.close()

    assert store.count() == 5


def test_missed_moments_do_not_pile_up(store: Store, clock: Any) -> None:
    schedule(store, "each minute")
    clock.advance(3_600)
    scheduler = Scheduler(store, ALL)
    scheduler.fire()
    scheduler.fire()

    assert store.count() == 1
    [record] = store.schedules()
    assert clock.now() < record.next_run_at <= clock.now() + timedelta(minutes=1)


def test_it_rests_until_the_next_moment(store: Store, clock: Any) -> None:
    schedule(store, "often", every_ms=2_000)

    assert 0 < Scheduler(store, ALL).fire() <= 2.5


def test_a_schedule_that_is_switched_off_does_not_fire(store: Store, clock: Any) -> None:
    schedule(store, "off", enabled=False)
    Scheduler(store, ALL).fire()

    assert store.count() == 0


def test_a_broken_schedule_is_logged_once_and_stops_no_other(
    store: Store, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    schedule(store, "a: never", cron="0 0 30 2 *", every_ms=None)
    store.define("forgotten", {})
    store.put_schedule("b: of a forgotten job", {"job": "forgotten", "every_ms": MINUTE}, store.now())
    store.forget("forgotten")
    schedule(store, "c: sound")
    scheduler = Scheduler(store, ALL)
    with caplog.at_level(logging.ERROR, logger="pyjobs.worker"):
        scheduler.fire()
        scheduler.fire()

    assert [record.name for record in store.jobs()] == ["job"]
    assert len(caplog.records) == 2

    store.define("forgotten", {})
    scheduler.fire()
    assert sorted(record.name for record in store.jobs()) == ["forgotten", "job"]


def test_without_schedules_a_worker_fires_none_and_sweeps_still(
    jobs: Jobs, work: Work, store: Store, clock: Any
) -> None:
    swept = threading.Event()

    @jobs.job
    def job() -> None:
        swept.set()

    schedule(store, "each minute")
    work(schedules=False)
    job.enqueue()
    assert swept.wait(20)

    assert {record.unique_key for record in store.jobs()} == {None}
