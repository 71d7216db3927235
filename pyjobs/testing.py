"""For tests: what was enqueued, performing it here and now, and a clock that stands still until it is moved.

Nothing is simulated. A job goes through the database, is claimed, prepared, performed and settled by what a worker
does it with; only the threads are left out, so that a test waits for nothing and sees what a handler raises.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from pyjobs import tenant as tenants
from pyjobs.app import Jobs
from pyjobs.batch import Named
from pyjobs.duration import milliseconds, text
from pyjobs.errors import InvalidOption, PyjobsError
from pyjobs.install import connected, execute
from pyjobs.options import Duration
from pyjobs.records import ClaimRequest, JobRecord, State
from pyjobs.worker import outcomes
from pyjobs.worker.attempt import Attempt
from pyjobs.worker.scheduler import Duties, Scheduler

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_WORKER = "test"


class Expected(TypedDict, total=False):
    """What ``assert_enqueued`` can ask of a job, besides its name and arguments."""

    queue: str
    priority: int
    delay: Duration
    at: datetime
    unique_key: str | None
    tenant: str | None
    batch_id: UUID | None
    state: State


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A job as the database has it: ``at`` is when it runs, ``delay`` how long after it was enqueued that is."""

    id: UUID
    name: str
    args: Mapping[str, Any]
    queue: str
    priority: int
    at: datetime
    delay: timedelta
    unique_key: str | None
    tenant: str | None
    batch_id: UUID | None
    state: State
    attempts: int

    @classmethod
    def of(cls, record: JobRecord) -> EnqueuedJob:
        return cls(
            id=record.id,
            name=record.name,
            args=json.loads(record.args or "{}"),
            queue=record.queue,
            priority=record.priority,
            at=record.run_at,
            delay=record.run_at - record.enqueued_at,
            unique_key=record.unique_key,
            tenant=record.tenant,
            batch_id=record.batch_id,
            state=record.state,
            attempts=record.attempts,
        )

    def __str__(self) -> str:
        optional = {"unique_key": self.unique_key, "tenant": self.tenant, "batch_id": self.batch_id}
        told = {
            "queue": self.queue,
            "priority": self.priority,
            "delay": text(max(0, self.delay // _MILLISECOND)),
            "state": self.state,
            **{name: value for name, value in optional.items() if value is not None},
        }
        return _described(self.name, self.args, told)


class TestJobs:
    """One application's jobs in a test, on whatever database the application (``app``) uses."""

    __test__ = False  # or pytest takes it for a test

    def __init__(self, app: Jobs) -> None:
        self.app = app

    @cached_property
    def clock(self) -> TestClock:
        """The database's clock, which stands still from the first time that it is asked for."""
        return TestClock(self.app.url)

    def drain(self) -> int:
        """Perform all that is due, in this thread, in the order that a worker would, and what that enqueues too;
        schedules whose moment has come are fired first. Answers how many attempts that were.

        What a handler raises is raised here, once its attempt is settled as failed; what was due after it still waits,
        for another drain. Retries and other work of the future are left until the clock is there. Nobody watches
        timeouts, and a job that asks for a process of its own does without.
        """
        count = 0
        self._fire()
        while attempt := self._claim():
            with tenants.entered(None):  # as in a worker
                result = _performed(attempt)
            self._settle(attempt, result)
            count += 1
        return count

    async def adrain(self) -> int:
        """``drain`` where an event loop runs already."""
        count = 0
        self._fire()
        while attempt := self._claim():
            with tenants.entered(None):
                result = await _awaited(attempt)
            self._settle(attempt, result)
            count += 1
        return count

    def enqueued(self, name: str | Named | None = None) -> list[EnqueuedJob]:
        """The jobs of that name, or all of them, in the order they were enqueued, whatever became of them. One with
        ``keep_done=0`` is gone once it is done."""
        wanted = {} if name is None else {"name": _name(name)}
        records = self.app.call(
            lambda store: [store.job(each.id) for each in store.jobs(wanted, limit=max(1, store.count(wanted)))]
        )
        return [EnqueuedJob.of(record) for record in reversed(records) if record is not None]

    def assert_enqueued(
        self, name: str | Named, args: Mapping[str, Any] | None = None, **expected: Unpack[Expected]
    ) -> EnqueuedJob:
        """Fail unless a job was enqueued by that name, with these arguments if they are given, exactly, and with what
        else is expected of it. Answers the first such job."""
        asked = _comparable(expected)
        given = None if args is None else json.loads(self.app.new_job(name, args, {}).args)
        for job in self.enqueued(name):
            if (given is None or job.args == given) and all(_fits(job, *each) for each in asked.items()):
                return job
        raise AssertionError(f"there is no job {_described(_name(name), given, expected)}; {self._told()}")

    def assert_nothing_enqueued(self, name: str | Named | None = None) -> None:
        """Fail if any job was enqueued, or any of that name."""
        if self.enqueued(name):
            raise AssertionError(f"no job {_name(name) if name else 'at all'} was expected; {self._told()}")

    def _fire(self) -> None:
        self.app.sync()
        self.app.call(lambda store: Scheduler(store, Duties(schedules=True, sweep_every=0)).fire())

    def _claim(self) -> Attempt | None:
        names = tuple(self.app.definitions)
        request = ClaimRequest(_WORKER, uuid4(), names=names)
        claimed = self.app.call(lambda store: store.claim(request)) if names else []
        return Attempt(claimed[0], self.app.definitions[claimed[0].name], _WORKER) if claimed else None

    def _settle(self, attempt: Attempt, result: outcomes.Result) -> None:
        try:
            self.app.call(lambda store: store.settle_many([result.outcome]))
        except PyjobsError as refusal:
            refused = outcomes.refused(attempt.claimed, refusal)
            self.app.call(lambda store: store.settle_many([refused]))
            raise
        if result.error is not None:
            raise result.error

    def _told(self) -> str:
        there = self.enqueued()
        return "\n  ".join(["there are:", *map(str, there)]) if there else "there is none"


def _performed(attempt: Attempt) -> outcomes.Result:
    return asyncio.run(outcomes.perform_async(attempt)) if attempt.job.is_async else outcomes.perform(attempt)


async def _awaited(attempt: Attempt) -> outcomes.Result:
    if not attempt.job.is_async:
        return outcomes.perform(attempt)
    return await asyncio.create_task(outcomes.perform_async(attempt))  # in a context of its own


def _name(job: str | Named) -> str:
    name = job if isinstance(job, str) else getattr(job, "name", None)
    if not isinstance(name, str):
        raise InvalidOption(f"{job!r} is neither a job nor the name of one", "name it, or pass what @jobs.job made")
    return name


def _comparable(expected: Expected) -> dict[str, Any]:
    """What is expected, as an ``EnqueuedJob`` has it."""
    if unknown := expected.keys() - Expected.__annotations__.keys():
        raise InvalidOption(
            f"there is no {min(unknown)!r} to expect of a job", "there are: " + ", ".join(Expected.__annotations__)
        )
    asked: dict[str, Any] = dict(expected)
    if "at" in expected:
        asked["at"] = _aware(expected["at"], "at")
    if "delay" in expected:
        asked["delay"] = milliseconds(expected["delay"], "delay") * _MILLISECOND
    return asked


def _aware(moment: datetime, name: str) -> datetime:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidOption(f"{name} is not a moment with a time zone: {moment!r}", "write datetime(…, tzinfo=UTC)")
    return moment


def _fits(job: EnqueuedJob, key: str, value: Any) -> bool:
    if key == "at":
        return bool(abs(job.at - value) < _MILLISECOND)  # to which SQLite keeps it
    return bool(getattr(job, key) == value)


def _described(name: str, args: Mapping[str, Any] | None, told: Mapping[str, Any]) -> str:
    shown = [] if args is None else [json.dumps(args, ensure_ascii=False)]
    return " ".join([name, *shown, *(f"{key}={value}" for key, value in told.items())])


class TestClock:
    """The time of one database, for everyone who uses it: it stands still until it is moved.

    Making one replaces what the routines read the time from, and that stays: only for databases made for tests. Two
    on one database are the same clock. Raises as ``pyjobs.install.status`` does when the database cannot be reached.
    """

    __test__ = False  # or pytest takes it for a test

    def __init__(self, url: str) -> None:
        self.url = url
        self._sql = _CLOCKS[urlsplit(url).scheme]
        self._execute(*self._sql.install)

    def now(self) -> datetime:
        """What the database takes for the present, to the millisecond, in UTC."""
        return _EPOCH + self._execute(self._sql.read) * _MILLISECOND

    def set(self, moment: datetime) -> None:
        """Move to ``moment``, forward or back; it must have a time zone."""
        self._execute(self._sql.write.format((_aware(moment, "the clock's new present") - _EPOCH) // _MILLISECOND))

    def advance(self, by: float | str | timedelta) -> datetime:
        """Move on by so many seconds, or by ``"5m"`` or a timedelta, and answer the new present."""
        seconds = by if isinstance(by, int | float) else milliseconds(by, "what the clock is to advance by") / 1000
        moment = self.now() + timedelta(seconds=seconds)
        self.set(moment)
        return moment

    def _execute(self, *statements: str) -> int:
        """Execute them in one transaction; the value of the last, 0 if it has none."""
        with connected(self.url) as connection:
            execute(connection, "BEGIN")
            for statement in statements:
                cursor = execute(connection, statement)
            row = cursor.fetchone() if cursor.description else None
            execute(connection, "COMMIT")
        return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class _ClockSql:
    """How a dialect's clock is replaced by the one row of a table, in milliseconds since the epoch, read and moved."""

    install: tuple[str, ...]
    read: str
    write: str


_SQLITE = _ClockSql(
    install=(
        "CREATE TABLE IF NOT EXISTS jobs__test_clock AS SELECT now FROM jobs_clock",
        "DROP VIEW jobs_clock",
        "CREATE VIEW jobs_clock AS SELECT now FROM jobs__test_clock",
    ),
    read="SELECT now FROM jobs_clock",
    write="UPDATE jobs__test_clock SET now = {}",
)

_POSTGRESQL = _ClockSql(
    install=(
        "CREATE TABLE IF NOT EXISTS jobs__test_clock AS SELECT date_trunc('milliseconds', jobs_now()) AS now",
        """
        CREATE OR REPLACE FUNCTION jobs_now()
        RETURNS timestamptz
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
        AS $$ SELECT now FROM jobs__test_clock $$
        """,
    ),
    read="SELECT floor(extract(epoch FROM jobs_now()) * 1000)::bigint",
    write="UPDATE jobs__test_clock SET now = timestamptz 'epoch' + {} * interval '1 millisecond'",
)

_MYSQL = _ClockSql(
    install=(
        "CREATE TABLE IF NOT EXISTS jobs__test_clock AS"
        " SELECT now - INTERVAL MOD(MICROSECOND(now), 1000) MICROSECOND AS now FROM jobs_clock",
        "CREATE OR REPLACE VIEW jobs_clock AS SELECT now FROM jobs__test_clock",
    ),
    read="SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', now) DIV 1000 FROM jobs_clock",
    write="UPDATE jobs__test_clock SET now = '1970-01-01' + INTERVAL {} * 1000 MICROSECOND",
)

_CLOCKS = {
    "sqlite": _SQLITE,
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
