"""The hooks, and the lines in the log."""

from __future__ import annotations

import json
import logging
import threading
from uuid import UUID

import pytest

from pyjobs.app import Jobs
from pyjobs.definition import Backoff
from pyjobs.records import ClaimedJob
from pyjobs.store.base import Store
from pyjobs.worker import AttemptFailure, Event, Report, Worker
from pyjobs.worker.logs import JsonFormatter
from steps import found
from worker.running import PATIENCE, Work, eventually

SECRET = "s3cret-4711"


@pytest.fixture
def fails_twice(jobs: Jobs) -> UUID:
    @jobs.job(max_attempts=2, backoff=Backoff(base=0))
    def job(password: str) -> None:
        raise ValueError(password)

    return job.enqueue(SECRET)


def test_on_error_hears_each_failure_and_on_dead_the_last(jobs: Jobs, fails_twice: UUID) -> None:
    errors: list[tuple[ClaimedJob, AttemptFailure]] = []
    deaths: list[tuple[ClaimedJob, AttemptFailure]] = []
    worker = Worker(
        jobs,
        on_error=lambda job, failure: errors.append((job, failure)),
        on_dead=lambda job, failure: deaths.append((job, failure)),
    )
    worker.run(once=True)

    assert [(job.id, job.attempt) for job, _ in errors] == [(fails_twice, 1), (fails_twice, 2)]
    [(job, failure)] = deaths
    assert (job.id, job.attempt) == (fails_twice, 2)
    assert (failure.kind, failure.type) == ("error", "ValueError")
    assert isinstance(failure.error, ValueError)


@pytest.mark.parametrize("error", [ValueError("broken hook"), SystemExit(1)])
def test_a_hook_that_raises_is_logged_and_changes_nothing(
    jobs: Jobs, store: Store, fails_twice: UUID, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise error

    worker = Worker(jobs, on_error=broken, on_dead=broken, on_event=broken)

    assert worker.run(once=True) == Report(claimed=2, failed=2, dead=1)
    assert found(store, fails_twice).state == "dead"
    assert "a hook raised" in caplog.text


def test_a_hook_that_hangs_holds_up_no_job(jobs: Jobs, work: Work, store: Store) -> None:
    gate = threading.Event()

    @jobs.job
    def job() -> None: ...

    for _ in range(5):
        job.enqueue()
    running = work(on_event=lambda event: gate.wait(PATIENCE))
    eventually(lambda: store.count({"state": "done"}) == 5)
    gate.set()
    running.stop()

    assert running.report() == Report(claimed=5, done=5)


def test_on_event_hears_everything(jobs: Jobs, fails_twice: UUID) -> None:
    events: list[Event] = []
    worker = Worker(jobs, on_event=events.append)
    worker.run(once=True)

    assert [event.kind for event in events] == ["claimed", "failed", "claimed", "failed", "dead"]
    assert {(event.worker, event.job.id) for event in events} == {(worker.id, fails_twice)}


def test_the_log_has_a_line_an_event_with_ids_as_fields_and_no_arguments(
    jobs: Jobs, fails_twice: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyjobs.worker"):
        worker = Worker(jobs)
        worker.run(once=True)

    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [line["event"] for line in lines] == [
        "started",
        "claimed",
        "failed",
        "claimed",
        "failed",
        "dead",
        "stopped",
    ]
    assert {line["worker"] for line in lines} == {worker.id}
    about = [line for line in lines if "job_id" in line]
    assert {(line["job_id"], line["job"], line["queue"]) for line in about} == {(str(fails_twice), "job", "default")}
    assert about[-1]["level"] == "ERROR"
    assert SECRET not in caplog.text
    assert SECRET not in json.dumps(lines)
