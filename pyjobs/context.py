"""What a handler may know about its attempt, and what it may raise to decide how the attempt ends."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pyjobs.duration import milliseconds, text
from pyjobs.errors import InvalidOption
from pyjobs.options import Duration
from pyjobs.records import ClaimedJob

_logger = logging.getLogger("pyjobs.job")

_SHORTEST_SNOOZE_MS = 1_000


class Permanent(Exception):
    """Raised by a handler: the attempt failed and no further one can help. The job is dead now."""


class Snooze(Exception):
    """Raised by a handler: not now. The job comes back after ``delay``, and the attempt is not counted.

    A second is the least (``InvalidOption``): as nothing counts these attempts, shorter ones would keep a worker busy
    with nothing, and one that drains the queue from ever ending.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay_ms = milliseconds(delay, "delay")
        if self.delay_ms < _SHORTEST_SNOOZE_MS:
            raise InvalidOption(f"a snooze of {text(self.delay_ms)} is too short", "snooze for '1s' or longer")
        super().__init__(f"snoozed for {self.delay_ms} ms")


class RetryAfter(Exception):
    """Raised by a handler: the attempt failed; the next one comes after ``delay`` instead of the backoff."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay_ms = milliseconds(delay, "delay")
        super().__init__(message or f"retry after {self.delay_ms} ms")


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What a batch came to, for its callback."""

    id: UUID
    name: str | None
    total: int
    done: int
    failed: int
    succeeded: int

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Self | None:
        """The counts that stand in a callback's meta; None for any other job."""
        counts: Any = meta.get("batch")
        try:
            return cls(**counts | {"id": UUID(counts["id"])})
        except (TypeError, KeyError, ValueError, AttributeError):
            return None  # there is none, or an application keeps something of its own under that key


@dataclass(frozen=True, slots=True, eq=False)
class JobContext:
    """One attempt, as its handler sees it. ``cancelled`` is set on timeout, when cancelling was asked for, and when
    the job was lost to another worker: a long handler looks at it and stops. One with ``isolation="process"`` is killed
    instead. ``batch`` is set for a callback."""

    id: UUID
    name: str
    queue: str
    attempt: int
    max_attempts: int
    enqueued_at: datetime
    run_at: datetime
    worker: str
    tenant: str | None = None
    batch: BatchCounts | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    cancelled: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, claimed: ClaimedJob, worker: str) -> Self:
        """The context of a claimed attempt."""
        meta = json.loads(claimed.meta) if claimed.meta else {}
        return cls(
            id=claimed.id,
            name=claimed.name,
            queue=claimed.queue,
            attempt=claimed.attempt,
            max_attempts=claimed.max_attempts,
            enqueued_at=claimed.enqueued_at,
            run_at=claimed.run_at,
            worker=worker,
            tenant=claimed.tenant,
            batch=BatchCounts.of(meta),
            meta=meta,
        )

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger ``pyjobs.job`` with this attempt's id, name, queue and number as fields."""
        return logging.LoggerAdapter(
            _logger, {"job_id": str(self.id), "job": self.name, "queue": self.queue, "attempt": self.attempt}
        )
