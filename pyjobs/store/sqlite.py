"""The contract on SQLite, through Python's own sqlite3.

A routine is called by inserting into its view, and answers in views (sql/sqlite/clock.sql). A call whose answer is one
value is one statement; a call with rows to read is BEGIN IMMEDIATE, the insert, the reading, COMMIT. So the write
lock is taken first and waited for, and no reader ever has to become a writer, which SQLite would refuse.

Why a call may be repeated after it met a busy database: what failed left nothing, and every routine recognises what it
has done already, by the id, the token or the moment it is given.

What was accepted must not be lost when the power goes, so a commit waits for the disk (synchronous = FULL). Claims,
heartbeats and sweeps alone do not: whatever is committed after them takes them to the disk as well, and if the power
goes before, a job in hand is pending again, which it would become anyway. ``?synchronous=normal`` in the URL gives up
waiting altogether, for speed. The database stays whole in any case.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast
from uuid import UUID

from pyjobs.errors import (
    FROM_CONTRACT,
    ContractMismatch,
    InvalidConfiguration,
    InvalidOption,
    PyjobsError,
    StoreUnavailable,
)
from pyjobs.ids import new_id
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
from pyjobs.store import common
from pyjobs.store.sqlite_calls import Call, explained
from pyjobs.store.sqlite_line import HINT_MIGRATE, Line, Place

T = TypeVar("T")
Connection = sqlite3.Connection
Row = tuple[Any, ...]

SHORTEST_NAP, LONGEST_NAP = 0.002, 0.01  # seconds between two looks of a sleeping worker
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANSWER = "(SELECT value FROM jobs_answered)"


class SqliteStore:
    """The database at ``url``: ``sqlite:///file.db``, which may say ``?synchronous=normal``."""

    dialect: ClassVar[str] = "sqlite"
    single_writer: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        place = Place(url)
        self._session: _Session = _OwnSession(place)
        self._bell = _Bell(place)

    # The connection itself.

    def close(self) -> None:
        """Give the connections back. A closed store opens new ones when it is used again."""
        self._session.close()
        self._bell.close()

    def join(self, connection: Any) -> Self:
        """The same routines inside the caller's transaction: ``connection`` is one of sqlite3, or a cursor of it."""
        joined = copy(self)
        joined._session = _JoinedSession(connection)
        return joined

    def wait(self, timeout: float) -> bool:
        """Sleep until there is new work, ``wake`` is called, or ``timeout`` seconds have passed (then False)."""
        return self._bell.wait(timeout)

    def wake(self) -> None:
        """End a ``wait`` from another thread; a wake before the wait is not lost."""
        self._bell.ring()

    def contract(self) -> int:
        """Version of the installed contract; ``ContractMismatch`` when there is none. Reads ``jobs_contract``."""
        [(version,)] = self._session.read("SELECT version FROM jobs_contract")
        return int(version)

    def now(self) -> datetime:
        """The database's clock. Reads ``jobs_clock``."""
        [(now,)] = self._session.read("SELECT now FROM jobs_clock")
        return EPOCH + timedelta(milliseconds=now)

    # define.sql

    def define(self, name: str, options: Options) -> None:
        """Insert or change a definition. Calls ``jobs_define``."""
        self._run("jobs_define", name=name, options=common.encoded(options))

    def forget(self, name: str) -> bool:
        """Remove a definition; False when there was none. Calls ``jobs_forget``."""
        return bool(self._answer("jobs_forget", name=name))

    # enqueue.sql

    def enqueue(self, name: str, args: str, options: Options | None = None, id: UUID | None = None) -> UUID:
        """Enqueue a job; its id, or that of the job that holds its key. Calls ``jobs_enqueue``."""
        [(accepted,)] = self._session.run(_enqueue(NewJob(name, args, options or {}, id or new_id())))
        return UUID(accepted)

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue all of them or none, with an answer for each in order. Calls ``jobs_enqueue_many``."""
        call = Call(
            "jobs_enqueue_many",
            {"jobs": common.job_document(jobs)},
            then="SELECT id, inserted FROM jobs_enqueued ORDER BY position",
        )
        return _records(Enqueued, self._run_many(call, "jobs", map(_enqueue, jobs)))

    # batch.sql

    def open_batch(self, options: Options) -> UUID:
        """Open a batch; its id. Calls ``jobs_open_batch``."""
        return UUID(self._answer("jobs_open_batch", options=common.encoded({"id": new_id()} | dict(options))))

    def seal_batch(self, batch_id: UUID) -> BatchRecord:
        """Fix the batch's total. Calls ``jobs_seal_batch``."""
        return self._batch("jobs_seal_batch", batch_id)

    def advance_batch(self, batch_id: UUID) -> BatchRecord:
        """Finish the batch if all its jobs have ended. Calls ``jobs_advance_batch``."""
        return self._batch("jobs_advance_batch", batch_id)

    # claim.sql, heartbeat.sql, settle.sql

    def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        """Take due work. Calls ``jobs_claim``."""
        return _records(ClaimedJob, self._session.run(_claim(request)))

    def heartbeat(
        self, worker: str, held: Sequence[Held], *, lease_ms: int = 300_000, info: Options | None = None
    ) -> list[Attention]:
        """Extend the leases of what is held; what needs attention. Calls ``jobs_heartbeat``."""
        options = common.encoded({"lease_ms": lease_ms} | ({} if info is None else {"info": info}))
        arguments = {"worker": worker, "held": common.held_document(held), "options": options}
        call = Call("jobs_heartbeat", arguments, then="SELECT id, signal FROM jobs_heard", lasting=False)
        return _records(Attention, self._session.run(call))

    def leave(self, worker: str) -> None:
        """Strike the worker off. Calls ``jobs_heartbeat``."""
        self._run("jobs_heartbeat", worker=worker, options='{"leaving": true}')

    def settle(self, id: UUID, token: UUID, outcome: OutcomeKind, detail: Options | None = None) -> Settled:
        """Say what an attempt came to. Calls ``jobs_settle``."""
        [settled] = _records(Settled, self._session.run(_settle(Outcome(id, token, outcome, detail or {}))))
        return settled

    def settle_many(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Say what attempts came to, with an answer for each in order. Calls ``jobs_settle_many``."""
        return _records(Settled, self._run_many(_settle_many(outcomes), "outcomes", map(_settle, outcomes)))

    # slot.sql

    def take_slot(self, bucket: str, job_id: UUID, token: UUID) -> int | None:
        """Take the lowest free slot of a bucket; None when it is full. Calls ``jobs_take_slot``."""
        slot: int | None = self._answer("jobs_take_slot", bucket=bucket, job_id=str(job_id), token=str(token))
        return slot

    def free_slot(self, bucket: str, slot: int, token: UUID) -> bool:
        """Free a slot that this token holds. Calls ``jobs_free_slot``."""
        return bool(self._answer("jobs_free_slot", bucket=bucket, slot=slot, token=str(token)))

    # schedule.sql

    def put_schedule(self, name: str, options: Options, next_run_at: datetime) -> None:
        """Declare a schedule. Calls ``jobs_put_schedule``."""
        self._run("jobs_put_schedule", name=name, options=common.encoded(options), next_run_at=next_run_at.isoformat())

    def prune_schedules(self, source: str, names: Sequence[str]) -> int:
        """Forget what the source no longer declares; how many. Calls ``jobs_prune_schedules``."""
        return int(self._answer("jobs_prune_schedules", source=source, names=common.encoded(list(names))))

    def tick_schedule(self, name: str, expected: datetime, next_run_at: datetime) -> UUID | None:
        """Fire the moment ``expected``; None when another did or it is not due. Calls ``jobs_tick_schedule``."""
        fired = self._answer(
            "jobs_tick_schedule", name=name, expected=expected.isoformat(), next=next_run_at.isoformat()
        )
        return UUID(fired) if fired else None

    # sweep.sql

    def sweep(self, options: Options | None = None) -> Swept:
        """Promote, rescue and prune; how much of each. Calls ``jobs_sweep``."""
        arguments = {"options": common.encoded(options or {})}
        call = Call("jobs_sweep", arguments, then=_select(Swept, "jobs_swept"), lasting=False)
        [swept] = _records(Swept, self._session.run(call))
        return swept

    # operate.sql

    def retry(self, filter: Options, options: Options | None = None) -> int:
        """Put jobs back; how many. Calls ``jobs_retry``."""
        given = common.encoded(filter), common.encoded(options or {})
        return int(self._answer("jobs_retry", filter=given[0], options=given[1]))

    def cancel(self, filter: Options) -> int:
        """Cancel jobs; how many. Calls ``jobs_cancel``."""
        return int(self._answer("jobs_cancel", filter=common.encoded(filter)))

    def discard(self, filter: Options) -> int:
        """Delete jobs; how many. Calls ``jobs_discard``."""
        return int(self._answer("jobs_discard", filter=common.encoded(filter)))

    def pause_queue(self, queue: str) -> None:
        """Let nobody claim from the queue. Calls ``jobs_pause_queue``."""
        self._run("jobs_pause_queue", queue=queue)

    def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again. Calls ``jobs_resume_queue``."""
        self._run("jobs_resume_queue", queue=queue)

    def set(self, name: str, value: Any) -> None:
        """Change a setting. Calls ``jobs_set``."""
        self._run("jobs_set", name=name, value=value if isinstance(value, str) else common.encoded(value))

    # views.sql

    def job(self, id: UUID) -> JobRecord | None:
        """One job with its args and meta. Reads ``jobs_list`` and ``jobs_payloads``."""
        source = "jobs_list JOIN jobs_payloads USING (id) WHERE id = ?"
        found = _records(JobRecord, self._session.read(_select(JobRecord, source), str(id)))
        return found[0] if found else None

    def jobs(self, filter: Options | None = None, *, limit: int = 100) -> list[JobRecord]:
        """Jobs that match, newest first, without args and meta. Reads ``jobs_list``."""
        where, values = _where(filter)
        listed = common.columns(JobRecord, without=("args", "meta"))
        # Rows lie in the order in which they came: the newest are found without sorting them all.
        newest = f"SELECT id FROM jobs {where} ORDER BY rowid DESC LIMIT ?"
        query = f"SELECT {listed} FROM jobs_list WHERE id IN ({newest}) ORDER BY enqueued_at DESC, id DESC"
        return _records(JobRecord, self._session.read(query, *values, limit))

    def count(self, filter: Options | None = None) -> int:
        """How many jobs match."""
        where, values = _where(filter)
        [(number,)] = self._session.read(f"SELECT count(*) FROM jobs {where}", *values)
        return int(number)

    def dead(self, filter: Options | None = None, *, limit: int = 100) -> list[DeadRecord]:
        """Dead jobs that match, the last to die first. Reads ``jobs_dead``."""
        where, values = _where({**(filter or {}), "state": "dead"})
        # Chosen before their failures are looked up: else those of all dead jobs would be.
        chosen = f"SELECT id FROM jobs {where} ORDER BY finished_at DESC, id DESC LIMIT ?"
        return self._listed(
            DeadRecord, f"jobs_dead WHERE id IN ({chosen}) ORDER BY finished_at DESC, id DESC", *values, limit
        )

    def failures(self, job_id: UUID) -> list[Failure]:
        """A job's failed attempts, oldest first. Reads ``jobs_errors``."""
        return self._listed(Failure, "jobs_errors WHERE job_id = ? ORDER BY id", str(job_id))

    def status(self) -> list[StatusRow]:
        """Jobs by queue and state. Reads ``jobs_status``."""
        return self._listed(StatusRow, "jobs_status ORDER BY queue, state")

    def timings(self) -> list[TimingRow]:
        """Run times by queue and name. Reads ``jobs_timings``."""
        return self._listed(TimingRow, "jobs_timings ORDER BY queue, name")

    def limits(self) -> list[LimitRow]:
        """Bounds and who holds their slots. Reads ``jobs_limits``."""
        return self._listed(LimitRow, 'jobs_limits ORDER BY "group", bucket, slot')

    def batch(self, id: UUID) -> BatchRecord | None:
        """One batch. Reads ``jobs_batch_status``."""
        found = self._listed(BatchRecord, "jobs_batch_status WHERE id = ?", str(id))
        return found[0] if found else None

    def batches(self, *, finished: bool | None = None, limit: int = 100) -> list[BatchRecord]:
        """Batches, newest first. Reads ``jobs_batch_status``."""
        which = "?1 IS NULL OR (finished_at IS NOT NULL) = ?1"
        source = f"jobs_batch_status WHERE {which} ORDER BY opened_at DESC, id DESC LIMIT ?2"
        return self._listed(BatchRecord, source, finished, limit)

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules. Reads ``jobs_schedule_status``."""
        return self._listed(ScheduleRecord, "jobs_schedule_status ORDER BY name")

    def workers(self) -> list[WorkerRecord]:
        """Workers as they last spoke. Reads ``jobs_worker_status``."""
        return self._listed(WorkerRecord, "jobs_worker_status ORDER BY id")

    def orphans(self) -> list[OrphanRow]:
        """Names with waiting work that no live worker performs. Reads ``jobs_orphans``."""
        return self._listed(OrphanRow, "jobs_orphans ORDER BY name")

    def definitions(self) -> list[DefinitionRecord]:
        """All definitions. Reads ``jobs_defined``."""
        return self._listed(DefinitionRecord, "jobs_defined ORDER BY name")

    def paused(self) -> list[str]:
        """Queues that are paused. Reads ``jobs_paused_queues``."""
        return [queue for (queue,) in self._session.read("SELECT queue FROM jobs_paused_queues ORDER BY queue")]

    # How a call is made.

    def _run(self, routine: str, **arguments: Any) -> None:
        self._session.run(Call(routine, arguments))

    def _answer(self, routine: str, **arguments: Any) -> Any:
        [(answer,)] = self._session.run(Call(routine, arguments, returning=ANSWER))
        return answer

    def _batch(self, routine: str, batch_id: UUID) -> BatchRecord:
        then = _select(BatchRecord, "jobs_batch_status WHERE id = ?")
        call = Call(routine, {"batch_id": str(batch_id)}, then=then, then_values=(str(batch_id),))
        [batch] = _records(BatchRecord, self._session.run(call))
        return batch

    def _run_many(self, call: Call, place: str, each: Iterable[Call]) -> list[Row]:
        """The rows of a call about many. Where it is refused, ``each`` by itself shows which of them is the reason."""
        try:
            return self._session.run(call)
        except PyjobsError as error:
            if error.contract_code:
                self._session.refuse_first(place, each)
            raise

    def _listed(self, kind: type[T], source: str, *values: Any) -> list[T]:
        return _records(kind, self._session.read(_select(kind, source), *values))


class _Session(Protocol):
    """How calls get to a database, and errors back."""

    def read(self, query: str, *values: Any) -> list[Row]:
        """The rows of a query."""

    def run(self, call: Call) -> list[Row]:
        """The answer of one call."""

    def refuse_first(self, place: str, calls: Iterable[Call]) -> None:
        """Raise the error of the first call that is refused, saying which it is. Nothing that they do remains."""

    def close(self) -> None: ...


class _OwnSession:
    """A line of the store's own. Each call is its own transaction, and is repeated where the database was busy."""

    def __init__(self, place: Place) -> None:
        self._line = Line(place)

    def read(self, query: str, *values: Any) -> list[Row]:
        return self._repeated(lambda connection: connection.execute(query, values).fetchall())

    def run(self, call: Call) -> list[Row]:
        if not call.then:
            return self._repeated(lambda connection: _rows(connection, call), call.lasting)
        return self._repeated(lambda connection: _whole(connection, lambda: _rows(connection, call)), call.lasting)

    def refuse_first(self, place: str, calls: Iterable[Call]) -> None:
        def refuse(connection: Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                _refuse_first(connection, place, calls)
            finally:
                connection.rollback()

        self._repeated(refuse)

    def close(self) -> None:
        self._line.close()

    def _repeated(self, call: Callable[[Connection], T], lasting: bool = False) -> T:
        pauses = common.pauses()
        while True:
            try:
                with self._line.connection(lasting=lasting) as connection:
                    return _readable(connection, call)
            except (sqlite3.Error, OverflowError) as error:
                pause = next(pauses, None) if _is_busy(error) else None
                if pause is None:
                    raise _told(error) from None
            time.sleep(pause)


class _JoinedSession:
    """The caller's connection and transaction: nothing is committed, rolled back, repeated or closed."""

    def __init__(self, connection: Any) -> None:
        joined = connection.connection if isinstance(connection, sqlite3.Cursor) else connection
        if not isinstance(joined, sqlite3.Connection):
            raise InvalidConfiguration(
                f"a {type(connection).__name__} is not a connection of sqlite3",
                "pass a connection or cursor of sqlite3; from SQLAlchemy or Django, the one they wrap",
            )
        self._connection = joined

    def read(self, query: str, *values: Any) -> list[Row]:
        return self._attempt(lambda: _cursor(self._connection).execute(query, values).fetchall())

    def run(self, call: Call) -> list[Row]:
        if call.then and _commits_by_itself(self._connection):
            return self._attempt(lambda: _whole(self._connection, lambda: _rows(self._connection, call)))
        return self._attempt(lambda: _rows(self._connection, call))

    def refuse_first(self, place: str, calls: Iterable[Call]) -> None:
        def refuse() -> None:
            self._connection.execute("SAVEPOINT pyjobs")
            try:
                _refuse_first(self._connection, place, calls)
            finally:
                self._connection.execute("ROLLBACK TO pyjobs")
                self._connection.execute("RELEASE pyjobs")

        self._attempt(refuse)

    def close(self) -> None:
        """The connection is not ours."""

    def _attempt(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (sqlite3.Error, OverflowError) as error:
            raise _told(error) from None


class _Bell:
    """Wakes whoever waits: when somebody has committed and work waits, or when another thread rings.

    SQLite sends no notifications. A connection that does nothing else asks it every few milliseconds whether the
    database has changed since the last time (PRAGMA data_version), which costs some microseconds. What was committed
    between the last claim and the wait is a change too, so it is not slept through.
    """

    def __init__(self, place: Place) -> None:
        self._line = Line(place)
        self._rung = threading.Event()
        self._seen: tuple[Connection, int] | None = None

    def ring(self) -> None:
        self._rung.set()

    def wait(self, timeout: float) -> bool:
        start = time.monotonic()
        while not self._rung.is_set():
            if self._work_has_come():
                return True
            waited = time.monotonic() - start
            if waited >= timeout:
                return False
            nap = min(SHORTEST_NAP + waited / 50, LONGEST_NAP)  # the longer it is quiet, the less often
            self._rung.wait(min(nap, timeout - waited))
        self._rung.clear()
        return True

    def close(self) -> None:
        self._line.close()

    def _work_has_come(self) -> bool:
        try:
            with self._line.connection() as connection:
                [(version,)] = connection.execute("PRAGMA data_version")
                if self._seen == (connection, version):
                    return False
                [(waits,)] = connection.execute("SELECT waits FROM jobs__work")
        except (sqlite3.Error, PyjobsError):  # whoever waits looks again after the timeout, and will hear of it then
            self._line.close()
            return False
        self._seen = connection, version
        return bool(waits)


# Calls that several methods make.


def _enqueue(job: NewJob) -> Call:
    arguments = {
        "name": job.name,
        "args": job.args,
        "options": common.encoded(job.options) if job.options else None,
        "id": str(job.id) if job.id else None,
    }
    return Call("jobs_enqueue", arguments, returning="(SELECT id FROM jobs_enqueued)")


def _claim(request: ClaimRequest) -> Call:
    token = str(request.token)
    arguments = {"worker": request.worker, "token": token, "options": common.claim_options(request)}
    then = _select(ClaimedJob, "jobs_claimed WHERE token = ? ORDER BY priority, run_at, id")
    return Call("jobs_claim", arguments, then=then, then_values=(token,), lasting=False)


def _settle(outcome: Outcome) -> Call:
    arguments = {
        "id": str(outcome.id),
        "token": str(outcome.token),
        "outcome": outcome.outcome,
        "detail": common.encoded(outcome.detail) if outcome.detail else None,
    }
    return Call("jobs_settle", arguments, then=_select(Settled, "jobs_settled"))


def _settle_many(outcomes: Sequence[Outcome]) -> Call:
    arguments = {"outcomes": common.outcome_document(outcomes)}
    return Call("jobs_settle_many", arguments, then=_select(Settled, "jobs_settled ORDER BY position"))


# From calls to rows.


def _cursor(connection: Connection) -> sqlite3.Cursor:
    """A cursor that answers tuples, whatever the connection's own ones do."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _commits_by_itself(connection: Connection) -> bool:
    """Whether the next statement would be a transaction of its own, so that an answer could not be read after it."""
    by_itself = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    return by_itself and not connection.in_transaction


def _readable(connection: Connection, call: Callable[[Connection], T]) -> T:
    """Make a call. A row that holds bytes which are no text, by whomever they were written, must not stop all others
    from being read with it: then what cannot be read is replaced, from here on."""
    try:
        return call(connection)
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode to UTF-8"):
            raise
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        return call(connection)


def _rows(connection: Connection, call: Call) -> list[Row]:
    for name, value in call.arguments.items():
        _check_text(name, value)
    cursor = _cursor(connection)
    try:
        rows: list[Row] = cursor.execute(call.statement, tuple(call.arguments.values())).fetchall()
    except sqlite3.IntegrityError as error:
        code, _, said = str(error).partition(" ")
        if code not in FROM_CONTRACT:
            raise
        message, hint = explained(code, said, call, lambda query, *values: cursor.execute(query, values).fetchall())
        raise common.refusal(code, message, hint) from None
    return cursor.execute(call.then, call.then_values).fetchall() if call.then else rows


def _check_text(name: str, value: Any) -> None:
    """Refuse a text that would not be for SQLite what it is for Python."""
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return
    if name == "args":
        common.check_args(value)
    elif common.UNSENDABLE.search(value):
        hint = "leave out NUL and half surrogate pairs"
        raise InvalidOption(f"{name} holds a character that SQLite cannot keep", hint)


def _whole(connection: Connection, work: Callable[[], T]) -> T:
    """Do the work in a transaction that has the write lock from the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = work()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.rollback()
        raise
    return done


def _refuse_first(connection: Connection, place: str, calls: Iterable[Call]) -> None:
    for number, call in enumerate(calls):
        try:
            _rows(connection, call)
        except PyjobsError as error:
            raise type(error)(f"{place}[{number}]: {error.message}", error.hint) from None


def _is_busy(error: Exception) -> bool:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _told(error: sqlite3.Error | OverflowError) -> PyjobsError:
    """What a caller is told of an error. SQLite's own messages hold no values."""
    if isinstance(error, OverflowError):
        return InvalidOption("a number is too large for SQLite", "give at most 63 bits")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable("somebody wrote since this transaction read", "begin it with BEGIN IMMEDIATE")
    if _is_busy(error):
        return StoreUnavailable("the database was busy for too long", "is somebody holding a transaction open?")
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_ERROR if str(error).startswith("no such table"):
            return ContractMismatch(f"the database lacks a part of the contract: {error}", HINT_MIGRATE)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreUnavailable("the database cannot be written", "may this user write it and its folder?")
        case sqlite3.SQLITE_FULL:
            return StoreUnavailable("the disk is full", "make room")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreUnavailable(f"the database cannot be read: {error}", "is it a SQLite database, and whole?")
    return PyjobsError(f"the database refused: {error}", "this should not happen: please report it")


# From rows to records.


def _select(kind: type[Any], source: str) -> str:
    return f"SELECT {common.columns(kind)} FROM {source}"


def _records(kind: type[T], rows: list[Row]) -> list[T]:
    for place, read in _readers(cast(Hashable, kind)):
        rows = [(*row[:place], read(row[place]), *row[place + 1 :]) if row[place] is not None else row for row in rows]
    return [kind(*row) for row in rows]


@cache
def _readers(kind: Any) -> list[tuple[int, Callable[[Any], Any]]]:
    """Which columns of a record SQLite keeps as something else, and how each is read."""
    how: dict[str, Callable[[Any], Any]] = {"UUID": UUID, "datetime": datetime.fromisoformat, "bool": bool}
    types = [str(field.type).removesuffix(" | None") for field in fields(kind)]
    return [(place, how[name]) for place, name in enumerate(types) if name in how]


def _where(filter: Options | None) -> tuple[str, list[Any]]:
    """The condition that a filter is on the table of jobs, and its values."""
    found = common.conditions(filter)
    tests = " AND ".join(_test(condition) for condition in found)
    return (f"WHERE {tests}" if tests else ""), [_kept(each.value) for each in found if each.value is not None]


def _test(condition: common.Condition) -> str:
    if condition.value is None:
        return f"{condition.column} IS NULL"
    if condition.operator == "IN":
        return f"{condition.column} IN (SELECT value FROM json_each(?))"
    return f"{condition.column} {condition.operator} ?"


def _kept(value: Any) -> Any:
    """A value of a filter as SQLite keeps it."""
    match value:
        case UUID():
            return str(value)
        case datetime():
            return (value - EPOCH) // timedelta(milliseconds=1)
        case list():
            return common.encoded(value)
    return value
