"""The one thread that claims and settles: rows go from here to the crew, endings come back and go to the database.

Each turn it sends what has ended and asks for as many jobs as there is room for, both in one call. While that call
is on its way the crew goes on, so the more there is to do, the more each call carries. Where there may be more, another
thread sees to what a call brought while the next one is made, so that neither the database nor this process waits for
the other.

Nothing is lost by a call that fails. Outcomes are kept until one was answered, and settling again what was settled is
answered the same. A claim is asked again *with its token*, which answers what the first one took; so jobs
claimed by a call whose reply was lost are found again rather than left to their lease.

An outcome that the database refuses (a delay it does not take, say) is sent again as a plain failure, so that it
can hold up neither the others nor its own job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from pyjobs.definition import Job
from pyjobs.errors import PyjobsError, StoreUnavailable
from pyjobs.records import ClaimedJob, ClaimRequest, Outcome, Settled
from pyjobs.store.base import Store
from pyjobs.worker import outcomes
from pyjobs.worker.aside import Aside
from pyjobs.worker.attempt import Attempt, Ending, Hand
from pyjobs.worker.executors import Crew
from pyjobs.worker.inbox import Inbox
from pyjobs.worker.journal import Journal
from pyjobs.worker.trouble import Trouble

_log = logging.getLogger("pyjobs.worker")

_LARGEST_CLAIM = 1_000
_HORIZON = 0.05
"""Jobs are fetched ahead for this long: about the time a slow round trip takes."""
_PATIENCE = 1.0
"""A job that was fetched ahead and has waited this long for its turn is given back for others to run."""
_LAST_WORDS = 1.0
"""How long handlers have to stop once the grace is over, in seconds."""
_FAREWELL = 5.0
"""How long to try to settle what is left when the worker ends."""


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


@dataclass(frozen=True, slots=True)
class Reply:
    """What one call to the database brought: an answer for each of the endings it was sent, and jobs."""

    sent: Sequence[tuple[Ending, Outcome]] = ()
    answers: Sequence[Settled | None] = ()
    asked: int = 0
    jobs: Sequence[ClaimedJob] = ()

    @property
    def more(self) -> bool:
        """It brought all that was asked for, so there may be more."""
        return 0 < self.asked <= len(self.jobs)


class Dispatcher:
    """Runs until stopped, or with ``plan.once`` until nothing that is due is left."""

    def __init__(self, plan: Plan, store: Store, crew: Crew, hand: Hand, inbox: Inbox, journal: Journal) -> None:
        self._plan = plan
        self._store = store
        self._crew = crew
        self._hand = hand
        self._inbox = inbox
        self._journal = journal
        self._trouble = Trouble("dispatcher")
        self._aside = Aside("pyjobs-replies")
        self._seeing: Future[None] | None = None  # to the last reply, while the next call is made
        self._arriving = 0  # jobs of that one, until they are with the crew
        self._unsettled: list[tuple[Ending, Outcome]] = []
        self._request: ClaimRequest | None = None  # a claim whose answer is not known yet
        self._pace: float | None = None  # seconds from one ending to the next, lately
        self._stopping = threading.Event()
        self._hurrying = threading.Event()

    def stop(self) -> None:
        """Claim no more, finish what is held within the grace, end. Called again: end now."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()
        self._inbox.wake()

    def run(self) -> None:
        """Serve, then wind down. With ``plan.once``: raise what kept it from the database for longer than the grace."""
        try:
            self._serve()
        finally:
            self._wind_down()
            self._aside.close()

    def _serve(self) -> None:
        idle = self._plan.poll
        while not self._stopping.is_set():
            try:
                reply = self._turn()
                if reply.more or self._request is not None:
                    continue
                if self._plan.once and self._is_finished(reply):
                    return
                if reply.jobs or reply.sent:
                    idle = self._plan.poll
                self._inbox.sleep(min(idle, _PATIENCE) if self._crew.waiting else idle)
                idle = min(idle * 2, self._plan.max_poll)
            except Exception as error:  # whatever the database does, handlers go on and are settled later
                rest = self._trouble.met(error)
                if self._plan.once and self._trouble.lasted > self._plan.grace:
                    raise
                self._stopping.wait(rest)

    def _turn(self) -> Reply:
        self._collect()
        self._note(self._stale())
        room = self._room()
        if self._request is None and room > 0:
            self._request = self._ask(room)
        reply = self._exchange()
        try:
            self._wait_aside()
        finally:  # whatever became of the last one, this one holds jobs too
            self._hand_over(reply)
        return reply

    def _hand_over(self, reply: Reply) -> None:
        if reply.more:
            self._arriving = len(reply.jobs)
            self._seeing = self._aside.submit(lambda: self._see_to(reply))
        else:
            self._see_to(reply)

    def _wait_aside(self) -> None:
        """Until the last reply is seen to; whatever went wrong there is raised here."""
        seeing, self._seeing = self._seeing, None
        if seeing is not None:
            seeing.result()

    def _is_finished(self, reply: Reply) -> bool:
        """Nothing is held, and a claim made after the last outcome was settled found nothing."""
        nothing_held = not self._hand and not self._unsettled and self._inbox.is_empty
        return reply.asked > 0 and not reply.jobs and nothing_held

    # From the crew

    def _collect(self) -> None:
        self._note(self._inbox.take_all())
        pace = self._crew.pace()
        if pace is not None:
            self._pace = pace if self._pace is None else (self._pace + pace) / 2

    def _note(self, endings: Iterable[Ending]) -> None:
        for ending in endings:
            if ending.outcome is None:
                self._hand.drop([ending.claimed])
                self._journal.lost(ending)
            else:
                self._unsettled.append((ending, ending.outcome))

    def _stale(self) -> list[Ending]:
        """Fetched ahead in vain: the jobs before them take longer than those did that were measured."""
        stale = self._crew.withdraw(time.monotonic() - _PATIENCE)
        if stale:
            self._pace = None
        return stale

    def _room(self) -> int:
        """How many more jobs to hold: enough that nobody is idle while a call is on its way."""
        ahead = 0 if self._pace is None else int(_HORIZON / max(self._pace, 1e-6))
        held = self._arriving + self._crew.load  # in this order: what arrives meanwhile is counted twice, not left out
        return min(self._crew.size + min(ahead, self._plan.prefetch) - held, _LARGEST_CLAIM)

    # To the database and back

    def _exchange(self) -> Reply:
        """Settle what has ended and claim what was asked for, in one call where both are wanted."""
        sent, self._unsettled = self._unsettled, []
        try:
            reply = self._send(sent)
        except BaseException as error:
            self._unsettled = sent + self._unsettled
            if isinstance(error, PyjobsError) and not isinstance(error, StoreUnavailable):
                self._request = None  # a claim that is refused has taken nothing
            raise
        if reply.asked:
            self._request = None
        self._trouble.over()
        return reply

    def _send(self, sent: list[tuple[Ending, Outcome]]) -> Reply:
        request = self._request
        try:
            answers, jobs = self._call([outcome for _, outcome in sent], request)
        except StoreUnavailable:
            raise
        except PyjobsError:
            if not sent:
                raise
            return Reply(*self._settled_one_by_one(sent))  # the claim is made in the next turn
        return Reply(sent, answers, request.max_jobs if request else 0, jobs)

    def _call(
        self, outcomes: list[Outcome], request: ClaimRequest | None
    ) -> tuple[Sequence[Settled | None], Sequence[ClaimedJob]]:
        if outcomes and request is not None:
            return self._store.settle_and_claim(outcomes, request)
        if outcomes:
            return self._store.settle_many(outcomes), []
        if request is not None:
            return [], self._store.claim(request)
        return [], []

    def _ask(self, room: int) -> ClaimRequest:
        return ClaimRequest(
            worker=self._plan.worker,
            token=uuid4(),
            queues=self._plan.queues,
            names=self._plan.names,
            max_jobs=room,
            lease_ms=self._plan.lease_ms,
        )

    def _settled_one_by_one(
        self, sent: list[tuple[Ending, Outcome]]
    ) -> tuple[list[tuple[Ending, Outcome]], list[Settled | None]]:
        """Some outcome was refused: find it, so that the others do not wait for it. It fails its attempt instead."""
        said: list[tuple[Ending, Outcome]] = []
        answers: list[Settled | None] = []
        for ending, outcome in sent:
            try:
                answers += self._store.settle_many([outcome])
            except StoreUnavailable:
                raise
            except PyjobsError as refusal:
                _log.error("an outcome of %s was refused: %s", ending.claimed.id, refusal)
                outcome = outcomes.refused(ending.claimed, refusal)
                answers.append(self._settled_as_refused(outcome))
            said.append((ending, outcome))
        return said, answers

    def _settled_as_refused(self, outcome: Outcome) -> Settled | None:
        """Where even the plain failure is refused the job is let go: its lease ends, and nobody waits for it."""
        try:
            [answer] = self._store.settle_many([outcome])
            return answer
        except StoreUnavailable:
            raise
        except PyjobsError as refusal:
            _log.error("%s cannot be settled at all, and is left to its lease: %s", outcome.id, refusal)
            return None

    def _see_to(self, reply: Reply) -> None:
        """Begin what was claimed, and tell what became of what was settled."""
        try:
            self._hand.drop(ending.claimed for ending, _ in reply.sent)
            self._begin(reply.jobs)
        finally:
            self._arriving = 0
        for (ending, outcome), answer in zip(reply.sent, reply.answers, strict=True):
            self._journal.settled(ending, outcome, answer)
        self._journal.claimed(reply.jobs)

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
        try:
            self._wait_aside()
        except Exception:
            _log.exception("what a claim brought could not be begun: it is left to its lease")
        self._note(self._crew.withdraw())
        self._finish(self._plan.grace)
        self._crew.halt_all("stop")
        self._finish(_LAST_WORDS)
        self._note(self._crew.abandon())
        self._finish(_FAREWELL)
        unsettled = len(self._unsettled)
        if unsettled:
            _log.error("%d jobs could not be settled: they run again when their lease is over", unsettled)

    def _finish(self, seconds: float) -> None:
        """Settle what ends until nothing is held, the time is up or there is a hurry; try once in any case."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._collect()
                reply = self._exchange()
                self._give_back(reply.jobs)
                self._see_to(replace(reply, jobs=()))
                if not self._hand and not self._unsettled:
                    return
                if not self._unsettled and not self._hurrying.is_set():
                    self._inbox.sleep(max(0.0, deadline - time.monotonic()))
            except Exception as error:
                rest = self._trouble.met(error)
                self._hurrying.wait(min(rest, max(0.0, deadline - time.monotonic())))
            if self._hurrying.is_set() or time.monotonic() >= deadline:
                return

    def _give_back(self, jobs: Iterable[ClaimedJob]) -> None:
        """What a claim brought whose answer came after the stop."""
        self._note(Ending(each, outcomes.not_performed(each).outcome) for each in jobs)
