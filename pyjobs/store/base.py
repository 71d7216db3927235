"""The store protocol: one method a routine of the contract, and the few ways to read what is there.

A store is one connection to one database. It is safe to call from any thread (calls take turns), it
connects when first used and again when the connection is lost, and it repeats a call that the engine
aborted. Repeating is always safe: a claim is repeated with its token, an enqueue with its id, a
settle with its outcome, and each then answers what it answered before.

Errors: the exception of :mod:`pyjobs.errors` for each PJ code, ``StoreUnavailable`` when the database
cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Protocol, Self
from uuid import UUID

from pyjobs.records import (
    Attention,
    BatchRecord,
    ClaimedJob,
    ClaimRequest,
    DeadRecord,
    DefinitionRecord,
    Enqueued,
    Failure,
    Held,
    JobRecord,
    LimitRow,
    NewJob,
    Options,
    OrphanRow,
    Outcome,
    OutcomeKind,
    ScheduleRecord,
    Settled,
    StatusRow,
    Swept,
    TimingRow,
    WorkerRecord,
)

CONTRACT_VERSION = 1


class Store(Protocol):
    """A database that keeps the contract."""

    dialect: ClassVar[str]
    single_writer: ClassVar[bool]
    """The database lets one write at a time, so a second store beside this one would only wait for it."""

    # The connection itself.
    def close(self) -> None:
        """Give the connection back. A closed store opens a new one when it is used again."""

    def join(self, connection: Any) -> Self:
        """The same routines inside the caller's transaction on ``connection`` (a DB-API connection of
        this database): nothing is committed, rolled back, repeated or closed."""

    def wait(self, timeout: float) -> bool:
        """Sleep until the database says that there may be work, ``wake`` is called, or ``timeout`` seconds
        have passed (then False)."""

    def wake(self) -> None:
        """End a ``wait`` from another thread; a wake before the wait is not lost."""

    # jobs_contract, jobs_now
    def contract(self) -> int:
        """Version of the installed contract; ``ContractMismatch`` when there is none."""

    def now(self) -> datetime:
        """The database's clock."""

    # define.sql
    def define(self, name: str, options: Options) -> None: ...
    def forget(self, name: str) -> bool: ...

    # enqueue.sql
    def enqueue(self, name: str, args: str, options: Options | None = None, id: UUID | None = None) -> UUID: ...
    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Enqueued]: ...

    # batch.sql
    def open_batch(self, options: Options) -> UUID: ...
    def seal_batch(self, batch_id: UUID) -> BatchRecord: ...
    def advance_batch(self, batch_id: UUID) -> BatchRecord: ...

    # claim.sql, heartbeat.sql, settle.sql
    def claim(self, request: ClaimRequest) -> list[ClaimedJob]: ...
    def heartbeat(
        self, worker: str, held: Sequence[Held], *, lease_ms: int = 300_000, info: Options | None = None
    ) -> list[Attention]: ...
    def leave(self, worker: str) -> None:
        """Strike the worker off (``jobs_heartbeat`` with the option ``leaving``)."""

    def settle(
        self, id: UUID, token: UUID, outcome: OutcomeKind, detail: Options | None = None
    ) -> Settled: ...
    def settle_many(self, outcomes: Sequence[Outcome]) -> list[Settled]: ...

    # slot.sql
    def take_slot(self, bucket: str, job_id: UUID, token: UUID) -> int | None: ...
    def free_slot(self, bucket: str, slot: int, token: UUID) -> bool: ...

    # schedule.sql
    def put_schedule(self, name: str, options: Options, next_run_at: datetime) -> None: ...
    def prune_schedules(self, source: str, names: Sequence[str]) -> int: ...
    def tick_schedule(self, name: str, expected: datetime, next_run_at: datetime) -> UUID | None: ...

    # sweep.sql
    def sweep(self, options: Options | None = None) -> Swept: ...

    # operate.sql
    def retry(self, filter: Options, options: Options | None = None) -> int: ...
    def cancel(self, filter: Options) -> int: ...
    def discard(self, filter: Options) -> int: ...
    def pause_queue(self, queue: str) -> None: ...
    def resume_queue(self, queue: str) -> None: ...
    def set(self, name: str, value: Any) -> None: ...

    # views.sql
    def job(self, id: UUID) -> JobRecord | None:
        """One job with its args and meta (``jobs_list`` and ``jobs_payloads``)."""

    def jobs(self, filter: Options | None = None, *, limit: int = 100) -> list[JobRecord]:
        """Jobs from ``jobs_list``, newest first, by the filter keys of ``jobs_cancel`` (id, ids, state, queue,
        name, tenant, batch_id, dead_reason, before)."""

    def count(self, filter: Options | None = None) -> int: ...
    def dead(self, filter: Options | None = None, *, limit: int = 100) -> list[DeadRecord]:
        """Dead jobs with their last failure (``jobs_dead``), the last to die first, by the same filter keys."""

    def failures(self, job_id: UUID) -> list[Failure]:
        """A job's failed attempts, oldest first (``jobs_errors``)."""

    def status(self) -> list[StatusRow]: ...
    def timings(self) -> list[TimingRow]: ...
    def limits(self) -> list[LimitRow]: ...
    def batch(self, id: UUID) -> BatchRecord | None: ...
    def batches(self, *, finished: bool | None = None, limit: int = 100) -> list[BatchRecord]: ...
    def schedules(self) -> list[ScheduleRecord]: ...
    def workers(self) -> list[WorkerRecord]: ...
    def orphans(self) -> list[OrphanRow]: ...
    def definitions(self) -> list[DefinitionRecord]: ...
    def paused(self) -> list[str]: ...
