"""One claimed job in this worker's hands, how its attempt ends, and all that the worker holds.

An attempt ends once: whoever takes it out of the crew's list of running ones (its own thread, the watch on
its timeout, the dispatcher when the worker stops) says what it came to, and everything later is ignored.
Once it was halted, what its handler still returns or raises decides nothing: a handler that sees
``context.cancelled`` and returns early must not count as done.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from pyjobs.context import JobContext
from pyjobs.definition import Job
from pyjobs.records import ClaimedJob, Outcome

Halt = Literal["timeout", "cancel", "lost", "stop"]


@dataclass(slots=True, eq=False)
class Attempt:
    """A claimed job together with its handler. Moments are of ``time.monotonic``: they only measure, here."""

    claimed: ClaimedJob
    job: Job[..., Any]
    worker: str
    arrived: float = field(default_factory=time.monotonic)
    began: float | None = None
    deadline: float = math.inf
    halted: Halt | None = None
    task: asyncio.Task[None] | None = None
    _context: JobContext | None = None

    def __str__(self) -> str:
        return f"{self.claimed.name} {self.claimed.id}"

    @property
    def fields(self) -> dict[str, object]:
        """What a log line about it carries."""
        return job_fields(self.claimed)

    @property
    def is_apart(self) -> bool:
        """Its handler runs in a process of its own."""
        return self.job.isolation == "process"

    def context(self) -> JobContext:
        """What the handler may know; made when it asks, as most do not."""
        self._context = context = JobContext.of(self.claimed, self.worker)
        if self.halted:  # while it was made: looked at only now, after it can be seen by who halts
            context.cancelled.set()
        return context

    def begin(self, allowance: float = 0.0) -> None:
        """Its time runs from now; ``allowance`` is what it may take besides, in seconds."""
        self.began = now = time.monotonic()
        if self.claimed.timeout_ms is not None:
            self.deadline = now + self.claimed.timeout_ms / 1_000 + allowance

    def halt(self, why: Halt) -> None:
        """Ask the handler to stop; the first reason stands."""
        self.halted = self.halted or why
        if self._context is not None:
            self._context.cancelled.set()


def job_fields(claimed: ClaimedJob) -> dict[str, object]:
    """A job's ids as fields of a log line."""
    return {
        "job_id": str(claimed.id),
        "job": claimed.name,
        "queue": claimed.queue,
        "attempt": claimed.attempt,
    }


@dataclass(slots=True)
class Ending:
    """What goes from the executors to the settler. No outcome: the job is not ours any more."""

    claimed: ClaimedJob
    outcome: Outcome | None
    error: BaseException | None = None
    ran: float | None = None
    """Seconds; None when it never began."""


class Hand:
    """The claims this worker answers for, from the claim's reply to the settle's: what a heartbeat extends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Attempt] = {}

    def take(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        """Hold these too. Answers the older attempts at the same jobs, which must have been lost."""
        with self._lock:
            older = [self._held[each.claimed.id] for each in attempts if each.claimed.id in self._held]
            self._held.update((each.claimed.id, each) for each in attempts)
        return older

    def drop(self, claimed: Iterable[ClaimedJob]) -> None:
        with self._lock:
            for job in claimed:
                held = self._held.get(job.id)
                if held is not None and held.claimed.token == job.token:
                    del self._held[job.id]

    def attempts(self) -> list[Attempt]:
        with self._lock:
            return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)
