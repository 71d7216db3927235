"""Where handlers run: threads for ``def``, one event loop for ``async def``, processes for ``def`` that asks for one,
and one count for all of them.

At most ``size`` attempts run at once; the others that were handed in wait their turn here. Whoever ends one
starts the next, so a thread that has finished goes on without being woken, and a free place never waits
for the database.

A place is given up once. Every change of ``_running`` and ``_waiting`` is made under one lock, and only who takes
an attempt out of ``_running`` reports it: its own thread or coroutine when the handler ends, the watch when its time
is up, the dispatcher when the worker stops. A handler that comes back later finds itself gone from there, and its
result is ignored. So a handler that never comes back costs a thread, not a place. One in a process costs nothing: the
process is killed, and its thread, which only waits for it, comes back.

The place is given up *before* the ending is reported: who hears of an ending finds the place free.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue

from pyjobs.worker import outcomes
from pyjobs.worker.attempt import Attempt, Ending, Halt
from pyjobs.worker.children import Children
from pyjobs.worker.loop import EventLoop

_log = logging.getLogger("pyjobs.worker")

_LONGEST_NAP = 3_600.0
_WARMING = 60.0
"""How long a process may take to start and import the application before an attempt's time runs, in seconds."""


class Crew:
    """Performs attempts and reports each one's ending, from whatever thread it ended on."""

    def __init__(self, size: int, report: Callable[[Ending], None], children: Children) -> None:
        self.size = size
        self._report = report
        self._children = children
        self._inbox: SimpleQueue[Attempt | None] = SimpleQueue()  # of idle threads
        self._changed = threading.Condition()  # guards all that follows
        self._waiting: deque[Attempt] = deque()
        self._running: set[Attempt] = set()
        self._ended = 0
        self._busy = 0.0
        self._busy_since: float | None = None
        self._idle = 0
        self._alarm = math.inf
        self._closed = False
        self._loop: EventLoop | None = None
        threading.Thread(target=self._watch, name="pyjobs-watch", daemon=True).start()

    @property
    def load(self) -> int:
        """Attempts that run or wait to."""
        return len(self._running) + len(self._waiting)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def pace(self) -> float | None:
        """Seconds from one ending to the next while it had something to do, since this was last asked; None when
        nothing has ended since."""
        with self._changed:
            if self._ended == 0:
                return None
            self._note_busy()
            pace, self._ended, self._busy = self._busy / self._ended, 0, 0.0
            return pace

    def start(self, attempts: Iterable[Attempt]) -> None:
        """Take these in hand: as many as there is room for begin now, the others when one ends."""
        beginning = []
        with self._changed:
            self._waiting.extend(attempts)
            while len(self._running) < self.size and (attempt := self._next()) is not None:
                beginning.append(attempt)
        self._launch(beginning)

    def halt(self, attempt: Attempt, why: Halt) -> None:
        """Ask one attempt to stop. One that waits still ends here; a handler gives way when it will, or times out."""
        with self._changed:
            if attempt in self._waiting:
                self._waiting.remove(attempt)
                waited = True
            elif attempt in self._running and attempt.halted is None:
                waited = False
            else:
                return
            attempt.halt(why)
        if waited:
            self._report(outcomes.ending(attempt, outcomes.not_performed(attempt.claimed)))
        else:
            self._interrupt(attempt)

    def halt_all(self, why: Halt) -> None:
        """Ask all that run to stop."""
        with self._changed:
            running = list(self._running)
        for each in running:
            self.halt(each, why)

    def withdraw(self, arrived_before: float = math.inf) -> list[Ending]:
        """Take back those that have waited since before that moment and have not begun."""
        with self._changed:
            left = [each for each in self._waiting if each.arrived < arrived_before]
            for each in left:
                self._waiting.remove(each)
        return [outcomes.ending(each, outcomes.not_performed(each.claimed)) for each in left]

    def abandon(self) -> list[Ending]:
        """Give up on all that still run, whatever they do next."""
        return self._give_up(lambda attempt: True)

    def close(self) -> None:
        """Let idle threads, the watch, the event loop and the processes end. Nobody waits for a handler that will
        not."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            idle, self._idle = self._idle, 0
            loop, self._loop = self._loop, None
        for _ in range(idle):
            self._inbox.put(None)
        if loop is not None:
            loop.close()
        self._children.close()

    # Places: these are called with the lock held.

    def _next(self) -> Attempt | None:
        """Whose turn it is: it has a place, and its time runs from now."""
        if not self._waiting:
            return None
        attempt = self._waiting.popleft()
        self._running.add(attempt)
        if self._busy_since is None:
            self._busy_since = time.monotonic()
        self._time(attempt, _WARMING if attempt.is_apart else 0.0)
        return attempt

    def _time(self, attempt: Attempt, allowance: float) -> None:
        attempt.begin(allowance)
        if attempt.deadline < self._alarm:
            self._changed.notify_all()

    def _pass_on(self, attempt: Attempt) -> tuple[bool, Attempt | None]:
        """The attempt gives up its place: whether it still had one, and who has it now."""
        if attempt not in self._running:
            return False, None
        self._running.remove(attempt)
        self._ended += 1
        following = self._next()
        if not self._running:
            self._note_busy()
        return True, following

    def _note_busy(self) -> None:
        now = time.monotonic()
        if self._busy_since is not None:
            self._busy += now - self._busy_since
        self._busy_since = now if self._running else None

    def _launch(self, attempts: Sequence[Attempt]) -> None:
        """Begin what has a place."""
        coroutines = [each for each in attempts if each.job.is_async]
        if coroutines:
            self._event_loop().begin(self._coroutine, coroutines)
        for each in attempts:
            if not each.job.is_async:
                self._to_thread(each)

    def _give_up(self, chosen: Callable[[Attempt], bool]) -> list[Ending]:
        with self._changed:
            left = [each for each in self._running if chosen(each)]
            for each in left:
                self._running.remove(each)
                each.halt("stop")
            if not self._running:
                self._note_busy()
        for each in left:
            self._interrupt(each)
        return [outcomes.ending(each, outcomes.not_performed(each.claimed)) for each in left]

    def _interrupt(self, attempt: Attempt) -> None:
        """End a handler that was halted, where that can be done; one on a thread has been asked to."""
        loop = self._loop
        if attempt.is_apart:
            self._children.kill(attempt)
        elif attempt.job.is_async and loop is not None:
            loop.cancel(attempt)

    # Threads, of which each waits for a process where the handler is to run in one

    def _to_thread(self, attempt: Attempt) -> None:
        with self._changed:
            idle = self._idle > 0
            if idle:
                self._idle -= 1
        if idle:
            self._inbox.put(attempt)
            return
        try:
            threading.Thread(target=self._serve, args=(attempt,), name="pyjobs-handler", daemon=True).start()
        except RuntimeError as no_thread:  # the system has no more of them: a failed attempt, not one left hanging
            with self._changed:
                self._running.discard(attempt)
                if not self._running:
                    self._note_busy()
            self._report(outcomes.ending(attempt, outcomes.raised(attempt.claimed, no_thread)))

    def _serve(self, first: Attempt) -> None:
        """A thread's life: one attempt after another, until it is left behind in one or the crew closes."""
        attempt: Attempt | None = first
        while attempt is not None:
            result = self._perform(attempt)
            with self._changed:
                mine, following = self._pass_on(attempt)
                goes_on = following is not None and not following.job.is_async
                if mine and not goes_on:
                    self._idle += 1
            if not mine:
                if not attempt.is_apart:
                    _ignored(attempt)
                return
            self._report(outcomes.ending(attempt, result))
            if following is not None and not goes_on:
                self._launch([following])
            attempt = following if goes_on else self._inbox.get()

    def _perform(self, attempt: Attempt) -> outcomes.Result:
        if attempt.is_apart:
            return self._children.perform(attempt, self._ready)
        return outcomes.perform(attempt)

    def _ready(self, attempt: Attempt) -> None:
        """Its process is ready: only now does its time run."""
        with self._changed:
            self._time(attempt, 0.0)

    # Coroutines

    def _event_loop(self) -> EventLoop:
        with self._changed:
            if self._loop is None:
                self._loop = EventLoop()
            return self._loop

    async def _coroutine(self, attempt: Attempt) -> None:
        attempt.task = asyncio.current_task()
        result = await outcomes.perform_async(attempt)
        with self._changed:
            mine, following = self._pass_on(attempt)
        if not mine:
            _ignored(attempt)
            return
        self._report(outcomes.ending(attempt, result))
        if following is not None:
            self._launch([following])

    # The watch

    def _watch(self) -> None:
        """End each attempt that is over its time, whichever way its handler behaves."""
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                overdue = [each for each in self._running if each.deadline <= now]
                loop = self._loop
                blocked = loop is not None and loop.alarm <= now
                if not overdue and not blocked:
                    self._alarm = min([each.deadline for each in self._running], default=math.inf)
                    if loop is not None:
                        self._alarm = min(self._alarm, loop.alarm)
                    self._changed.wait(min(self._alarm - now, _LONGEST_NAP))
                    continue
            for each in overdue:
                self._expire(each)
            if blocked and loop is not None:
                self._replace(loop)

    def _expire(self, attempt: Attempt) -> None:
        with self._changed:
            mine, following = self._pass_on(attempt)
            loop = self._loop
        if not mine:
            return
        attempt.halt("timeout")
        self._interrupt(attempt)
        if attempt.is_apart:
            _log.warning("the process of %s is killed, another takes its place", attempt, extra=attempt.fields)
        elif not attempt.job.is_async:
            _log.warning("the thread of %s is left behind, another takes its place", attempt, extra=attempt.fields)
        elif loop is not None:
            loop.probe()
        self._report(outcomes.ending(attempt, outcomes.timed_out(attempt.claimed)))
        if following is not None:
            self._launch([following])

    def _replace(self, blocked: EventLoop) -> None:
        """A coroutine blocks the event loop: leave that behind, and give back the others that cannot go on in it."""
        with self._changed:
            self._loop = None
            endings = self._give_up(lambda attempt: attempt.job.is_async)
        _log.error("a handler blocks the event loop: it is left behind and another takes its place")
        for each in endings:
            self._report(each)
        blocked.close()
        self.start(())


def _ignored(attempt: Attempt) -> None:
    _log.info("the late result of %s is ignored", attempt, extra=attempt.fields)
