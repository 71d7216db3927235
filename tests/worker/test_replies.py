"""What a call brought is seen to while the next one is made: nothing of it may fall between the two."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.errors import InvalidConfiguration
from pyjobs.records import ClaimedJob, ClaimRequest, Outcome, Settled
from pyjobs.store.base import Store
from pyjobs.worker.aside import Aside
from pyjobs.worker.executors import Crew
from worker.running import Work, eventually

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

    def settle_and_claim(
        self, outcomes: Sequence[Outcome], request: ClaimRequest
    ) -> tuple[list[Settled], list[ClaimedJob]]:
        return self._store.settle_many(outcomes), self.claim(request)


class Forbidden(Jobs):
    def __init__(self, url: str) -> None:
        super().__init__(url, name="tests")
        self.stores: list[ForbiddenToClaim] = []

    def open_store(self) -> Store:
        store = ForbiddenToClaim(super().open_store())
        self.stores.append(store)
        forbidden: Any = store
        return forbidden


def test_what_was_settled_counts_where_the_claim_beside_it_is_refused(jobs: Jobs, work: Work, store: Store) -> None:
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


def test_a_reply_that_cannot_be_seen_to_takes_no_other_along(
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


def test_what_a_call_aside_raises_comes_out_where_it_is_waited_for() -> None:
    aside = Aside("test")

    failing, following = aside.submit(lambda: {}["missing"]), aside.submit(lambda: None)

    with pytest.raises(KeyError, match="missing"):
        failing.result(10)
    assert following.result(10) is None
    aside.close()
