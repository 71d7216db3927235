"""Fires schedules and sweeps, in every worker alike, on a connection of its own.

That all of them do it is safe and needs no leader: a moment is fired by compare and set, once however many
try, and a sweep takes what others have not locked. Moments are counted from the database's clock; this one's
clock only measures how long to sleep. Sleeps are jittered, so that workers started together do not come together.

A schedule that cannot be read, or whose job the database refuses, is logged once until it changes, and left standing:
it stops neither the others nor the worker.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import astuple, dataclass
from datetime import datetime

from pyjobs.cron import next_moment
from pyjobs.errors import PyjobsError, StoreUnavailable
from pyjobs.records import ScheduleRecord
from pyjobs.store.base import Store
from pyjobs.worker.trouble import Trouble

_log = logging.getLogger("pyjobs.worker")

_LOOK_EVERY = 5.0
"""How long a schedule that was put or moved may go unseen, in seconds."""
_SWEEP_EVERY = 15.0
_SWEEP_LIMIT = 1_000
_LATE = 0.2
"""Up to so much later than the moment, in seconds, a worker wakes to fire it."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What this worker sees to, and how often it sweeps, in seconds."""

    schedules: bool
    sweep_every: float

    @classmethod
    def of(cls, *, schedules: bool, lease_ms: int) -> Duties:
        """A short lease asks for short sweeps: a lost job waits for both."""
        return cls(schedules, min(_SWEEP_EVERY, lease_ms / 2_000))


class Scheduler:
    """Does its duties until the event is set."""

    def __init__(self, store: Store, duties: Duties) -> None:
        self._store = store
        self._duties = duties
        self._broken: dict[str, ScheduleRecord] = {}

    def run(self, ended: threading.Event) -> None:
        trouble = Trouble("scheduler")
        sweep_at = time.monotonic()
        while True:
            try:
                rest = self.fire() if self._duties.schedules else _LOOK_EVERY
                if time.monotonic() >= sweep_at:
                    self.sweep()
                    sweep_at = time.monotonic() + _jittered(self._duties.sweep_every)
                trouble.over()
                rest = min(rest, max(0.0, sweep_at - time.monotonic()))
            except Exception as error:  # whatever the database does, the next moment will come
                rest = trouble.met(error)
            if ended.wait(rest):
                return

    def do(self) -> None:
        """All of it, once."""
        if self._duties.schedules:
            self.fire()
        self.sweep()

    def fire(self) -> float:
        """Fire what has come; answers for how long nothing will, in seconds."""
        schedules = self._store.schedules()
        now = self._store.now()
        rest = _jittered(_LOOK_EVERY)
        for schedule in schedules:
            if schedule.enabled:
                upcoming = self._fire(schedule, now) if schedule.next_run_at <= now else schedule.next_run_at
                if upcoming is not None:
                    rest = min(rest, (upcoming - now).total_seconds() + random.uniform(0, _LATE))
        return rest

    def _fire(self, schedule: ScheduleRecord, now: datetime) -> datetime | None:
        """Fire the moment that has come; answers the one after it, None when this schedule cannot go on."""
        try:
            upcoming = next_moment(
                cron=schedule.cron, every_ms=schedule.every_ms, timezone=schedule.timezone, after=now
            )
            job_id = self._store.tick_schedule(schedule.name, schedule.next_run_at, upcoming)
        except StoreUnavailable:
            raise
        except PyjobsError as error:
            if self._broken.get(schedule.name) != schedule:
                _log.error("the schedule %s cannot fire: %s", schedule.name, error, extra={"schedule": schedule.name})
            self._broken[schedule.name] = schedule
            return None
        self._broken.pop(schedule.name, None)
        if job_id is not None:
            fields = {"schedule": schedule.name, "job_id": str(job_id), "job": schedule.job}
            _log.info("the schedule %s enqueued %s %s", schedule.name, schedule.job, job_id, extra=fields)
        return upcoming

    def sweep(self) -> None:
        """Sweep until a sweep was not full."""
        while max(astuple(self._store.sweep({"limit": _SWEEP_LIMIT}))) >= _SWEEP_LIMIT:
            pass


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)
