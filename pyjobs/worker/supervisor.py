"""``pyjobs worker --processes N``: a process that starts N workers and sees to it that there are N.

One thread does it all: it waits for a signal, SIGCHLD among them, or for the next start that is due, and then looks
after every worker. So nothing depends on which signal came, or on how many it stands for.

Each worker holds one end of a pipe, its lifeline. A stop goes through it as a byte, and so does a second one; when this
process dies, however that happens, the pipe ends, and a worker takes that for a stop too. Workers have sessions of
their own: Ctrl-C on a terminal reaches them by their lifelines alone.
"""

from __future__ import annotations

import logging
import math
import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyjobs.worker.signals import STOP, delivered_to

_log = logging.getLogger("pyjobs.worker")

Command = Callable[[int], Sequence[str]]
"""The command line of a worker, given the file descriptor of its lifeline."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """How a worker that died is replaced; times in seconds."""

    first: float = 0.5
    """How long to wait before the first new start. It doubles with each worker that dies young."""
    longest: float = 30.0
    young: float = 10.0
    """Whoever dies before that age has hardly worked."""
    patience: int = 8
    """After so many of those in a row no other is tried. They take somewhat more than a minute."""

    def rest(self, failures: int) -> float:
        rest: float = min(self.longest, self.first * 2 ** max(0, failures - 1))
        return rest * random.uniform(0.5, 1.5)


class Supervisor:
    """Runs until it is stopped, or with ``once`` until every worker has ended well. Only in the main thread."""

    def __init__(self, command: Command, processes: int, once: bool, restarts: Restarts | None = None) -> None:
        self._command = command
        self._once = once
        self._restarts = restarts or Restarts()
        self._posts = [_Post() for _ in range(processes)]
        self._stopping = False
        self._failed = False

    def run(self) -> int:
        """The exit status: 0, or 1 when a worker could not be kept running."""
        here, there = socket.socketpair()
        there.setblocking(False)
        with here, there, delivered_to(there, (*STOP, signal.SIGCHLD)):
            while self._look_after_all():
                self._listen(here)
        return 1 if self._failed else 0

    def _look_after_all(self) -> bool:
        """Whether there is more to come."""
        for post in self._posts:
            if post.worker is not None and (status := post.worker.status()) is not None:
                self._ended(post, post.worker, status)
            if post.worker is None and post.due <= time.monotonic() and not self._stopping:
                self._start(post)
        return any(post.worker is not None or (post.due < math.inf and not self._stopping) for post in self._posts)

    def _listen(self, wire: socket.socket) -> None:
        """Until a signal comes or the next start is due; stop if that is what the signal says."""
        due = min((post.due for post in self._posts if post.worker is None), default=math.inf)
        rest = None if due == math.inf or self._stopping else max(0.0, due - time.monotonic())
        readable, _, _ = select.select([wire], [], [], rest)
        if readable:
            for number in wire.recv(1_024):
                if number in STOP:
                    _log.info("stopping the workers, by %s", signal.Signals(number).name)
                    self._stop()

    def _stop(self) -> None:
        self._stopping = True
        for post in self._posts:
            if post.worker is not None:
                post.worker.stop()

    def _start(self, post: _Post) -> None:
        try:
            post.worker = _Worker.start(self._command)
        except OSError as error:
            self._vacate(post, f"a worker process could not be started: {error}", failed=True)
        else:
            pid = post.worker.process.pid
            _log.info("worker process %d started", pid, extra={"event": "started", "pid": pid})

    def _ended(self, post: _Post, worker: _Worker, status: int) -> None:
        os.close(worker.lifeline)
        post.worker = None
        if self._stopping:
            return
        if self._once and status == 0:
            post.due = math.inf
            return
        failed = self._once or time.monotonic() - worker.began < self._restarts.young
        self._vacate(post, f"worker process {worker.process.pid} {_told(status)}", failed)

    def _vacate(self, post: _Post, why: str, failed: bool) -> None:
        """Somebody else is to come, unless too many have failed there."""
        post.failures = post.failures + 1 if failed else 0
        if post.failures < self._restarts.patience:
            rest = self._restarts.rest(post.failures)
            post.due = time.monotonic() + rest
            _log.warning("%s: another starts in %.1f s", why, rest)
        else:
            _log.error("%s: it is the %dth in a row, no other is tried", why, post.failures)
            self._failed = True
            self._stop()


@dataclass(slots=True)
class _Post:
    """One of the N: the worker that is there, or when the next one is due. By ``time.monotonic``."""

    worker: _Worker | None = None
    due: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    lifeline: int
    began: float

    @classmethod
    def start(cls, command: Command) -> _Worker:
        theirs, ours = os.pipe()
        try:
            process = subprocess.Popen(
                command(theirs), stdin=subprocess.DEVNULL, pass_fds=[theirs], start_new_session=True
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours, time.monotonic())

    def status(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        with suppress(BrokenPipeError):  # it is about to end, or has
            os.write(self.lifeline, b"s")


def _told(status: int) -> str:
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal.strsignal(-status)}"
