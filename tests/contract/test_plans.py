"""Plans: claiming, promoting, rescuing and pruning read their index, however much work waits, is to come, or has ended.

Nothing here is timed. The planner is asked what it does within the routines, and the engine counts the rows it
touched (PostgreSQL, MySQL) or the steps it took (SQLite); those numbers stay small beside the hundreds of thousands of
rows. With fresh statistics and with none, as after a restore.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from pyjobs.store import open_store

pytestmark = [pytest.mark.sql, pytest.mark.slow]

MANY = 100_000
FEW = 6_000  # rows that one call may touch: some windows of some hundred rows each
ENTRIES = 2 * FEW  # entries that all steps of one call may read on MySQL, its own lists included
STEPS = 600_000  # steps of SQLite's machine that one call may take: a scan of MANY rows takes more

COLUMNS = (
    "id, name, queue, state, priority, run_at, bucket, attempts, max_attempts, token, worker, lease_until, "
    "started_at, finished_at, enqueued_at, args"
)


@dataclass(frozen=True)
class Seen:
    """What a call did: the indexes it read, the most rows one step of it touched or sorted, and its steps in all."""

    indexes: set[str] | None
    scanned: list[str]
    rows: int
    steps: int


def rows(now: datetime) -> Iterator[tuple[Any, ...]]:
    """A hundred thousand jobs due (half of them bounded), as many to come and as many done; and fifty in hand."""
    ids = map(UUID, map("{:032x}".format, itertools.count(1)))  # in the order of time, as those the routines make
    past, future, lately = now - timedelta(hours=1), now + timedelta(days=1), now - timedelta(minutes=1)

    def job(state: str, name: str, run_at: datetime, **more: Any) -> tuple[Any, ...]:
        values = dict.fromkeys(COLUMNS.split(", ")) | more
        values |= {"id": next(ids), "name": name, "state": state, "run_at": run_at, "enqueued_at": past, "args": "{}"}
        values |= {"queue": more.get("queue", "default"), "attempts": more.get("attempts", 0), "max_attempts": 5}
        values["priority"] = more.get("priority", 0)
        return tuple(values.values())

    for n in range(MANY):
        moment = timedelta(milliseconds=n)
        if n % 2:
            yield job("pending", f"work{n % 10}", past + moment, queue=f"queue{n % 5}", priority=n % 3)
        else:
            yield job("pending", "bounded", past + moment, bucket=f"bounded:{n % 500}", priority=n % 3)
        yield job("scheduled", f"work{n % 10}", future + moment)
        yield job("done", f"work{n % 10}", past, attempts=1, started_at=past, finished_at=lately - moment)
    for _ in range(20):
        yield job("pending", "rare", past, priority=9)
        yield job("scheduled", "work1", past)
        yield job("done", "work1", past, attempts=1, started_at=past, finished_at=now - timedelta(days=2))
    for n in range(50):
        lease = now - timedelta(minutes=5) if n < 10 else now + timedelta(minutes=5)
        holder = {"token": uuid4(), "worker": "w", "lease_until": lease, "started_at": past, "attempts": 1}
        yield job("running", "work1", past, **holder)


@pytest.fixture(scope="module")
def loaded(databases: Any, database_name: str) -> Iterator[Any]:
    with databases.fresh(database_name) as database:
        store = open_store(database.url)
        for n in range(10):
            store.define(f"work{n}", {})
        store.define("rare", {})
        store.define("bounded", {"concurrency": {"limit": 1, "key": "k"}})
        now = store.now()
        store.close()
        connection = database.connect()
        load = {"postgresql": load_postgresql, "sqlite": load_sqlite, "mysql": load_mysql}[database.dialect]
        load(connection, rows(now))
        connection.close()
        yield database


@pytest.fixture(scope="module", params=["without statistics", "with fresh statistics"], autouse=True)
def statistics(request: pytest.FixtureRequest, loaded: Any) -> None:
    if request.param == "with fresh statistics":
        connection = loaded.connect()
        connection.execute("ANALYZE TABLE jobs" if loaded.dialect == "mysql" else "ANALYZE")
        connection.close()


def load_postgresql(connection: Any, jobs: Iterator[tuple[Any, ...]]) -> None:
    connection.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    with connection.cursor().copy(f"COPY jobs ({COLUMNS}) FROM STDIN") as copy:
        for job in jobs:
            copy.write_row(job)


def load_sqlite(connection: Any, jobs: Iterator[tuple[Any, ...]]) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        return str(value) if isinstance(value, UUID) else value

    places = ", ".join("?" * len(COLUMNS.split(",")))
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO jobs ({COLUMNS}) VALUES ({places})", (tuple(map(plain, job)) for job in jobs))
    connection.execute("COMMIT")


def load_mysql(connection: Any, jobs: Iterator[tuple[Any, ...]]) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.replace(tzinfo=None).isoformat(" ")
        return str(value) if isinstance(value, UUID) else value

    connection.execute("ALTER TABLE jobs STATS_AUTO_RECALC = 0, STATS_PERSISTENT = 1")
    places = ", ".join(["%s"] * len(COLUMNS.split(",")))
    connection.execute("BEGIN")
    with connection.cursor() as cursor:
        while some := [tuple(map(plain, job)) for job in itertools.islice(jobs, 5_000)]:
            cursor.executemany(f"INSERT INTO jobs ({COLUMNS}) VALUES ({places})", some)
    connection.execute("COMMIT")


def observe(database: Any, routine: str, *arguments: str) -> Seen:
    """Call a routine, see what it does, and roll it back."""
    values = ", ".join(f"'{argument}'" for argument in arguments)
    if database.dialect == "sqlite":
        parameters = {"jobs_claim": "worker, token, options", "jobs_sweep": "options"}[routine]
        return observe_sqlite(database, f"INSERT INTO {routine} ({parameters}) VALUES ({values})")
    if database.dialect == "mysql":
        return observe_mysql(database, f"CALL {routine}({values})")
    return observe_postgresql(database, f"SELECT * FROM {routine}({values})")


def observe_postgresql(database: Any, statement: str) -> Seen:
    notices: list[str] = []
    connection = database.connect()
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    try:
        connection.execute("LOAD 'auto_explain'")
    except psycopg.errors.UndefinedFile:
        pytest.skip("this PostgreSQL comes without auto_explain, the only way to see plans inside routines")
    settings = {"log_min_duration": "0", "log_nested_statements": "on", "log_format": "json", "log_level": "notice"}
    for name, value in (settings | {"log_analyze": "on", "log_timing": "off"}).items():
        connection.execute(f"SET auto_explain.{name} = {value}")
    connection.execute("BEGIN")
    connection.execute(statement)
    connection.execute("ROLLBACK")
    connection.close()
    plans = [json.loads(notice[notice.index("{") :])["Plan"] for notice in notices if "plan:" in notice]
    nodes = [node for plan in plans for node in walk(plan)]
    scans = [node for node in nodes if node.get("Relation Name") == "jobs" or "Index Name" in node]
    return Seen(
        indexes={node["Index Name"] for node in scans if "Index Name" in node},
        scanned=[node["Node Type"] for node in scans if node["Node Type"] in ("Seq Scan", "Parallel Seq Scan")],
        rows=max(touched(node) for node in nodes),
        steps=sum(touched(node) for node in nodes),
    )


def walk(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from walk(part)


def touched(node: dict[str, Any]) -> int:
    """The rows a node read or sorted: those it gave on, and those it threw away."""
    thrown_away = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck", "Join Filter"))
    rows: float = (node["Actual Rows"] + thrown_away) * node["Actual Loops"]
    return round(rows)


def observe_sqlite(database: Any, statement: str) -> Seen:
    """By the sqlite3 shell, which shows the plans of the triggers and what they cost."""
    said = subprocess.run(
        ["sqlite3", "-bail", database.url.removeprefix("sqlite:///")],
        input=f".timeout 30000\n.eqp trigger\n.stats on\nBEGIN IMMEDIATE;\n{statement};\n.stats off\nROLLBACK;\n",
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    return Seen(
        indexes=set(re.findall(r"USING (?:COVERING )?INDEX (\w+)", said)),
        scanned=re.findall(r"(?:SCAN jobs|USING (?:COVERING )?INDEX sqlite_autoindex_jobs_1)$", said, re.MULTILINE),
        rows=max(int(number) for number in re.findall(r"Fullscan Steps: +(\d+)", said)),
        steps=max(int(number) for number in re.findall(r"Virtual Machine Steps: +(\d+)", said)),
    )


def observe_mysql(database: Any, statement: str) -> Seen:
    """By what the storage engine was asked for within the routine. The indexes are named in its text (FORCE INDEX)."""
    connection = database.connect()
    connection.execute("FLUSH STATUS")
    connection.execute(statement)
    read = connection.execute("SHOW SESSION STATUS LIKE 'Handler_read%'").fetchall()
    connection.close()
    entries = sum(int(number) for name, number in read if name != "Handler_read_rnd_deleted")
    assert entries <= ENTRIES
    return Seen(indexes=None, scanned=[], rows=0, steps=0)


def assert_reads(seen: Seen, *indexes: str) -> None:
    assert seen.indexes is None or set(indexes) <= seen.indexes
    assert seen.scanned == []
    assert seen.rows <= FEW
    assert seen.steps <= STEPS


def claim(database: Any, **options: Any) -> Seen:
    return observe(database, "jobs_claim", "w", str(uuid4()), json.dumps({"max_jobs": 10} | options))


def test_a_claim_reads_the_head_of_the_line_and_promotes_what_is_due(loaded: Any) -> None:
    assert_reads(claim(loaded), "jobs_line", "jobs_due", "jobs_limited", "jobs_held")


def test_a_claim_of_a_hundred(loaded: Any) -> None:
    assert_reads(claim(loaded, max_jobs=100), "jobs_line", "jobs_due", "jobs_limited")


def test_a_claim_for_work_at_the_end_of_the_line_goes_by_lanes(loaded: Any) -> None:
    assert_reads(claim(loaded, names=["rare"]), "jobs_lanes", "jobs_due")


def test_a_claim_for_one_queue_goes_by_lanes_or_line(loaded: Any) -> None:
    assert_reads(claim(loaded, queues=["queue3"]), "jobs_due")


def test_a_claim_for_a_queue_where_nothing_is(loaded: Any) -> None:
    assert_reads(claim(loaded, queues=["nowhere"]), "jobs_due")


def test_a_claim_for_bounded_work_goes_by_buckets(loaded: Any) -> None:
    assert_reads(claim(loaded, names=["bounded"]), "jobs_limited", "jobs_due")


def test_a_sweep_promotes_rescues_and_prunes_by_their_indexes(loaded: Any) -> None:
    assert_reads(observe(loaded, "jobs_sweep", "{}"), "jobs_due", "jobs_held", "jobs_ended")
