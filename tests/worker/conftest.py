"""Workers on a real database; all that a test starts are stopped when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.worker import Worker
from servers.databases import Database
from worker.running import PATIENCE, Running, Work


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    """An application on that database, which has no jobs yet."""
    jobs = Jobs(database.url, name="tests")
    yield jobs
    jobs.close()


@pytest.fixture
def work(jobs: Jobs) -> Iterator[Work]:
    """Starts a worker; all of them are stopped, at once, when the test ends."""
    started: list[Running] = []

    def start(of: Jobs | None = None, **options: Any) -> Running:
        running = Running(Worker(of or jobs, **{"poll_interval": "200ms", **options}))
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()
        running.stop()
    for running in started:
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive()
