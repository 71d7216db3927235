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
        self._idle = self._empty()
        self._inherited: list[_Idle] = []

    @contextmanager
    def store(self) -> Iterator[Store]:
        """A store for this block alone; ``StoreUnavailable`` when none gets free in time."""
        idle = self._of_this_process()
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

    def close(self) -> None:
        """Close the idle stores. The pool can still be used, and then connects again."""
        idle = self._of_this_process()
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
