"""The way of endings from the executors to the settler.

An ending is here until the database has answered for it, so an empty inbox means that nothing is owed. Waking is
not free, so it is done only for a settler that sleeps, and none is slept over: the sleeper says that it sleeps
*before* it looks whether something is there, the sender looks whether it sleeps *after* putting something there.
"""

from __future__ import annotations

import threading
from collections import deque

from pyjobs.worker.attempt import Ending


class Inbox:
    """Many threads put, one reads and removes."""

    def __init__(self) -> None:
        self._endings: deque[Ending] = deque()
        self._asleep = False
        self._woken = threading.Event()

    def put(self, ending: Ending) -> None:
        self._endings.append(ending)
        if self._asleep:
            self._woken.set()

    def __len__(self) -> int:
        return len(self._endings)

    def first(self, most: int) -> list[Ending]:
        """The endings that have been here longest. They stay."""
        return [self._endings[place] for place in range(min(most, len(self._endings)))]

    def remove(self, count: int) -> None:
        """The first so many, which are settled."""
        for _ in range(count):
            self._endings.popleft()

    def sleep(self) -> None:
        """Until an ending is there, or ``wake`` was called."""
        self._asleep = True
        if not self._endings:
            self._woken.wait()
        self._asleep = False
        self._woken.clear()

    def wake(self) -> None:
        """End the sleep, or the next one."""
        self._woken.set()
