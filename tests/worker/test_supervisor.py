"""``pyjobs worker --processes N``: there are N workers, whatever happens to them, until they are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from pyjobs.app import Jobs
from pyjobs.store.base import Store
from pyjobs.worker.supervisor import Restarts, Supervisor
from servers.databases import Database
from steps import found, state
from worker import apart
from worker.running import PATIENCE, eventually, is_gone, read

TESTS = Path(__file__).parents[1]


class Supervised:
    """A supervisor of two workers, as a process."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pyjobs", "worker", "--processes", "2", "--poll", "200ms", *options],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(TESTS)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def said(self) -> str:
        return self.log.read_text()

    def ended(self, status: int = 0) -> str:
        """What its workers printed, once it has ended like that."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == status, self.said()
        return out

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)  # also waits for its workers, which print to the same place


class Supervise(Protocol):
    def __call__(self, *options: str) -> Supervised: ...


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    apart.jobs.use(database.url)
    apart.jobs.sync()
    yield apart.jobs
    apart.jobs.close()


@pytest.fixture
def supervise(database: Database, tmp_path: Path) -> Iterator[Supervise]:
    started: list[Supervised] = []

    def supervise(*options: str) -> Supervised:
        started.append(Supervised(tmp_path, ["--app", "worker.apart:jobs", "--database", database.url, *options]))
        return started[-1]

    yield supervise
    for each in started:
        each.kill()


def pids(store: Store) -> set[int]:
    """The processes of the workers that are live, or were when they were killed."""
    return {json.loads(worker.info)["pid"] for worker in store.workers()}


def two(store: Store) -> set[int]:
    return eventually(lambda: len(found := pids(store)) == 2 and found)  # type: ignore[no-any-return]


def test_signals_end_all_in_order(jobs: Jobs, store: Store, supervise: Supervise, tmp_path: Path) -> None:
    supervisor = supervise("--concurrency", "1")
    workers = two(store)
    ids = [
        jobs.enqueue("waits", {"began": str(tmp_path / f"{number}"), "go": str(tmp_path / "go")}) for number in (0, 1)
    ]
    assert {int(read(tmp_path / f"{number}")) for number in (0, 1)} == workers

    # As a service manager does that tells every process of a service.
    supervisor.signal(signal.SIGTERM)
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: supervisor.said().count("stopping\n") == 2)
    third = jobs.enqueue("plain")
    (tmp_path / "go").touch()

    assert supervisor.ended() == "1 claimed: 1 done\n" * 2
    assert supervisor.said().count("stopping\n") == 2  # each has heard it twice and heeded it once
    assert [state(store, id) for id in (*ids, third)] == ["done", "done", "pending"]
    assert all(is_gone(pid) for pid in workers)


def test_a_second_signal_ends_all_at_once(jobs: Jobs, store: Store, supervise: Supervise, tmp_path: Path) -> None:
    supervisor = supervise("--grace", "1h")
    workers = two(store)
    id = jobs.enqueue("waits", {"began": str(tmp_path / "began"), "go": str(tmp_path / "go")})
    read(tmp_path / "began")
    supervisor.signal(signal.SIGINT)
    supervisor.signal(signal.SIGQUIT)
    supervisor.ended()

    assert (found(store, id).state, found(store, id).attempts) == ("pending", 0)
    assert all(is_gone(pid) for pid in workers)


def test_a_worker_that_is_killed_is_replaced(jobs: Jobs, store: Store, supervise: Supervise) -> None:
    supervisor = supervise()
    killed, other = two(store)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: pids(store) - {killed, other})
    assert not is_gone(other)
    supervisor.signal(signal.SIGTERM)
    supervisor.ended()

    assert f"worker process {killed} was ended by Killed: another starts in" in supervisor.said()


def test_once_ends_when_all_is_done(jobs: Jobs, store: Store, supervise: Supervise) -> None:
    jobs.enqueue_many([("plain", {})] * 50)
    supervisor = supervise("--once")
    out = supervisor.ended()

    assert store.count({"state": "done"}) == 50
    assert sum(int(line.partition(" ")[0]) for line in out.splitlines()) == 50
    assert supervisor.said().count("process") == 2  # none was started again


def test_no_worker_outlives_a_supervisor_that_is_killed(
    jobs: Jobs, store: Store, supervise: Supervise, tmp_path: Path
) -> None:
    supervisor = supervise()
    workers = two(store)
    id = jobs.enqueue("waits", {"began": str(tmp_path / "began"), "go": str(tmp_path / "go")})
    busy = int(read(tmp_path / "began"))
    supervisor.process.kill()
    supervisor.process.wait()
    eventually(lambda: all(is_gone(pid) for pid in workers - {busy}))
    (tmp_path / "go").touch()
    eventually(lambda: is_gone(busy))

    assert state(store, id) == "done"
    assert pids(store) == set()


def test_a_mistake_is_told_once_and_not_tried_again(supervise: Supervise) -> None:
    supervisor = supervise("--app", "worker.nothing:jobs")
    supervisor.ended(1)

    assert supervisor.said().count("PYJOBS_INVALID_CONFIGURATION") == 1


class TestGivingUp:
    QUICK = Restarts(first=0.01, longest=0.02, patience=3)

    def test_a_worker_that_fails_over_and_over_ends_the_others_too(self, tmp_path: Path) -> None:
        """The first to start goes on until its lifeline says stop; the others fail."""
        started: list[int] = []

        def command(lifeline: int) -> list[str]:
            started.append(lifeline)
            good = f"import os; open({str(tmp_path / 'stopped')!r}, 'wb').write(os.read({lifeline}, 1))"
            return [sys.executable, "-c", good if len(started) == 1 else "raise SystemExit(3)"]

        assert Supervisor(command, 2, once=False, restarts=self.QUICK).run() == 1
        assert len(started) == 1 + 3
        assert (tmp_path / "stopped").read_bytes() == b"s"

    @pytest.mark.parametrize("command", [["/nowhere/at/all"], [sys.executable, "-c", "raise SystemExit(1)"]])
    def test_it_ends_with_once_too(self, command: list[str]) -> None:
        assert Supervisor(lambda lifeline: command, 1, once=True, restarts=self.QUICK).run() == 1

    def test_one_that_lives_long_enough_is_replaced_for_ever(self) -> None:
        started: list[int] = []

        def command(lifeline: int) -> list[str]:
            started.append(lifeline)
            if len(started) == 10:
                os.kill(os.getpid(), signal.SIGTERM)
            return [sys.executable, "-c", "raise SystemExit(3)"]

        restarts = Restarts(first=0.01, longest=0.02, patience=3, young=0)
        assert Supervisor(command, 1, once=False, restarts=restarts).run() == 0
        assert len(started) == 10
