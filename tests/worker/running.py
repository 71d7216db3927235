"""A worker on a thread, and how to wait for what it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pyjobs.app import Jobs
from pyjobs.worker import Report, Worker

PATIENCE = 20.0
"""How long a test waits for what must happen, in seconds. Nothing takes that long unless something is wrong."""


def eventually(question: Callable[[], Any]) -> Any:
    """The first true answer; fails when there is none in time."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := question()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return answer


def read(file: Path) -> str:
    """What a job has written there, once it has."""
    eventually(file.exists)
    return file.read_text()


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or nothing of it but its exit status."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


class Running:
    """A worker that runs on a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.result: Report | BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.result = self.worker.run()
        except BaseException as error:
            self.result = error

    def stop(self) -> None:
        self.worker.stop()

    def report(self) -> Report:
        """What it did, once it has ended."""
        self.thread.join(PATIENCE)
        assert isinstance(self.result, Report), self.result
        return self.result


class Work(Protocol):
    def __call__(self, jobs: Jobs | None = None, **options: Any) -> Running: ...
