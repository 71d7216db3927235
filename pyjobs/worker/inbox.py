"""The way of endings from the executors to the dispatcher, and what the dispatcher sleeps by.

Waking is not free, so it is done only for a dispatcher that sleeps. No ending is slept over: the sleeper says
that it sleeps *before* it looks whether something is there, the sender looks whether it sleeps *after* putting
something there, and a wake before the wait is kept by the store.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue

from pyjobs.store.base import Store
from pyjobs.worker.attempt import Ending


class Inbox:
    """Many threads put, one takes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._endings: SimpleQueue[Ending] = SimpleQueue()
        self._asleep = False

    def put(self, ending: Ending) -> None:
        self._endings.put(ending)
        if self._asleep:
            self._asleep = False
            self._store.wake()

    @property
    def is_empty(self) -> bool:
        return self._endings.empty()

    def take_all(self) -> list[Ending]:
        taken = []
        try:
            while True:
                taken.append(self._endings.get_nowait())
        except Empty:
            return taken

    def sleep(self, seconds: float) -> None:
        """Until an ending is there, the database says that there may be work, or that long."""
        self._asleep = True
        try:
            if self.is_empty:
                self._store.wait(seconds)
        finally:
            self._asleep = False

    def wake(self) -> None:
        """End the sleep, or the next one."""
        self._store.wake()
