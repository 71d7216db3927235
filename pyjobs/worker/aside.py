"""A thread for what need not be waited for at once.

Not a ``ThreadPoolExecutor``: that takes nothing more once the main thread has ended, and a worker may outlive it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue


class Aside:
    """Makes the calls it is given, one after the other, until it is closed."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], None]) -> Future[None]:
        """Make this call when its turn comes; what it raises comes out of ``result``."""
        future: Future[None] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """Let the thread end after the calls it was given."""
        self._calls.put(None)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            future, call = given
            try:
                call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
