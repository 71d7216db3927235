"""What the store takes and answers: dataclasses, moments as aware datetimes in UTC, ids as UUIDs.

Nobody changes one. Those of which there are several a job are not frozen all the same: Python takes six times as long
to make one that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

State = Literal["scheduled", "pending", "running", "done", "dead", "cancelled"]
OutcomeKind = Literal["done", "failed", "released", "snoozed", "cancelled"]
Options = Mapping[str, Any]


@dataclass(slots=True)
class NewJob:
    """A job to enqueue. ``args`` is JSON text, kept verbatim; ``options`` are those of ``jobs_enqueue``."""

    name: str
    args: str = "{}"
    options: Options = field(default_factory=dict)
    id: UUID | None = None


@dataclass(slots=True)
class Enqueued:
    """The id a job has; ``inserted`` is False when a unique key or the id itself was there already."""

    id: UUID
    inserted: bool


@dataclass(slots=True)
class ClaimedJob:
    """One attempt in hand: what ``jobs_claim`` answers. ``args`` and ``meta`` are JSON text."""

    id: UUID
    name: str
    queue: str
    args: str
    attempt: int
    max_attempts: int
    timeout_ms: int | None
    priority: int
    tenant: str | None
    batch_id: UUID | None
    meta: str | None
    unique_key: str | None
    enqueued_at: datetime
    run_at: datetime
    token: UUID
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What to claim: ``queues`` and ``names`` of None mean all of them."""

    worker: str
    token: UUID
    queues: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    max_jobs: int = 1
    lease_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Held:
    """One claim a worker says it still holds."""

    id: UUID
    token: UUID


@dataclass(frozen=True, slots=True)
class Attention:
    """A held job that needs attention: ``cancel`` was asked for, or it is ``lost`` to this worker."""

    id: UUID
    signal: Literal["cancel", "lost"]


@dataclass(slots=True)
class Outcome:
    """What one attempt came to. ``detail`` holds the keys ``jobs_settle`` takes for that outcome."""

    id: UUID
    token: UUID
    outcome: OutcomeKind
    detail: Options = field(default_factory=dict)


@dataclass(slots=True)
class Settled:
    """Whether an outcome was accepted, and the state the job is in (None: the row is gone)."""

    id: UUID
    accepted: bool
    state: State | None


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did."""

    promoted: int
    rescued: int
    buried: int
    slots_freed: int
    batches_finished: int
    pruned: int

    @property
    def total(self) -> int:
        """Everything it did, added up: 0 means there was nothing to do."""
        return (
            self.promoted + self.rescued + self.buried + self.slots_freed + self.batches_finished + self.pruned
        )


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One row of ``jobs_list``: all about a job but its arguments. ``args`` and ``meta`` are filled by ``get``."""

    id: UUID
    name: str
    queue: str
    state: State
    priority: int
    run_at: datetime
    bucket: str | None
    attempts: int
    max_attempts: int
    timeout_ms: int | None
    worker: str | None
    lease_until: datetime | None
    cancel_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    dead_reason: str | None
    unique_key: str | None
    tenant: str | None
    batch_id: UUID | None
    enqueued_at: datetime
    args: str | None = None
    meta: str | None = None


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """One row of ``jobs_dead``: a job that failed for good, with its last failure (None where it has none)."""

    id: UUID
    name: str
    queue: str
    dead_reason: str
    attempts: int
    max_attempts: int
    finished_at: datetime
    kind: str | None
    type: str | None
    message: str | None
    failed_at: datetime | None
    tenant: str | None
    batch_id: UUID | None


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, from ``jobs_errors``."""

    job_id: UUID
    attempt: int
    worker: str
    kind: str
    type: str | None
    message: str | None
    stack: str | None
    started_at: datetime
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch and its counters. ``total`` is None until it is sealed; ``succeeded`` is done − failed."""

    id: UUID
    name: str | None
    tenant: str | None
    callback: str | None
    callback_id: UUID | None
    total: int | None
    done: int
    failed: int
    opened_at: datetime
    sealed_at: datetime | None
    finished_at: datetime | None

    @property
    def succeeded(self) -> int:
        return self.done - self.failed


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule: exactly one of ``cron`` and ``every_ms`` is set. ``args`` and ``options`` are JSON text."""

    name: str
    job: str
    cron: str | None
    every_ms: int | None
    timezone: str
    source: str | None
    enabled: bool
    next_run_at: datetime
    last_run_at: datetime | None
    last_job_id: UUID | None


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker as it last spoke; ``info`` is the JSON text it sent."""

    id: str
    info: str
    started_at: datetime
    seen_at: datetime
    live_until: datetime
    live: bool
    running: int


@dataclass(frozen=True, slots=True)
class StatusRow:
    """Jobs of one queue in one state; ``oldest_wait_ms`` is of the longest-due pending one, else None."""

    queue: str
    state: State
    count: int
    oldest_wait_ms: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class TimingRow:
    """Run times of finished jobs still in the table, in milliseconds; ``p95_ms`` where the engine has it."""

    queue: str
    name: str
    runs: int
    min_ms: int
    average_ms: int
    p95_ms: int | None
    max_ms: int


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One concurrency group's bound and one holder of it; ``bucket`` and what follows are None if nobody holds any."""

    group: str
    slots: int
    bucket: str | None
    slot: int | None
    job_id: UUID | None
    name: str | None
    worker: str | None
    taken_at: datetime | None


@dataclass(frozen=True, slots=True)
class OrphanRow:
    """A name with waiting work that no live worker performs."""

    name: str
    waiting: int
    oldest_run_at: datetime


@dataclass(frozen=True, slots=True)
class DefinitionRecord:
    """One definition as the database holds it."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    timeout_ms: int | None
    backoff_base_ms: int
    backoff_factor: float
    backoff_max_ms: int
    backoff_jitter: float
    concurrency_group: str | None
    concurrency_limit: int | None
    concurrency_key: str | None
    keep_done_ms: int
    keep_dead_ms: int | None
