"""Keeps this worker's claims alive, on a connection of its own that no handler and no claim can hold up.

Each beat names what is held, jobs that were fetched ahead included, so that a claim whose reply never arrived is not
kept alive by accident. Beats are a quarter of the lease apart, so three in a row may fail before anything is lost;
and never further apart than a cancelling should have to wait.

A signal is for the attempt that was named, not for whatever this worker holds under that id by now.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyjobs.records import Held
from pyjobs.store.base import Store
from pyjobs.worker.attempt import Attempt, Hand
from pyjobs.worker.executors import Crew
from pyjobs.worker.trouble import Trouble

_LONGEST_INTERVAL = 10.0


class Heartbeat:
    """Beats until the event is set."""

    def __init__(
        self, store: Store, worker: str, info: Mapping[str, Any], lease_ms: int, hand: Hand, crew: Crew
    ) -> None:
        self._store = store
        self._worker = worker
        self._info = info
        self._lease_ms = lease_ms
        self._hand = hand
        self._crew = crew
        self._interval = min(lease_ms / 4_000, _LONGEST_INTERVAL)

    def run(self, ended: threading.Event) -> None:
        trouble = Trouble("heartbeat", self._interval)
        while True:
            try:
                self.beat()
                trouble.over()
                rest = self._interval
            except Exception as error:  # a worker that stopped beating would lose all it holds
                rest = trouble.met(error)
            if ended.wait(rest):
                return

    def beat(self) -> None:
        """Say what is held, and pass on what the database answers. Calls ``jobs_heartbeat``."""
        named = {attempt.claimed.id: attempt for attempt in self._hand.attempts()}
        held = [Held(attempt.claimed.id, attempt.claimed.token) for attempt in named.values()]
        for attention in self._store.heartbeat(self._worker, held, lease_ms=self._lease_ms, info=self._info):
            attempt = named.get(attention.id)
            if attempt is None:
                continue
            if attention.signal == "cancel":
                self._crew.halt(attempt, "cancel")
            else:
                self._lose(attempt)

    def _lose(self, attempt: Attempt) -> None:
        self._hand.drop([attempt.claimed])
        self._crew.halt(attempt, "lost")
