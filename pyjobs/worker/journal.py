"""What happened: one log line an event, the hooks, and the counts that ``Worker.run`` answers with.

A line carries ids and names as fields and never holds arguments; an exception's message may, so a line shows its
type only (message and stack are in the job's failures). Hooks run on a thread of their own, one after the
other: one that is slow delays other hooks, one that raises is logged, and neither changes anything else. They
are told after the database has accepted the outcome.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal

from pyjobs.records import ClaimedJob, Outcome, Settled
from pyjobs.worker.attempt import Ending, job_fields

_log = logging.getLogger("pyjobs.worker")

_FAREWELL = 5.0

EventKind = Literal["claimed", "done", "failed", "dead", "released", "snoozed", "cancelled", "lost"]

_LEVELS: dict[EventKind, int] = {
    "claimed": logging.DEBUG,
    "done": logging.INFO,
    "failed": logging.WARNING,
    "dead": logging.ERROR,
    "released": logging.INFO,
    "snoozed": logging.INFO,
    "cancelled": logging.INFO,
    "lost": logging.WARNING,
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker did. ``failed`` counts failed attempts; of those, ``dead`` had no other to follow."""

    claimed: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    released: int = 0
    snoozed: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """A failed attempt as hooks hear of it. ``kind`` and the texts are as in ``jobs_failures``."""

    kind: str
    type: str | None
    message: str | None
    stack: str | None
    error: BaseException | None
    """The exception itself; None when the handler was not what failed, or failed in a process of its own."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job in this worker. ``ran_ms`` is None when its handler did not begin."""

    kind: EventKind
    worker: str
    job: ClaimedJob
    ran_ms: int | None = None
    failure: AttemptFailure | None = None


FailureHook = Callable[[ClaimedJob, AttemptFailure], object]
EventHook = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What an application wants to be told."""

    on_dead: FailureHook | None = None
    on_error: FailureHook | None = None
    on_event: EventHook | None = None


class Journal:
    """Of each kind of event one thread tells: the dispatcher of what was claimed, the settler of all else."""

    def __init__(self, worker: str, hooks: Hooks) -> None:
        self._worker = worker
        self._hooks = hooks
        self._counts: Counter[EventKind] = Counter()
        self._told: SimpleQueue[Event | None] | None = None
        if hooks != Hooks():
            self._told = SimpleQueue()
            self._teller = threading.Thread(target=self._tell, args=(self._told,), name="pyjobs-hooks", daemon=True)
            self._teller.start()

    def claimed(self, jobs: Sequence[ClaimedJob]) -> None:
        for job in jobs:
            self._write("claimed", job)

    def settled(self, ending: Ending, outcome: Outcome, answer: Settled | None) -> None:
        """The database's answer to an outcome; None when it gave none for it."""
        if answer is None or not answer.accepted:
            self.lost(ending)
            return
        failure = _failure(ending, outcome) if outcome.outcome == "failed" else None
        self._write(outcome.outcome, ending.claimed, ending.ran, failure)
        if failure is not None and answer.state == "dead":
            self._write("dead", ending.claimed, ending.ran, failure)

    def lost(self, ending: Ending) -> None:
        """The job was somebody else's by the time its attempt ended."""
        self._write("lost", ending.claimed, ending.ran)

    def report(self) -> Report:
        return Report(**{kind: self._counts[kind] for kind in _LEVELS if kind != "lost"})

    def close(self) -> None:
        """Tell the hooks what is left to tell, for a bounded time."""
        if self._told is not None:
            self._told.put(None)
            self._teller.join(_FAREWELL)

    def _write(
        self, kind: EventKind, job: ClaimedJob, ran: float | None = None, failure: AttemptFailure | None = None
    ) -> None:
        self._counts[kind] += 1
        ran_ms = None if ran is None else round(ran * 1_000)
        level = _LEVELS[kind]
        if _log.isEnabledFor(level):
            fields = job_fields(job) | {"event": kind, "worker": self._worker, "ran_ms": ran_ms}
            _log.log(level, "%s %s %s%s", kind, job.name, job.id, _remark(job, ran_ms, failure), extra=fields)
        if self._told is not None:
            self._told.put(Event(kind, self._worker, job, ran_ms, failure))

    def _tell(self, told: SimpleQueue[Event | None]) -> None:
        while (event := told.get()) is not None:
            if self._hooks.on_event is not None:
                self._call(self._hooks.on_event, event)
            if event.failure is not None:
                hook = self._hooks.on_dead if event.kind == "dead" else self._hooks.on_error
                if hook is not None:
                    self._call(hook, event.job, event.failure)

    def _call(self, hook: Callable[..., object], *args: object) -> None:
        try:
            hook(*args)
        except BaseException:
            _log.exception("a hook raised", extra={"event": "hook", "worker": self._worker})


def _failure(ending: Ending, outcome: Outcome) -> AttemptFailure:
    detail = outcome.detail
    return AttemptFailure(detail["kind"], detail.get("type"), detail.get("message"), detail.get("stack"), ending.error)


def _remark(job: ClaimedJob, ran_ms: int | None, failure: AttemptFailure | None) -> str:
    ran = "" if ran_ms is None else f" in {ran_ms} ms"
    if failure is None:
        return ran
    return f"{ran}: {failure.kind} {failure.type}, attempt {job.attempt} of {job.max_attempts}"
