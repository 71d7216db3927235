"""One asyncio event loop on a daemon thread of its own, for ``async def`` handlers.

Its public methods are called from other threads. What raises out of the loop (a task that a handler left behind may
raise ``SystemExit``) is logged and the loop goes on. A handler may also block it, by waiting without ``await``: a loop
that was asked for a sign of life and does not give it in time is for its owner to leave behind.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from typing import Any

from pyjobs.worker.attempt import Attempt

_log = logging.getLogger("pyjobs.worker")

_PATIENCE = 2.0
_FAREWELL = 1.0


class EventLoop:
    """Runs coroutines until it is closed."""

    def __init__(self) -> None:
        self.alarm = math.inf
        """When to believe that it is blocked, by ``time.monotonic``; infinite while it is not in doubt."""
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="pyjobs-loop", daemon=True)
        self._thread.start()

    def begin(self, perform: Callable[[Attempt], Coroutine[Any, Any, None]], attempts: Sequence[Attempt]) -> None:
        """Start a task for each. ``perform`` sets ``attempt.task`` first of all, which also keeps the task alive."""
        if threading.current_thread() is self._thread:
            self._begin(perform, attempts)  # a place is passed on: to wake the loop would cost more than a short job
        else:
            self._call(self._begin, perform, attempts)

    def cancel(self, attempt: Attempt) -> None:
        """Cancel the attempt's task; one that has not begun is left to find out by itself that it was halted."""
        self._call(self._cancel, attempt)

    def probe(self) -> None:
        """Ask for a sign of life."""
        self.alarm = min(self.alarm, time.monotonic() + _PATIENCE)
        self._call(self._answer)

    def close(self) -> None:
        """End it, as soon as it comes round to that."""
        self._call(self._stop)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)

    def _begin(self, perform: Callable[[Attempt], Coroutine[Any, Any, None]], attempts: Sequence[Attempt]) -> None:
        for each in attempts:
            # An empty context: this one is that of the attempt whose place they take.
            self._loop.create_task(perform(each), context=Context())

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.task is not None:
            attempt.task.cancel()

    def _answer(self) -> None:
        self.alarm = math.inf

    def _stop(self) -> None:
        self._closing = True
        self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            try:
                self._loop.run_forever()
            except BaseException:
                _log.exception("a task that a handler left behind raised out of the event loop")
        self._clean_up()

    def _clean_up(self) -> None:
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=_FAREWELL))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
