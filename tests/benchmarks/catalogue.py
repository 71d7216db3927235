"""Who takes part, each at its documented best settings, and what it cannot take part in.

A peer is an entry here and an adapter in ``peers/``. ``unfinished`` asks its tables whether any due job is not done
and settled: a drain ends when that is so, not when the last handler ran, since some queues settle late. ``finish``
makes finished jobs of waiting ones, for the workload that has a million of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Language = Literal["python", "node"]

NO_BATCHES = {"W9": "has no batches with a callback"}
NO_QUEUES = {"sweep-queues": "has no queues"}
NO_WAITING = {"sweep-workers": "its many idle workers would measure nothing but their looking every 5 ms"}
NO_LIMITS = {"W8": "has no limit by key"}
DELETES = {"W6-finished": "deletes what is finished, so this is W3"}


@dataclass(frozen=True)
class Peer:
    """``adapter``: its file in ``peers/``; a peer that needs another for another database has an entry for each.
    ``packages``: from PyPI or npm, pinned. ``without``: the workloads it cannot do, and why."""

    name: str
    adapter: str
    packages: tuple[str, ...]
    dialects: tuple[str, ...]
    settings: str
    language: Language = "python"
    unfinished: str | None = None
    finish: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)


PSYCOPG = "psycopg[binary,pool]==3.3.9"

FLOORS = (
    Peer(
        name="floor",
        adapter="floor",
        packages=(PSYCOPG,),
        dialects=("postgresql",),
        settings="claims 100 and settles 100 by one statement each; looks every 5 ms when idle",
        unfinished="SELECT EXISTS (SELECT FROM job WHERE state IN (0, 1) AND run_at <= now())",
        finish=("UPDATE job SET state = 2",),
        without=NO_LIMITS | NO_BATCHES | NO_QUEUES | NO_WAITING,
    ),
)

PYJOBS = Peer(
    name="pyjobs",
    adapter="pyjobs",
    packages=("-e", ".[postgresql]"),  # this project, from where it stands
    dialects=("postgresql", "sqlite"),
    settings="Worker(concurrency=10), defaults; many: enqueue_many in one call",
    unfinished="""
        SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'pending' AND bucket IS NULL)
            OR EXISTS (SELECT 1 FROM jobs WHERE state = 'pending' AND bucket IS NOT NULL)
            OR EXISTS (SELECT 1 FROM jobs WHERE state = 'running')
    """,
    finish=(
        "UPDATE jobs SET state = 'done', attempts = 1, settled_as = 'done',"
        " started_at = enqueued_at, finished_at = enqueued_at",
    ),
)

PEERS = (
    Peer(
        name="procrastinate",
        adapter="procrastinate",
        packages=("procrastinate==3.10.0", PSYCOPG),
        dialects=("postgresql",),
        settings="coroutines, concurrency 10, LISTEN on; it fetches jobs one by one; many: batch_defer in one call",
        unfinished="""
            SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'doing')
                OR EXISTS (SELECT FROM procrastinate_jobs
                            WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now()))
        """,
        finish=(
            "ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER",
            "UPDATE procrastinate_jobs SET status = 'succeeded', attempts = 1",
            "ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER",
        ),
        without=NO_BATCHES,
    ),
    Peer(
        name="pgqueuer",
        adapter="pgqueuer",
        packages=("pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        dialects=("postgresql",),
        settings="asyncpg, uvloop, batch_size 100, no concurrency limit (it would cost); many: lists in one call",
        unfinished="SELECT EXISTS (SELECT FROM pgqueuer WHERE execute_after <= now())",
        without=DELETES | NO_BATCHES | NO_LIMITS,
    ),
)

ALL = (*FLOORS, PYJOBS, *PEERS)
