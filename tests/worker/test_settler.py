"""One thread claims, another settles: neither waits for the other, and nothing falls between the two."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from pyjobs.app import Jobs
from pyjobs.errors import ContractMismatch, InvalidConfiguration, PyjobsError, StoreUnavailable
from pyjobs.records import ClaimedJob, ClaimRequest, Outcome, Settled
from pyjobs.store.base import Store
from pyjobs.worker import dispatcher, worker
from pyjobs.worker.attempt import Ending
from pyjobs.worker.executors import Crew
from pyjobs.worker.inbox import Inbox
from pyjobs.worker.worker import Worker
from servers.databases import Database
from steps import state
from worker.running import PATIENCE, Work, eventually

OUTLIVES_THE_MAIN_THREAD = """
import sys, threading, time
from pyjobs import Jobs
from pyjobs.worker import Worker

jobs = Jobs(sys.argv[1])
performed = []

@jobs.job
def job(number: int) -> None:
    performed.append(number)

worker = Worker(jobs, concurrency=5, poll_interval="50ms")

def produce() -> None:
    threading.main_thread().join()
    jobs.enqueue_many([("job", {"number": number}) for number in range(40)])
    deadline = time.monotonic() + 20
    while len(performed) < 40 and time.monotonic() < deadline:
        time.sleep(0.01)
    print(len(performed), flush=True)
    worker.stop()

threading.Thread(target=worker.run).start()
threading.Thread(target=produce).start()
"""


@pytest.mark.databases("postgresql")
@pytest.mark.parametrize("connections", [2, 3, 4])
def test_a_worker_that_cannot_have_all_its_connections_claims_nothing(
    jobs: Jobs, database: Database, sql: Any, connections: int
) -> None:
    jobs.define("work", lambda: None)
    jobs.sync()
    id = jobs.enqueue("work")
    role = f"pyjobs_few_{uuid4().hex[:8]}"
    sql(f"CREATE ROLE {role} LOGIN PASSWORD 'secret' CONNECTION LIMIT {connections}")
    for may in ("worker", "operator"):
        sql("SELECT jobs_grant(?, ?)", role, may)
    url = urlsplit(database.url)
    theirs = Jobs(url._replace(netloc=f"{role}:secret@{url.netloc.rpartition('@')[2]}").geturl())
    theirs.define("work", lambda: None)
    try:
        with pytest.raises(StoreUnavailable, match="too many connections"):
            Worker(theirs).run(once=True)
        assert sql.value("SELECT state FROM jobs WHERE id = ?", id) == "pending"
    finally:
        theirs.close()
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


def test_a_worker_goes_on_when_the_main_thread_has_ended(jobs: Jobs) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OUTLIVES_THE_MAIN_THREAD, jobs.url], capture_output=True, text=True, timeout=60
    )

    assert ran.stdout.split() == ["40"], ran.stderr


class ForbiddenToClaim:
    """A real store of somebody who may settle, but is not allowed to claim a second time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.settled: list[Outcome] = []
        self._claimed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        if self._claimed:
            raise InvalidConfiguration("this database user may not claim")
        self._claimed = True
        return self._store.claim(request)

    def settle_many(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        self.settled += outcomes
        return self._store.settle_many(outcomes)


class Forbidden(Jobs):
    def __init__(self, url: str) -> None:
        super().__init__(url, name="tests")
        self.stores: list[ForbiddenToClaim] = []

    def open_store(self) -> Store:
        store: Any = ForbiddenToClaim(super().open_store())
        self.stores.append(store)
        return store


def test_what_is_settled_counts_where_claims_are_refused(jobs: Jobs, work: Work, store: Store) -> None:
    application, gate = Forbidden(jobs.url), threading.Event()
    application.define("job", gate.wait)
    jobs.define("job", lambda: None)
    jobs.enqueue_many([("job", {})] * 3)

    running = work(application, concurrency=3)
    eventually(lambda: store.count({"state": "running"}) == 3)
    gate.set()
    eventually(lambda: store.count({"state": "done"}) == 3)
    running.stop()

    assert running.report().done == 3
    assert max(sum(o.id == each.id for o in s.settled) for s in application.stores for each in s.settled) == 1


def test_a_claim_that_cannot_be_begun_takes_no_other_along(
    jobs: Jobs, work: Work, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, failed = Crew.start, threading.Event()

    def fail_once(crew: Crew, attempts: Any) -> None:
        if len(attempts) > 1 and not failed.is_set():
            failed.set()
            raise MemoryError
        begin(crew, attempts)

    monkeypatch.setattr(Crew, "start", fail_once)
    jobs.define("job", lambda: None)
    jobs.enqueue_many([("job", {})] * 100)

    running = work(jobs, concurrency=2, prefetch=0)
    eventually(lambda: store.count({"state": "done"}) == 98)
    running.stop()

    assert failed.is_set()
    assert store.count({"state": "running"}) + store.count({"state": "pending"}) == 2


@pytest.mark.databases("postgresql", "mysql")
def test_a_settle_that_waits_for_a_lock_holds_up_no_claim(
    jobs: Jobs, work: Work, store: Store, database: Database
) -> None:
    gates = {"first": threading.Event(), "second": threading.Event()}
    jobs.define("job", lambda gate: gates[gate].wait(PATIENCE))
    first = jobs.enqueue("job", {"gate": "first"})
    running = work(jobs)
    eventually(lambda: state(store, first) == "running")

    with closing(database.connect()) as other:
        other.execute("BEGIN")
        other.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", (str(first),))
        gates["first"].set()
        second = jobs.enqueue("job", {"gate": "second"})
        eventually(lambda: state(store, second) == "running")
        assert state(store, first) == "running"
        other.execute("COMMIT")

    gates["second"].set()
    eventually(lambda: store.count({"state": "done"}) == 2)
    running.stop()
    assert running.report().done == 2


@pytest.mark.databases("postgresql", "mysql")
def test_a_worker_ends_though_a_settle_waits_for_a_lock(
    jobs: Jobs, work: Work, store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dispatcher, worker):
        monkeypatch.setattr(module, "_FAREWELL", 0.3)
    gate = threading.Event()
    jobs.define("job", lambda: gate.wait(PATIENCE))
    id = jobs.enqueue("job")
    running = work(jobs)
    eventually(lambda: state(store, id) == "running")

    with closing(database.connect()) as other:
        other.execute("BEGIN")
        other.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", (str(id),))
        gate.set()
        running.stop()
        running.stop()
        assert running.report().done == 0
        assert state(store, id) == "running"
        other.execute("COMMIT")

    eventually(lambda: state(store, id) != "running")  # the call that was left behind


@pytest.mark.databases("postgresql")
def test_a_settle_that_the_server_gives_up_is_no_failure_of_the_job(
    jobs: Jobs, work: Work, store: Store, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    application = Jobs(f"{jobs.url}{'&' if '?' in jobs.url else '?'}options=-c%20lock_timeout%3D50ms")
    gate = threading.Event()
    application.define("job", lambda: gate.wait(PATIENCE))
    jobs.define("job", lambda: None)
    id = jobs.enqueue("job")
    running = work(application)
    eventually(lambda: state(store, id) == "running")

    with closing(database.connect()) as other:
        other.execute("BEGIN")
        other.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", (str(id),))
        gate.set()
        eventually(lambda: caplog.text.count("settler: ") >= 3)
        other.execute("COMMIT")

    eventually(lambda: state(store, id) == "done")
    running.stop()
    assert running.report().done == 1
    assert store.failures(id) == []


class CannotSettle(Jobs):
    """Its stores settle nothing as long as there is an error to raise."""

    error: PyjobsError | None = None

    def open_store(self) -> Store:
        store: Any = super().open_store()
        settle_many = store.settle_many

        def settle_or_not(outcomes: Sequence[Outcome]) -> list[Settled]:
            if self.error is not None:
                raise self.error
            return settle_many(outcomes)

        store.settle_many = settle_or_not
        return store


def test_once_raises_what_kept_it_from_settling(jobs: Jobs) -> None:
    application = CannotSettle(jobs.url)
    application.error = StoreUnavailable("nothing is settled here")
    application.define("job", lambda: None)
    jobs.define("job", lambda: None)
    jobs.enqueue("job")

    with pytest.raises(StoreUnavailable, match="nothing is settled"):
        Worker(application, grace="300ms", poll_interval="50ms", max_poll_interval="50ms").run(once=True)


def test_what_cannot_be_settled_is_bounded(
    jobs: Jobs, work: Work, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "_MOST_OWED", 5)
    application, performed = CannotSettle(jobs.url), list[int]()
    application.error = StoreUnavailable("nothing is settled here")
    application.define("job", lambda number: performed.append(number))
    jobs.define("job", lambda: None)
    jobs.enqueue_many([("job", {"number": number}) for number in range(100)])

    running = work(application, concurrency=2, prefetch=0, poll_interval="10ms", max_poll_interval="10ms")
    eventually(lambda: caplog.text.count("nothing is settled here") >= 4)
    assert 5 <= len(performed) <= 6
    application.error = None
    eventually(lambda: store.count({"state": "done"}) == 100)
    running.stop()
    assert running.report().done == 100


@pytest.mark.parametrize("error", [ContractMismatch("no such routine"), InvalidConfiguration("this user may not")])
def test_a_database_that_settles_nothing_yet_is_no_failure_of_a_job(
    jobs: Jobs, work: Work, store: Store, caplog: pytest.LogCaptureFixture, error: PyjobsError
) -> None:
    application = CannotSettle(jobs.url)
    application.error = error
    application.define("job", lambda: None)
    jobs.define("job", lambda: None)
    id = jobs.enqueue("job")

    running = work(application)
    eventually(lambda: error.message in caplog.text)
    application.error = None
    eventually(lambda: state(store, id) == "done")
    running.stop()

    assert running.report().done == 1
    assert store.failures(id) == []


class SlowLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.005)


def test_a_report_counts_what_is_still_being_told(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_FAREWELL", 0.05)
    jobs.define("job", lambda: None)
    jobs.enqueue_many([("job", {})] * 100)
    log, slow = logging.getLogger("pyjobs.worker"), SlowLog()
    monkeypatch.setattr(log, "level", logging.INFO)
    log.addHandler(slow)
    try:
        assert Worker(jobs).run(once=True).done == 100
    finally:
        log.removeHandler(slow)


def test_an_inbox_keeps_what_is_not_removed_and_is_never_slept_over() -> None:
    inbox, endings = Inbox(), [ending(number) for number in range(3)]
    inbox.put(endings[0])
    inbox.sleep()
    inbox.put(endings[1])

    assert inbox.first(5) == endings[:2]
    assert inbox.first(1) == endings[:1]
    inbox.remove(1)
    assert inbox.first(5) == endings[1:2]

    inbox.remove(1)
    assert not inbox
    sleeper = threading.Thread(target=inbox.sleep)
    sleeper.start()
    inbox.put(endings[2])
    sleeper.join(PATIENCE)
    assert not sleeper.is_alive()
    assert inbox.first(5) == endings[2:]


def ending(number: int) -> Ending:
    claimed: Any = number
    return Ending(claimed, None)
