"""The database goes away, or does not say whether it did what it was asked to: nothing is lost, nobody dies."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pymysql
import pytest

from pyjobs.app import Jobs
from pyjobs.errors import StoreUnavailable
from pyjobs.records import ClaimedJob, ClaimRequest, Outcome, Settled
from pyjobs.store.base import Store
from servers.databases import Database
from steps import found, state
from worker.running import PATIENCE, Work, eventually


class Unreliable:
    """A real store on a bad line: each call reaches the database, but while ``deaf`` says so its reply does not come
    back, and while ``cut`` is set not even the call gets there."""

    def __init__(self, store: Store, deaf: Iterator[bool], cut: threading.Event) -> None:
        self._store = store
        self._deaf = deaf
        self._cut = cut

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def wait(self, timeout: float) -> bool:
        self._reach()
        return self._store.wait(timeout)

    def heartbeat(self, *args: Any, **options: Any) -> Any:
        self._reach()
        return self._store.heartbeat(*args, **options)

    def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        self._reach()
        return self._heard(self._store.claim(request))

    def settle_many(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        self._reach()
        return self._heard(self._store.settle_many(outcomes))

    def _reach(self) -> None:
        if self._cut.is_set():
            raise StoreUnavailable("the line is cut")

    def _heard(self, reply: Any) -> Any:
        if next(self._deaf):
            raise StoreUnavailable("the reply was lost")
        return reply


class BadLine(Jobs):
    """An application whose worker is on a bad line."""

    def __init__(self, url: str, deaf: Iterator[bool] | None = None) -> None:
        super().__init__(url, name="tests")
        self.deaf = deaf or itertools.repeat(False)
        self.cut = threading.Event()

    def open_store(self) -> Store:
        store: Any = Unreliable(super().open_store(), self.deaf, self.cut)
        return store


def test_replies_that_are_lost_lose_and_double_nothing(jobs: Jobs, work: Work, store: Store) -> None:
    application = BadLine(jobs.url, itertools.cycle([False, True, False, True, True]))
    performed = []

    @application.job
    def job(number: int) -> None:
        performed.append(number)

    jobs.define("job", lambda number: None)
    jobs.enqueue_many([("job", {"number": number}) for number in range(60)])
    running = work(application, concurrency=10, prefetch=10)
    eventually(lambda: store.count({"state": "done"}) == 60)
    running.stop()

    assert sorted(performed) == list(range(60))
    assert running.report().done == 60
    assert store.count({"state": "running"}) == 0


def test_a_claim_whose_reply_is_lost_is_given_back_by_a_stop(jobs: Jobs, work: Work, store: Store) -> None:
    application = BadLine(jobs.url, itertools.chain([True, True, True], itertools.repeat(False)))
    application.define("job", lambda: None)
    jobs.define("job", lambda: None)
    id = jobs.enqueue("job")
    running = work(application)
    eventually(lambda: store.count({"state": "running"}) == 1)
    running.stop()
    running.report()

    assert (found(store, id).state, found(store, id).attempts) in [("pending", 0), ("done", 1)]


def test_while_the_database_is_away_handlers_go_on_and_are_settled_afterwards(
    jobs: Jobs, work: Work, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    application = BadLine(jobs.url)
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    @application.job
    def job() -> None:
        begun.set()
        assert gate.wait(PATIENCE)
        ended.set()

    jobs.define("job", lambda: None)
    id = jobs.enqueue("job")
    running = work(application, lease="2s")
    assert begun.wait(PATIENCE)
    application.cut.set()
    eventually(lambda: "the line is cut" in caplog.text)
    gate.set()
    assert ended.wait(PATIENCE)
    assert state(store, id) == "running"
    application.cut.clear()
    eventually(lambda: state(store, id) == "done")
    running.stop()
    assert running.report().done == 1


def test_a_worker_can_be_stopped_while_the_database_is_away(jobs: Jobs, work: Work, store: Store) -> None:
    application = BadLine(jobs.url)
    begun, gate = threading.Event(), threading.Event()

    @application.job
    def job() -> None:
        begun.set()
        gate.wait(PATIENCE)

    jobs.define("job", lambda: None)
    jobs.enqueue("job")
    running = work(application, grace="200ms")
    assert begun.wait(PATIENCE)
    application.cut.set()
    running.stop()
    running.stop()
    running.report()
    gate.set()


@pytest.mark.databases("postgresql", "mysql")
def test_connections_that_are_ended_under_load_lose_nothing(
    jobs: Jobs, work: Work, store: Store, sql: Any
) -> None:
    performed: Counter[int] = Counter()

    @jobs.job
    def job(number: int) -> None:
        performed[number] += 1

    jobs.enqueue_many([("job", {"number": number}) for number in range(3_000)])
    running = work(concurrency=10)
    for goal in (200, 800, 1_600, 2_400):
        eventually(lambda goal=goal: len(performed) >= goal)
        end_all_connections(sql)
    eventually(lambda: store.count({"state": "done"}) == 3_000)
    running.stop()

    assert len(performed) == 3_000
    assert running.report().done == 3_000


@pytest.mark.databases("postgresql", "mysql")
@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_under_load_loses_nothing(
    jobs: Jobs, work: Work, store: Store, database: Database, crash: bool
) -> None:
    if database.server is None or not database.server.restartable:
        pytest.skip("this server cannot be restarted from here")
    performed: Counter[int] = Counter()

    @jobs.job
    def job(number: int) -> None:
        performed[number] += 1

    jobs.enqueue_many([("job", {"number": number}) for number in range(3_000)])
    running = work(concurrency=10)
    eventually(lambda: len(performed) >= 500)
    database.server.restart(crash=crash)
    eventually(lambda: store.count({"state": "done"}) == 3_000)
    running.stop()

    assert len(performed) == 3_000
    assert running.report().done == 3_000


def end_all_connections(sql: Any) -> None:
    """Those that others have to this database."""
    if sql.dialect == "mysql":
        others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        for row in sql(others):
            with suppress(pymysql.OperationalError):  # it may have gone by now
                sql(f"KILL {next(iter(row.values()))}")
    else:
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.databases("sqlite")
def test_a_database_locked_by_somebody_else_is_waited_for(jobs: Jobs, work: Work, store: Store, sql: Any) -> None:
    performed = threading.Event()

    @jobs.job
    def job() -> None:
        performed.set()

    id = job.enqueue()
    sql("BEGIN IMMEDIATE")
    running = work(grace="5s")
    assert not performed.wait(0.5)
    sql("ROLLBACK")
    eventually(lambda: state(store, id) == "done")
    running.stop()
    running.report()
