"""A worker that is what its process is for: it is stopped by signals, or by the supervisor that started it.

Who stops a whole service often tells every process of it, the supervisor and its workers alike. So what counts is how
often one side has said it, not how often it was said: only who insists ends the worker at once.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyjobs.worker.journal import Report
from pyjobs.worker.signals import STOP, delivered_to
from pyjobs.worker.worker import Worker

_END = b"\0"  # the number of no signal
_SWITCH = 0.0005
"""Seconds for which one thread may keep the others waiting, a tenth of what Python sets: the threads that talk to the
database must not stand behind each handler that computes."""


def run_with_signals(worker: Worker, once: bool = False, lifeline: int | None = None) -> Report:
    """``worker.run``, stopped by SIGTERM, SIGINT or SIGQUIT, and by a second one at once. Only in the main thread.

    ``lifeline``: a file descriptor of the supervisor's; each byte in it stops the worker likewise, and so does its end.
    """
    here, there = socket.socketpair()
    there.setblocking(False)
    with (
        here,
        there,
        _switching_often(),
        ThreadPoolExecutor(1, "pyjobs-worker") as thread,
        delivered_to(there, STOP),
    ):
        running = thread.submit(worker.run, once)
        running.add_done_callback(lambda ended: there.send(_END))
        for _ in _stops(here.fileno(), lifeline):
            worker.stop()
        return running.result()


@contextmanager
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _stops(signals: int, lifeline: int | None) -> Iterator[None]:
    """One item each time that one side has asked for a stop more often than any side before; until the worker ends."""
    sides = [signals] if lifeline is None else [signals, lifeline]
    asked: Counter[int] = Counter()
    heard = 0
    while True:
        readable, _, _ = select.select(sides, [], [])
        for side in readable:
            word = os.read(side, 1)
            if word == _END:
                return
            if side == signals and word[0] not in STOP:
                continue  # a signal that the application handles: what wakes us for ours wakes us for all
            if not word:
                sides.remove(side)
            asked[side] += 1
            if asked[side] > heard:
                heard += 1
                yield
