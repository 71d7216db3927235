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

LESS = NO_LIMITS | NO_BATCHES | NO_QUEUES | NO_WAITING
PLAIN = "claims 100 and settles 100 by one statement each; looks every 5 ms when idle"

FLOORS = (
    Peer(
        name="floor",
        adapter="floor",
        packages=(PSYCOPG,),
        dialects=("postgresql",),
        settings=PLAIN,
        unfinished="SELECT EXISTS (SELECT FROM job WHERE state IN (0, 1) AND run_at <= now())",
        finish=("UPDATE job SET state = 2",),
        without=LESS,
    ),
    Peer(
        name="floor",
        adapter="floor_sqlite",
        packages=(),
        dialects=("sqlite",),
        settings=f"{PLAIN}; journal in WAL mode, synchronous FULL",
        unfinished="SELECT EXISTS (SELECT 1 FROM job WHERE state IN (0, 1) AND run_at <= unixepoch())",
        finish=("UPDATE job SET state = 2",),
        without=LESS,
    ),
    Peer(
        name="floor",
        adapter="floor_mysql",
        packages=("PyMySQL==1.2.4",),
        dialects=("mysql", "mariadb"),
        settings=f"{PLAIN}, but for a claim, which is two; READ COMMITTED",
        unfinished="SELECT EXISTS (SELECT 1 FROM job WHERE state IN (0, 1) AND run_at <= now(3))",
        finish=("UPDATE job SET state = 2",),
        without=LESS,
    ),
)

LIKE_TABLE = Peer(
    name="like-table",
    adapter="like_table",
    packages=(PSYCOPG,),
    dialects=("postgresql",),
    settings="the table of pyjobs, filled by INSERT … SELECT FROM unnest, five thousand rows a statement",
    without=dict.fromkeys(
        ["W1", "W3", "W4", "W5", "W6-scheduled", "W6-finished", "W7", "W8", "W9"], "is there to be filled, for W2"
    ),
)

PYJOBS = Peer(
    name="pyjobs",
    adapter="pyjobs",
    packages=("-e", ".[postgresql,mysql]"),  # this project, from where it stands
    dialects=("postgresql", "sqlite", "mysql", "mariadb"),
    settings="as it stands in this checkout; `pyjobs worker` with its defaults, 10 at once; many: enqueue_many",
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
    Peer(
        name="oban",
        adapter="oban",
        packages=("oban==0.7.0", PSYCOPG, "uvloop==0.23.0"),
        dialects=("postgresql",),
        settings="a queue of 10, pool of 10, uvloop; without its paid part; many: enqueue_many in one call",
        unfinished="""
            SELECT EXISTS (SELECT FROM oban_jobs WHERE state IN ('available', 'executing', 'retryable'))
                OR EXISTS (SELECT FROM oban_jobs
                            WHERE state = 'scheduled' AND scheduled_at <= timezone('UTC', now()))
        """,
        finish=("UPDATE oban_jobs SET state = 'completed', attempt = 1, completed_at = timezone('UTC', now())",),
        without={"W8": "limits by key are in its paid part", "W9": "batches are in its paid part"},
    ),
    Peer(
        name="awa",
        adapter="awa",
        packages=("awa-pg==0.6.9",),
        dialects=("postgresql",),
        settings="queue storage, 10 workers, defaults; many: COPY",
        without={"W6-finished": "prunes what is finished by dropping partitions"} | NO_BATCHES | NO_LIMITS,
    ),
    Peer(
        name="chancy",
        adapter="chancy",
        packages=("chancy==0.26.0", PSYCOPG),
        dialects=("postgresql",),
        settings="coroutines, a queue of 10, eager polling, notifications on; many: push_many in one call",
        unfinished="""
            SELECT EXISTS (SELECT FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed', 'expired')
                              AND scheduled_at <= now())
        """,
        finish=("UPDATE chancy_jobs SET state = 'succeeded', attempts = 1, started_at = now(), completed_at = now()",),
        without=NO_BATCHES | NO_LIMITS,
    ),
    Peer(
        name="graphile-worker",
        adapter="graphile_worker",
        packages=("graphile-worker@0.17.3",),
        dialects=("postgresql",),
        language="node",
        settings="10 at once, a local queue of 500, completions in batches; many: addJobs in one call",
        unfinished="SELECT EXISTS (SELECT FROM graphile_worker._private_jobs WHERE run_at <= now())",
        without=DELETES | NO_BATCHES,
    ),
    Peer(
        name="pg-boss",
        adapter="pg_boss",
        packages=("pg-boss@10.4.2",),
        dialects=("postgresql",),
        language="node",
        settings="10 loops of 500 jobs, each looking every 0.5 s, its shortest; many: insert in one call",
        unfinished="""
            SELECT EXISTS (SELECT FROM pgboss.job WHERE name IN ('noop', 'limited') AND state < 'completed'
                              AND start_after <= now())
        """,
        finish=("UPDATE pgboss.job SET state = 'completed', started_on = now(), completed_on = now()",),
        without=NO_BATCHES,
    ),
    Peer(
        name="huey",
        adapter="huey",
        packages=("huey==3.5.4",),
        dialects=("sqlite",),
        settings="10 threads, defaults, so that it waits for the disk; many: one by one, it has no other way",
        unfinished="SELECT EXISTS (SELECT 1 FROM task)",
        without={"W6-scheduled": "schedules one job a call: a million take too long"}
        | DELETES
        | NO_BATCHES
        | NO_LIMITS,
    ),
    Peer(
        name="honker",
        adapter="honker",
        packages=("honker==0.2.4",),
        dialects=("sqlite",),
        settings="claims and acknowledges by hundreds; many: one transaction",
        unfinished="SELECT EXISTS (SELECT 1 FROM _honker_live WHERE run_at <= unixepoch())",
        without=DELETES | NO_BATCHES | NO_LIMITS,
    ),
    Peer(
        name="plainjob",
        adapter="plainjob",
        packages=("plainjob@0.0.14", "better-sqlite3@12.6.2"),
        dialects=("sqlite",),
        language="node",
        settings="one job at a time, its only way; looks every 10 ms; chooses synchronous NORMAL; many: addMany",
        unfinished="""
            SELECT EXISTS (SELECT 1 FROM plainjob_jobs WHERE status IN (0, 1)
                              AND (next_run_at IS NULL OR next_run_at <= 1000 * unixepoch()))
        """,
        finish=("UPDATE plainjob_jobs SET status = 2",),
        without=NO_BATCHES | NO_LIMITS,
    ),
)

ALL = (*FLOORS, LIKE_TABLE, PYJOBS, *PEERS)
