"""Processes for ``isolation="process"``: started when first needed, kept, and killed to stop what runs in them.

A child performs one attempt at a time, for the thread that holds the attempt's place. So there are never more of
them than places, and that thread, which does nothing but wait for its child, is what takes its output.

Killing is exact. Which child performs an attempt is written down, and struck off, under one lock; an attempt that was
halted before is not begun, and a child that was killed is not used again. A child that dies by itself, or is killed
from outside, ends its own attempt and no other.

Each child leads a process group, which is killed as a whole when the child is, and when it has ended.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from pyjobs.records import ClaimedJob, Outcome
from pyjobs.worker import outcomes
from pyjobs.worker.attempt import Attempt
from pyjobs.worker.line import BROKEN, Line, LogLine, Ready, Setup, Task
from pyjobs.worker.outcomes import Result
from pyjobs.worker.signals import STOP

_PROGRAM = (
    f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r}); from pyjobs.worker.child import main; main()"
)
_FAREWELL = 1.0
"""How long a child that has nothing to do may take to end, in seconds."""


def is_child() -> bool:
    """Whether this process is a child of a worker."""
    return _PROGRAM in sys.orig_argv


class Children:
    """Performs attempts in processes of their own."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._changing = threading.Lock()  # guards all that follows
        self._idle: list[Child] = []
        self._busy: dict[Attempt, Child] = {}
        self._closed = False

    def perform(self, attempt: Attempt, ready: Callable[[Attempt], None]) -> Result:
        """Have the attempt performed, and wait for that. ``ready`` is called when the child is, before the handler."""
        claimed = attempt.claimed
        try:
            child = self._take(attempt)
        except Exception as no_process:  # the system has no more of them, or no thread
            return outcomes.raised(claimed, no_process)
        if child is None:
            return outcomes.not_performed(claimed)
        try:
            child.warm_up()
            ready(attempt)
            outcome = child.perform(Task(claimed, attempt.worker))
        except Exception as error:
            result = _unanswered(claimed, child, error)
            self._strike_off(attempt).kill()
            return result
        self._keep(attempt)
        return Result(outcome)

    def kill(self, attempt: Attempt) -> None:
        """Kill the child that performs an attempt which was halted."""
        with self._changing:
            child = self._busy.get(attempt)
            if child is not None:
                child.kill()

    def close(self) -> None:
        """End all children: those that have nothing to do in good order, the others at once."""
        with self._changing:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy.values():
                child.kill()
        for child in idle:
            child.dismiss()
        deadline = time.monotonic() + _FAREWELL
        for child in idle:
            if not child.ends_by(deadline):
                child.kill()

    def _take(self, attempt: Attempt) -> Child | None:
        """A child for the attempt; None when it is not to begin any more."""
        with self._changing:
            usable = [each for each in self._idle if each.is_alive]
            child = usable.pop() if usable else None
            self._idle = usable
        child = child or Child(self._setup)
        with self._changing:
            if attempt.halted is None and not self._closed:
                self._busy[attempt] = child
                return child
        child.kill()
        return None

    def _keep(self, attempt: Attempt) -> None:
        with self._changing:
            child = self._busy.pop(attempt)
            if attempt.halted is None and not self._closed:
                self._idle.append(child)
                return
        child.kill()

    def _strike_off(self, attempt: Attempt) -> Child:
        with self._changing:
            return self._busy.pop(attempt)


def _unanswered(claimed: ClaimedJob, child: Child, error: Exception) -> Result:
    match error:
        case NotReady():
            return outcomes.failed(claimed, error.detail)
        case _ if isinstance(error, BROKEN):
            return outcomes.raised(claimed, ChildProcessError(child.end()))
        case _:
            return outcomes.raised(claimed, error)


class NotReady(Exception):
    """A child cannot perform anything. ``detail`` is that of the failed attempt which it was started for."""

    def __init__(self, detail: Mapping[str, Any]) -> None:
        super().__init__()
        self.detail = detail


class Child:
    """One process, from its start to its end.

    A thread of its own starts it and waits for its end. The kernel kills the process when *the thread* that started it
    ends, so no thread that has a life of its own may do it.
    """

    def __init__(self, setup: Setup) -> None:
        self._born: Future[subprocess.Popen[bytes]] = Future()
        self._ended = threading.Event()
        self._is_warm = False
        ours, theirs = socket.socketpair()
        self._line = Line(ours)
        with theirs:
            threading.Thread(target=self._live, args=(theirs.fileno(),), name="pyjobs-child", daemon=True).start()
            self._process = self._born.result()
        with suppress(OSError):  # it has ended already, which whoever waits for its answer hears
            self._line.send(setup)

    @property
    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def warm_up(self) -> None:
        """Wait until it has imported what it needs; ``NotReady`` when it could not, one of ``BROKEN`` when it died."""
        if self._is_warm:
            return
        ready: Ready = self._answer()
        if ready.failure is not None:
            raise NotReady(ready.failure)
        self._is_warm = True

    def perform(self, task: Task) -> Outcome:
        """Wait for what came of it; one of ``BROKEN`` when the child dies over it."""
        self._line.send(task)
        outcome: Outcome = self._answer()
        return outcome

    def kill(self) -> None:
        """Kill it and all that it has started."""
        if self.is_alive:
            _kill_group(self._process.pid)

    def dismiss(self) -> None:
        """Let it end by itself."""
        self._line.close()

    def ends_by(self, deadline: float) -> bool:
        return self._ended.wait(max(0.0, deadline - time.monotonic()))

    def end(self) -> str:
        """How it came to its end, once the line has broken."""
        if not self._ended.wait(_FAREWELL):
            self.kill()
            return "its process closed the line to the worker"
        status = self._process.returncode
        if status >= 0:
            return f"its process ended with status {status}"
        if status == -signal.SIGKILL:
            return "its process was killed, as the system does when memory runs out"
        return f"its process was ended by signal {-status}, {signal.strsignal(-status)}"

    def _answer(self) -> Any:
        """The next message that is not for the log."""
        while isinstance(message := self._line.receive(), LogLine):
            record = logging.makeLogRecord(message.attributes)
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        return message

    def _live(self, wire: int) -> None:
        # The child starts with these held back, until it has said what they are to do.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
        command = [sys.executable, "-c", _PROGRAM, str(wire), str(os.getpid()), os.pathsep.join(sys.path)]
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[wire], start_new_session=True)
        except BaseException as error:
            self._born.set_exception(error)
            return
        self._born.set_result(process)
        process.wait()
        _kill_group(process.pid)
        self._ended.set()
        self._line.close()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left in it; macOS says the latter of a zombie
        os.killpg(leader, signal.SIGKILL)
