"""Idle stores, kept so that each call of an application has a connection to itself without opening one.

At most ``size`` calls are at the database at once; a further one waits for its turn. After a fork the child
opens its own, since two processes on one connection would read each other's answers; it neither uses nor
closes the parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue

from pyjobs.errors import StoreUnavailable
from pyjobs.store.base import Store

_Idle = LifoQueue[Store | None]


class StorePool:
    """Hands out stores that ``connect`` makes, the one used last first."""

    def __init__(self, connect: Callable[[], Store], size: int, patience_seconds: float = 30.0) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience_seconds
        self._changing = threading.Lock()
        self._process = os.getpid()
        self._closings = 0
        self._idle = self._empty()
        self._inherited: list[_Idle] = []

    @contextmanager
    def store(self) -> Iterator[Store]:
        """A store for this block alone; ``StoreUnavailable`` when none gets free in time."""
        idle, closings = self._of_this_process(), self._closings
        try:
            store = idle.get(timeout=self._patience)
        except Empty:
            raise StoreUnavailable(
                f"all {self._size} connections were busy for {self._patience:g} s", "raise Jobs(pool_size=…)"
            ) from None
        try:
            store = store or self._connect()
            yield store
        finally:
            idle.put(store)
            if self._closings != closings and idle is self._idle:  # not what a fork inherits
                _close_all(idle)

    def close(self) -> None:
        """Close the idle stores, and each of the others once it is given back. The pool can still be used, and then
        connects again."""
        self._closings += 1  # first: a store given back meanwhile is seen by us, or sees this
        _close_all(self._of_this_process())

    def _empty(self) -> _Idle:
        idle: _Idle = LifoQueue()
        for _ in range(self._size):
            idle.put(None)
        return idle

    def _of_this_process(self) -> _Idle:
        if self._process != os.getpid():
            with self._changing:
                if self._process != os.getpid():
                    self._inherited.append(self._idle)
                    self._idle = self._empty()
                    self._process = os.getpid()
        return self._idle


def _close_all(idle: _Idle) -> None:
    kept = []
    while not idle.empty():
        try:
            kept.append(idle.get_nowait())
        except Empty:
            break
    for store in kept:
        if store is not None:
            store.close()
        idle.put(None)
