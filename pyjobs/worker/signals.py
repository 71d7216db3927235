"""Signals as bytes to read.

A signal may interrupt any thread, and a handler in Python runs when the main thread next does something. So a main
thread that waits must be woken by something it waits for: each signal arrives as a byte in a socket.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Those that stop a worker."""


@contextmanager
def delivered_to(wire: socket.socket, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """During the block, those signals do nothing but send their number."""
    wire_before = signal.set_wakeup_fd(wire.fileno(), warn_on_full_buffer=False)
    before = {each: signal.signal(each, lambda number, frame: None) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(wire_before)
