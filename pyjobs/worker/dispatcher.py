"""The one thread that claims: it asks for as many jobs as there is room for and hands them to the crew until the worker
stops, and then sees that whatever it holds is given back.

Nothing is lost by a call that fails: a claim is asked again *with its token*, which answers what the first one took. So
jobs claimed by a call whose reply was lost are found again rather than left to their lease.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyjobs.definition import Job
from pyjobs.errors import PyjobsError, StoreUnavailable
from pyjobs.records import ClaimedJob, ClaimRequest
from pyjobs.store.base import Store
from pyjobs.worker import outcomes
from pyjobs.worker.attempt import Attempt, Ending, Hand
from pyjobs.worker.executors import Crew
from pyjobs.worker.inbox import Inbox
from pyjobs.worker.journal import Journal
from pyjobs.worker.trouble import Trouble

_log = logging.getLogger("pyjobs.worker")

_LARGEST_CLAIM = 1_000
_MOST_OWED = 10_000
"""While so many endings wait for the settler, nothing is claimed: if it cannot get on, as somebody holds a lock, what
it owes is bounded."""
_HORIZON = 0.05
"""Jobs are fetched ahead for this long: about the time a slow round trip takes."""
_PATIENCE = 1.0
"""A job that was fetched ahead and has waited this long for its turn is given back for others to run."""
_LAST_WORDS = 1.0
"""How long handlers have to stop once the grace is over, in seconds."""
_FAREWELL = 5.0
"""How long to wait for what is left to be settled when the worker ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What this worker claims and how; times in seconds but the lease."""

    worker: str
    definitions: Mapping[str, Job[..., Any]]
    queues: tuple[str, ...] | None
    names: tuple[str, ...] | None
    lease_ms: int
    poll: float
    max_poll: float
    grace: float
    prefetch: int
    """At most so many jobs are held beyond those that run."""
    once: bool


class Dispatcher:
    """Runs until stopped, or with ``plan.once`` until nothing that is due is left. ``settling`` is the settler's."""

    def __init__(
        self, plan: Plan, store: Store, crew: Crew, hand: Hand, inbox: Inbox, journal: Journal, settling: Trouble
    ) -> None:
        self._plan = plan
        self._store = store
        self._crew = crew
        self._hand = hand
        self._inbox = inbox
        self._journal = journal
        self._settling = settling
        self._trouble = Trouble("dispatcher")
        self._request: ClaimRequest | None = None  # a claim whose answer is not known yet
        self._pace: float | None = None  # seconds from one ending to the next, lately
        self._stirred = threading.Event()
        self._stopping = threading.Event()
        self._hurrying = threading.Event()

    def stop(self) -> None:
        """Claim no more, finish what is held within the grace, end. Called again: end now."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()
        self.stir()

    def stir(self) -> None:
        """Something has changed: end the sleep, or the next one."""
        self._stirred.set()
        self._store.wake()

    def run(self) -> None:
        """Serve, then wind down. With ``plan.once``: raise what kept it or the settler from the database for longer
        than the grace."""
        try:
            self._serve()
        finally:
            self._wind_down()

    def _serve(self) -> None:
        idle = self._plan.poll
        while not self._stopping.is_set():
            self._give_up_in_time()
            try:
                may_be_last = self._owes_nothing  # before the claim: what is settled after it can make others due
                asked, found = self._turn()
                if 0 < asked <= 4 * found:
                    continue  # there may be more, as a claim of limited work may be content with a quarter
                if self._plan.once and asked and not found and may_be_last:
                    return
                stirred = self._store.wait(min(idle, _PATIENCE) if self._crew.waiting else idle)
                idle = self._plan.poll if found or stirred else min(idle * 2, self._plan.max_poll)
            except Exception as error:  # whatever the database does, handlers go on
                self._stopping.wait(self._trouble.met(error))

    def _give_up_in_time(self) -> None:
        if self._plan.once:
            for trouble in (self._trouble, self._settling):
                trouble.give_up_after(self._plan.grace)

    @property
    def _owes_nothing(self) -> bool:
        return not self._hand and not self._inbox

    def _turn(self) -> tuple[int, int]:
        """Fetch what there is room for, if any; how many were asked for and how many came."""
        self._look_at_pace()
        self._put_back(self._stale())
        room = self._room()
        if self._request is None and room > 0:
            self._request = self._ask(room)
        if self._request is None:
            return 0, 0
        asked = self._request.max_jobs
        jobs = self._claim(self._request)
        self._journal.claimed(jobs)
        self._begin(jobs)
        return asked, len(jobs)

    # How much to hold

    def _look_at_pace(self) -> None:
        pace = self._crew.pace()
        if pace is not None:
            self._pace = pace if self._pace is None else (self._pace + pace) / 2

    def _stale(self) -> list[Ending]:
        """Fetched ahead in vain: the jobs before them take longer than those did that were measured."""
        stale = self._crew.withdraw(time.monotonic() - _PATIENCE)
        if stale:
            self._pace = None
        return stale

    def _room(self) -> int:
        """How many more jobs to hold: enough that nobody is idle while a call is on its way."""
        ahead = 0 if self._pace is None else int(_HORIZON / max(self._pace, 1e-6))
        wanted = self._crew.size + min(ahead, self._plan.prefetch) - self._crew.load
        return min(wanted, _LARGEST_CLAIM, _MOST_OWED - len(self._inbox))

    # To the database and back

    def _ask(self, room: int) -> ClaimRequest:
        return ClaimRequest(
            worker=self._plan.worker,
            token=uuid4(),
            queues=self._plan.queues,
            names=self._plan.names,
            max_jobs=room,
            lease_ms=self._plan.lease_ms,
        )

    def _claim(self, request: ClaimRequest) -> Sequence[ClaimedJob]:
        try:
            jobs = self._store.claim(request)
        except StoreUnavailable:
            raise
        except PyjobsError:
            self._request = None  # a claim that is refused has taken nothing
            raise
        self._request = None
        self._trouble.over()
        return jobs

    def _begin(self, jobs: Sequence[ClaimedJob]) -> None:
        attempts = []
        for claimed in jobs:
            job = self._plan.definitions.get(claimed.name)
            if job is None:
                self._inbox.put(outcomes.unknown_name(claimed))
            else:
                attempts.append(Attempt(claimed, job, self._plan.worker))
        for lost in self._hand.take(attempts):
            self._crew.halt(lost, "lost")
        self._crew.start(attempts)

    # The end

    def _wind_down(self) -> None:
        """Give back what has not begun, let the rest finish, then ask it to stop, then leave it behind."""
        self._put_back(self._crew.withdraw())
        self._wait_until_settled(self._plan.grace, self._hurrying.is_set)
        self._crew.halt_all("stop")
        self._wait_until_settled(_LAST_WORDS, self._hurrying.is_set)
        self._put_back(self._crew.abandon())
        self._wait_until_settled(_FAREWELL, lambda: self._hurrying.is_set() and self._settling.lasted > 0)
        if unsettled := len(self._inbox):
            _log.error("%d jobs could not be settled: they run again when their lease is over", unsettled)

    def _wait_until_settled(self, seconds: float, vain: Callable[[], bool]) -> None:
        """Until nothing is held, the time is up, or there is no use in it."""
        deadline = time.monotonic() + seconds
        while True:
            rest = self._recover()
            left = deadline - time.monotonic()
            if left <= 0 or vain() or (self._owes_nothing and self._request is None):
                return
            self._stirred.wait(min(left, rest))
            self._stirred.clear()

    def _recover(self) -> float:
        """Give back what a claim brought whose answer was not heard; how long until it may be asked again."""
        if self._request is not None:
            try:
                jobs = self._claim(self._request)
            except Exception as error:
                return self._trouble.met(error)
            self._journal.claimed(jobs)
            self._put_back(Ending(each, outcomes.not_performed(each).outcome) for each in jobs)
        return math.inf

    def _put_back(self, endings: Iterable[Ending]) -> None:
        for each in endings:
            self._inbox.put(each)
