"""``pyjobs worker``, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Pyjobs
from pyjobs import Jobs
from servers.databases import Database

PATIENCE = 30.0


@pytest.fixture
def command(shop: str, elsewhere: Path, database: Database) -> list[str]:
    return [sys.executable, "-m", "pyjobs", "worker", "--app", shop, "--database", database.url]


@pytest.fixture
def queue(database: Database, shop: str, pyjobs: Pyjobs) -> Iterator[Jobs]:
    """The application's jobs, defined."""
    jobs = Jobs(database.url)
    jobs.define("welcome", nothing, queue="mail")
    jobs.define("explode", nothing, max_attempts=1)
    for name in ("rebuild", "bury"):
        jobs.define(name, nothing)
    jobs.sync()
    yield jobs
    jobs.close()


def nothing(**args: object) -> None: ...


def wait_for(happened: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if happened():  # type: ignore[operator]
            return
        time.sleep(0.02)
    pytest.fail(f"{what} did not happen")


def test_once_performs_what_is_due_and_ends(command: list[str], queue: Jobs) -> None:
    queue.enqueue_many(
        [("welcome", {"user_id": n}) for n in range(20)]
        + [("rebuild", {"tenant": "a"}), ("explode", {"secret": "hunter2"}), ("bury", {})]
    )
    queue.enqueue("welcome", {"user_id": 1}, delay="1h")
    ran = subprocess.run([*command, "--once", "--concurrency", "4"], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "23 claimed: 21 done, 2 failed, 2 dead\n"
    assert queue.stats().totals == {"done": 21, "dead": 2, "scheduled": 1}
    assert "hunter2" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_only_the_queues_it_is_given(command: list[str], queue: Jobs) -> None:
    queue.enqueue("welcome", {"user_id": 1})
    queue.enqueue("rebuild", {"tenant": "a"})
    for option in (["-q", "none,other"], ["-q", "other", "--queue", "mail"]):
        ran = subprocess.run([*command, "--once", *option], capture_output=True, text=True, timeout=PATIENCE)
        assert ran.returncode == 0, ran.stderr
    assert {job.name: job.state for job in queue.list()} == {"welcome": "done", "rebuild": "pending"}


def test_its_log_can_be_json(command: list[str], queue: Jobs) -> None:
    id = queue.enqueue("bury")
    ran = subprocess.run(
        [*command, "--once", "--log-format", "json"], capture_output=True, text=True, timeout=PATIENCE
    )
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert any(line.get("event") == "dead" and line.get("job_id") == str(id) for line in lines)


def test_its_log_can_be_quiet(command: list[str], queue: Jobs) -> None:
    queue.enqueue("welcome", {"user_id": 1})
    ran = subprocess.run(
        [*command, "--once", "--log-level", "error"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(command: list[str], queue: Jobs, number: signal.Signals) -> None:
    queue.enqueue("welcome", {"user_id": 1})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: queue.count(state="done") == 1, "the job")
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out == "1 claimed: 1 done\n"
    assert [worker for worker in queue.workers() if worker.live] == []


def test_an_application_without_jobs_is_refused(pyjobs: Pyjobs, elsewhere: Path, database: Database) -> None:
    elsewhere.joinpath("bare.py").write_text("from pyjobs import Jobs\njobs = Jobs()\n")
    ran = pyjobs("worker", "--app", "bare", "--database", database.url, "--once")
    assert ran.status == 1
    assert ran.err.splitlines()[-2].startswith("pyjobs: PYJOBS_INVALID_CONFIGURATION: ")


def test_the_application_may_be_named_by_pyproject(
    pyjobs: Pyjobs, shop: str, elsewhere: Path, database: Database, queue: Jobs
) -> None:
    elsewhere.joinpath("pyproject.toml").write_text(f'[tool.pyjobs]\napp = "{shop}"\ndatabase = "{database.url}"\n')
    queue.enqueue("welcome", {"user_id": 1})
    ran = subprocess.run(
        [sys.executable, "-m", "pyjobs", "worker", "--once"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    assert queue.count(state="done") == 1
