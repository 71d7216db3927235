"""Workers as processes: signals, and a kill that asks nobody."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from uuid import UUID

import pytest

from pyjobs.app import Jobs
from pyjobs.definition import Backoff
from pyjobs.store.base import Store
from pyjobs.worker import Report
from servers.databases import Database
from steps import found
from worker.running import PATIENCE, Work, eventually

SCRIPT = Path(__file__).with_name("worker_process.py")


class Start(Protocol):
    def __call__(self, *, lease: str = "5m", grace: str = "30s") -> Process: ...


class Process:
    def __init__(self, url: str, lease: str, grace: str) -> None:
        command = [sys.executable, str(SCRIPT), url, lease, grace]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def began(self) -> UUID:
        """The next job it says it has begun."""
        word, _, id = self.said().partition(" ")
        assert word == "began", self.popen.communicate(timeout=PATIENCE)
        return UUID(id)

    def said(self) -> str:
        """The next line it says."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def ended(self) -> str:
        """The rest of what it said, once it has ended well."""
        said, complaints = self.popen.communicate(timeout=PATIENCE)
        assert self.popen.returncode == 0, complaints
        return said

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate(timeout=PATIENCE)


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    processes: list[Process] = []

    def start(*, lease: str = "5m", grace: str = "30s") -> Process:
        processes.append(Process(database.url, lease, grace))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def enqueued(store: Store, name: str) -> UUID:
    store.define(name, {"backoff": {"base_ms": 0}})
    return store.enqueue(name, "{}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_lets_it_finish_what_it_runs(store: Store, start: Start, number: int) -> None:
    id = enqueued(store, "short")
    process = start()
    assert process.began() == id
    process.signal(number)

    assert process.ended().strip() == str(Report(claimed=1, done=1))
    assert found(store, id).state == "done"
    assert store.workers() == []


def test_a_signal_that_the_application_handles_itself_does_not_stop_it(store: Store, start: Start) -> None:
    enqueued(store, "short")
    process = start()
    process.began()
    process.signal(signal.SIGUSR1)
    assert process.said() == "heard"

    id = enqueued(store, "short")
    assert process.began() == id
    process.signal(signal.SIGTERM)
    assert process.ended().strip() == str(Report(claimed=2, done=2))


def test_what_is_too_long_for_the_grace_is_given_back_and_done_elsewhere(
    jobs: Jobs, store: Store, start: Start, work: Work
) -> None:
    ids = {enqueued(store, "long"), enqueued(store, "coroutine")}
    process = start(grace="200ms")
    assert {process.began(), process.began()} == ids
    process.signal(signal.SIGTERM)

    assert process.ended().strip() == str(Report(claimed=2, released=2))
    assert {(found(store, id).state, found(store, id).attempts) for id in ids} == {("pending", 0)}
    jobs.define("long", lambda: None)
    jobs.define("coroutine", lambda: None)
    work()
    eventually(lambda: all(found(store, id).state == "done" for id in ids))


def test_a_second_signal_gives_back_at_once(store: Store, start: Start) -> None:
    id = enqueued(store, "long")
    process = start(grace="1h")
    process.began()
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGINT)

    assert process.ended().strip() == str(Report(claimed=1, released=1))
    assert (found(store, id).state, found(store, id).attempts) == ("pending", 0)


def test_after_a_kill_another_worker_rescues_and_performs_the_job(
    jobs: Jobs, store: Store, start: Start, work: Work
) -> None:
    id = enqueued(store, "long")
    process = start(lease="1s")
    assert process.began() == id
    process.kill()
    jobs.define("long", lambda: None, backoff=Backoff(base=0))
    work(lease="1s")
    eventually(lambda: found(store, id).state == "done")

    assert found(store, id).attempts == 2
    assert [failure.kind for failure in store.failures(id)] == ["lost"]
