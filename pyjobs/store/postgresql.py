"""The contract on PostgreSQL, through psycopg 3.

A store has one connection for its calls and, once ``wait`` is used, a second one that listens, so that a sleeping
dispatcher never holds up a call. Each call is one statement, and each statement commits by itself.

Why a call may be repeated after the engine aborted it or the connection was lost: every routine recognises what it has
done already, by the id, the token or the moment it is given. Where PostgreSQL says that the statement failed, it left
nothing; where the connection was lost nobody knows, and the repeat finds out.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pyjobs.errors import (
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
from pyjobs.store.postgresql_shortcut import Shortcut, Value

T = TypeVar("T")
Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]

CHANNEL = "pyjobs"
CONNECT_SECONDS = 10
ABORTED = (errors.SerializationFailure, errors.DeadlockDetected)
# A routine or type was replaced beneath a statement that this connection had prepared.
STALE = (errors.FeatureNotSupported, errors.InvalidSqlStatementName)
# The server is going down, coming up, full, or the standby of one that failed.
AWAY = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.ReadOnlySqlTransaction,
    errors.IdleSessionTimeout,
)
# The server gave up: it took too long, or there is no room. That says nothing of what was sent. Whoever set a time
# does not want it spent again and again.
GAVE_UP = (errors.QueryCanceled, errors.LockNotAvailable, errors.DiskFull, errors.OutOfMemory)
HINT_REACH = "is the server up, and does the URL name its host, port, user and database?"
HINT_URL = "use postgresql://user:password@host:port/database"
CLAIM = "{}jobs_claim(%s, %s, %s)"
ENQUEUE = "{}jobs_enqueue(%s, %s, %s, %s)"
SETTINGS = "SET default_transaction_isolation TO 'read committed'; SET TimeZone TO 'UTC'"  # whatever the database has
SETTLE_MANY = "{}jobs_settle_many(%s)"
ALL_DONE = "place, accepted, state FROM {}jobs_settle_many(%s::uuid[], %s::uuid[])"


class PostgresqlStore:
    """The database at ``url``: a PostgreSQL URL, which may name the schema as ``?schema=…``."""

    dialect: ClassVar[str] = "postgresql"
    single_writer: ClassVar[bool] = False

    def __init__(self, url: str) -> None:
        self._place = _Place(url)
        self._session: _Session = _OwnSession(self._place)
        self._bell = _Bell(self._place)

    # The connection itself.

    def close(self) -> None:
        """Give the connections back. A closed store opens new ones when it is used again."""
        self._session.close()
        self._bell.close()

    def join(self, connection: Any) -> Self:
        """The same routines inside the caller's transaction: ``connection`` is a psycopg connection or cursor."""
        joined = copy(self)
        joined._session = _JoinedSession(connection)
        return joined

    def wait(self, timeout: float) -> bool:
        """Sleep until a notification, ``wake``, or ``timeout`` seconds have passed (then False). A notification that is
        missed while the connection is down costs time, not work: whoever waits looks again after the timeout."""
        return self._bell.wait(timeout)

    def wake(self) -> None:
        """End a ``wait`` from another thread; a wake before the wait is not lost."""
        self._bell.ring()

    def contract(self) -> int:
        """Version of the installed contract. Calls ``jobs_contract``; ``ContractMismatch`` when there is none."""
        return int(self._value("jobs_contract()"))

    def now(self) -> datetime:
        """The database's clock. Calls ``jobs_now``."""
        now: datetime = self._value("jobs_now()")
        return now.astimezone(UTC)

    # define.sql

    def define(self, name: str, options: Options) -> None:
        """Insert or change a definition. Calls ``jobs_define``."""
        self._value("jobs_define(%s, %s)", name, common.encoded(options))

    def forget(self, name: str) -> bool:
        """Remove a definition; False when there was none. Calls ``jobs_forget``."""
        return bool(self._value("jobs_forget(%s)", name))

    # enqueue.sql

    def enqueue(self, name: str, args: str, options: Options | None = None, id: UUID | None = None) -> UUID:
        """Enqueue a job; its id, or that of the job that holds its key. Calls ``jobs_enqueue``."""
        common.check_args(args)
        given = common.encoded(options) if options else None
        statement = f"SELECT {ENQUEUE.format(self._place.prefix)}"
        return self._session.fetch_id(statement, (name, args, given, id or new_id()))

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue all of them or none, with an answer for each in order. Calls ``jobs_enqueue_many``."""
        rows = self._rows("id, inserted FROM {}jobs_enqueue_many(%s)", common.job_document(jobs))
        return [Enqueued(*row) for row in rows]

    # batch.sql

    def open_batch(self, options: Options) -> UUID:
        """Open a batch; its id. Calls ``jobs_open_batch``."""
        opened: UUID = self._value("jobs_open_batch(%s)", common.encoded({"id": new_id()} | dict(options)))
        return opened

    def seal_batch(self, batch_id: UUID) -> BatchRecord:
        """Fix the batch's total. Calls ``jobs_seal_batch``."""
        [batch] = self._records(BatchRecord, "{}jobs_seal_batch(%s)", batch_id)
        return batch

    def advance_batch(self, batch_id: UUID) -> BatchRecord:
        """Finish the batch if all its jobs have ended. Calls ``jobs_advance_batch``."""
        [batch] = self._records(BatchRecord, "{}jobs_advance_batch(%s)", batch_id)
        return batch

    # claim.sql, heartbeat.sql, settle.sql

    def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        """Take due work. Calls ``jobs_claim``."""
        return self._records(ClaimedJob, CLAIM, *_claim_values(request))

    def heartbeat(
        self, worker: str, held: Sequence[Held], *, lease_ms: int = 300_000, info: Options | None = None
    ) -> list[Attention]:
        """Extend the leases of what is held; what needs attention. Calls ``jobs_heartbeat``."""
        options = common.encoded({"lease_ms": lease_ms} | ({} if info is None else {"info": info}))
        rows = self._rows("id, signal FROM {}jobs_heartbeat(%s, %s, %s)", worker, common.held_document(held), options)
        return [Attention(*row) for row in rows]

    def leave(self, worker: str) -> None:
        """Strike the worker off. Calls ``jobs_heartbeat``."""
        self._rows("id FROM {}jobs_heartbeat(%s, '[]', %s)", worker, '{"leaving": true}')

    def settle(self, id: UUID, token: UUID, outcome: OutcomeKind, detail: Options | None = None) -> Settled:
        """Say what an attempt came to. Calls ``jobs_settle``."""
        [(accepted, state)] = self._rows(
            "accepted, state FROM {}jobs_settle(%s, %s, %s, %s)", id, token, outcome, common.encoded(detail or {})
        )
        return Settled(id, accepted, state)

    def settle_many(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Say what attempts came to, with an answer for each in order. Calls ``jobs_settle_many``. Where all
        are done, which is usual, they go as columns and only exceptions are answered: that costs the server half."""
        if any(each.outcome != "done" or each.detail for each in outcomes):
            return self._records(Settled, SETTLE_MANY, common.outcome_document(outcomes))
        answers = [Settled(each.id, True, "done") for each in outcomes]
        columns = [_uuid_array(each.id for each in outcomes), _uuid_array(each.token for each in outcomes)]
        for place, accepted, state in self._rows(ALL_DONE, *columns):
            answers[place - 1] = Settled(outcomes[place - 1].id, accepted, state)
        return answers

    # slot.sql

    def take_slot(self, bucket: str, job_id: UUID, token: UUID) -> int | None:
        """Take the lowest free slot of a bucket; None when it is full. Calls ``jobs_take_slot``."""
        slot: int | None = self._value("jobs_take_slot(%s, %s, %s)", bucket, job_id, token)
        return slot

    def free_slot(self, bucket: str, slot: int, token: UUID) -> bool:
        """Free a slot that this token holds. Calls ``jobs_free_slot``."""
        return bool(self._value("jobs_free_slot(%s, %s, %s)", bucket, slot, token))

    # schedule.sql

    def put_schedule(self, name: str, options: Options, next_run_at: datetime) -> None:
        """Declare a schedule. Calls ``jobs_put_schedule``."""
        self._value("jobs_put_schedule(%s, %s, %s)", name, common.encoded(options), next_run_at)

    def prune_schedules(self, source: str, names: Sequence[str]) -> int:
        """Forget what the source no longer declares; how many. Calls ``jobs_prune_schedules``."""
        return int(self._value("jobs_prune_schedules(%s, %s)", source, common.encoded(list(names))))

    def tick_schedule(self, name: str, expected: datetime, next_run_at: datetime) -> UUID | None:
        """Fire the moment ``expected``; None when another did or it is not due. Calls ``jobs_tick_schedule``."""
        fired: UUID | None = self._value("jobs_tick_schedule(%s, %s, %s)", name, expected, next_run_at)
        return fired

    # sweep.sql

    def sweep(self, options: Options | None = None) -> Swept:
        """Promote, rescue and prune; how much of each. Calls ``jobs_sweep``."""
        [swept] = self._records(Swept, "{}jobs_sweep(%s)", common.encoded(options or {}))
        return swept

    # operate.sql

    def retry(self, filter: Options, options: Options | None = None) -> int:
        """Put jobs back; how many. Calls ``jobs_retry``."""
        return int(self._value("jobs_retry(%s, %s)", common.encoded(filter), common.encoded(options or {})))

    def cancel(self, filter: Options) -> int:
        """Cancel jobs; how many. Calls ``jobs_cancel``."""
        return int(self._value("jobs_cancel(%s)", common.encoded(filter)))

    def discard(self, filter: Options) -> int:
        """Delete jobs; how many. Calls ``jobs_discard``."""
        return int(self._value("jobs_discard(%s)", common.encoded(filter)))

    def pause_queue(self, queue: str) -> None:
        """Let nobody claim from the queue. Calls ``jobs_pause_queue``."""
        self._value("jobs_pause_queue(%s)", queue)

    def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again. Calls ``jobs_resume_queue``."""
        self._value("jobs_resume_queue(%s)", queue)

    def set(self, name: str, value: Any) -> None:
        """Change a setting. Calls ``jobs_set``."""
        self._value("jobs_set(%s, %s)", name, value if isinstance(value, str) else json.dumps(value))

    # views.sql

    def job(self, id: UUID) -> JobRecord | None:
        """One job with its args and meta. Reads ``jobs_list`` and ``jobs_payloads``."""
        found = self._records(JobRecord, "{0}jobs_list JOIN {0}jobs_payloads USING (id) WHERE id = %s", id)
        return found[0] if found else None

    def jobs(self, filter: Options | None = None, *, limit: int = 100) -> list[JobRecord]:
        """Jobs that match, newest first, without args and meta. Reads ``jobs_list``."""
        where, values = _where(filter)
        listed = common.columns(JobRecord, without=("args", "meta"))
        rows = self._rows(
            f"{listed} FROM {{}}jobs_list {where} ORDER BY enqueued_at DESC, id DESC LIMIT %s", *values, limit
        )
        return [JobRecord(*row) for row in rows]

    def count(self, filter: Options | None = None) -> int:
        """How many jobs match. Reads ``jobs_list``."""
        where, values = _where(filter)
        [(number,)] = self._rows(f"count(*) FROM {{}}jobs_list {where}", *values)
        return int(number)

    def dead(self, filter: Options | None = None, *, limit: int = 100) -> list[DeadRecord]:
        """Dead jobs that match, the last to die first. Reads ``jobs_dead``."""
        where, values = _where({**(filter or {}), "state": "dead"})
        # Chosen before their failures are looked up: else those of all dead jobs would be.
        chosen = f"SELECT id FROM {{0}}jobs_list {where} ORDER BY finished_at DESC, id DESC LIMIT %s"
        source = f"{{0}}jobs_dead WHERE id IN ({chosen}) ORDER BY finished_at DESC, id DESC"
        return self._records(DeadRecord, source, *values, limit)

    def failures(self, job_id: UUID) -> list[Failure]:
        """A job's failed attempts, oldest first. Reads ``jobs_errors``."""
        return self._records(Failure, "{}jobs_errors WHERE job_id = %s ORDER BY id", job_id)

    def status(self) -> list[StatusRow]:
        """Jobs by queue and state. Reads ``jobs_status``."""
        return self._records(StatusRow, "{}jobs_status ORDER BY queue, state")

    def timings(self) -> list[TimingRow]:
        """Run times by queue and name. Reads ``jobs_timings``."""
        return self._records(TimingRow, "{}jobs_timings ORDER BY queue, name")

    def limits(self) -> list[LimitRow]:
        """Bounds and who holds their slots. Reads ``jobs_limits``."""
        return self._records(LimitRow, '{}jobs_limits ORDER BY "group", bucket, slot')

    def batch(self, id: UUID) -> BatchRecord | None:
        """One batch. Reads ``jobs_batch_status``."""
        found = self._records(BatchRecord, "{}jobs_batch_status WHERE id = %s", id)
        return found[0] if found else None

    def batches(self, *, finished: bool | None = None, limit: int = 100) -> list[BatchRecord]:
        """Batches, newest first. Reads ``jobs_batch_status``."""
        which = "(%s::boolean IS NULL OR (finished_at IS NOT NULL) = %s)"
        order = "ORDER BY opened_at DESC, id DESC LIMIT %s"
        return self._records(BatchRecord, f"{{}}jobs_batch_status WHERE {which} {order}", finished, finished, limit)

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules. Reads ``jobs_schedule_status``."""
        return self._records(ScheduleRecord, "{}jobs_schedule_status ORDER BY name")

    def workers(self) -> list[WorkerRecord]:
        """Workers as they last spoke. Reads ``jobs_worker_status``."""
        return self._records(WorkerRecord, "{}jobs_worker_status ORDER BY id")

    def orphans(self) -> list[OrphanRow]:
        """Names with waiting work that no live worker performs. Reads ``jobs_orphans``."""
        return self._records(OrphanRow, "{}jobs_orphans ORDER BY name")

    def definitions(self) -> list[DefinitionRecord]:
        """All definitions. Reads ``jobs_defined``."""
        return self._records(DefinitionRecord, "{}jobs_defined ORDER BY name")

    def paused(self) -> list[str]:
        """Queues that are paused. Reads ``jobs_paused_queues``."""
        return [queue for (queue,) in self._rows("queue FROM {}jobs_paused_queues ORDER BY queue")]

    # How a call is made: `{}` in a statement stands for the schema.

    def _value(self, call: str, *values: Any) -> Any:
        [(value,)] = self._rows("{}" + call, *values)
        return value

    def _records(self, kind: type[T], source: str, *values: Any) -> list[T]:
        return [kind(*row) for row in self._session.fetch(self._select(kind, source), values)]

    def _rows(self, selected: str, *values: Any) -> list[Row]:
        return self._session.fetch("SELECT " + selected.format(self._place.prefix), values)

    def _select(self, kind: type[Any], source: str) -> str:
        return f"SELECT {common.columns(kind)} FROM {source.format(self._place.prefix)}"


class _Place:
    """Where the contract is: how to connect, and what stands before its names."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        schema = options.pop("schema", None)
        options.setdefault("connect_timeout", str(CONNECT_SECONDS))
        self._conninfo = urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))  # "+" is no space here
        self.prefix = '"{}".'.format(schema.replace('"', '""')) if schema else ""

    def connect(self) -> Connection:
        """A new connection in autocommit mode; ``StoreUnavailable`` when there is none to be had."""
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            connection.execute(SETTINGS)
            return connection
        except psycopg.ProgrammingError as error:
            raise InvalidConfiguration(f"the database URL cannot be read: {_first_line(error)}", HINT_URL) from error
        except psycopg.OperationalError as error:
            raise StoreUnavailable(f"the database cannot be reached: {_first_line(error)}", HINT_REACH) from error


class _Session(Protocol):
    """How statements get to a database, and errors back."""

    def fetch(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """The rows of one statement."""

    def fetch_id(self, statement: str, values: Sequence[Value]) -> UUID:
        """The id that a statement answers which is called often, and can be repeated."""

    def close(self) -> None: ...


class _OwnSession:
    """A connection of the store's own: made when needed, made again when lost, one call at a time."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._turn = threading.Lock()
        self._connection: Connection | None = None
        self._was_connected = False
        self._shortcuts: dict[str, Shortcut] = {}

    def fetch(self, statement: str, values: Sequence[Any]) -> list[Row]:
        return self._repeated(lambda connection: _fetch(connection, statement, values))

    def fetch_id(self, statement: str, values: Sequence[Value]) -> UUID:
        def fetched(connection: Connection) -> UUID:
            if statement not in self._shortcuts:
                self._shortcuts[statement] = Shortcut(connection, statement)
            return self._shortcuts[statement].answer(values) or _fetch_id(connection, statement, values)

        return self._repeated(fetched)

    def close(self) -> None:
        with self._turn:
            self._drop()
            self._was_connected = False

    def _repeated(self, call: Callable[[Connection], T]) -> T:
        pauses = common.pauses()
        with self._turn:
            while True:
                try:
                    return self._attempt(call)
                except _Passing as passing:
                    pause = next(pauses, None)
                    if pause is None:
                        raise passing.error from passing.error.__cause__
                    time.sleep(pause)

    def _attempt(self, call: Callable[[Connection], T]) -> T:
        try:
            connection = self._connected()
        except StoreUnavailable as error:
            if self._was_connected:
                raise _Passing(error) from error
            raise
        try:
            return call(connection)
        except (psycopg.Error, UnicodeEncodeError) as error:
            told = _told(error)
            if connection.broken or isinstance(error, (*STALE, *AWAY)):
                self._drop()
            elif connection.info.transaction_status is not TransactionStatus.IDLE:
                connection.rollback()
            told.__cause__ = error
            if isinstance(error, STALE) or (isinstance(told, StoreUnavailable) and not isinstance(error, GAVE_UP)):
                raise _Passing(told) from error
            raise told from error

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._place.connect()
            self._was_connected = True
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._shortcuts.clear()


class _Passing(Exception):
    """An error that may pass, so that the call is tried again."""

    def __init__(self, error: PyjobsError) -> None:
        self.error = error


class _JoinedSession:
    """The caller's connection and transaction: nothing is committed, rolled back, repeated or closed."""

    def __init__(self, connection: Any) -> None:
        joined = connection.connection if isinstance(connection, psycopg.Cursor) else connection
        if not isinstance(joined, psycopg.Connection):
            raise InvalidConfiguration(
                f"what was passed is of the type {type(connection).__name__}, not a psycopg connection",
                "pass a connection or cursor of psycopg 3; from SQLAlchemy or Django, the one they wrap",
            )
        self._connection = joined

    def fetch(self, statement: str, values: Sequence[Any]) -> list[Row]:
        try:
            return [_in_utc(row) for row in _fetch(self._connection, statement, values)]
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise _told(error) from error

    def fetch_id(self, statement: str, values: Sequence[Value]) -> UUID:
        try:
            return _fetch_id(self._connection, statement, values)
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise _told(error) from error

    def close(self) -> None:
        """The connection is not ours."""


class _Bell:
    """Wakes whoever waits: when the database notifies, or when another thread rings.

    A pair of sockets carries the ring, so that one that comes before the wait is not lost; notifications that come
    before it wait in the connection. One that nobody hears, because the connection was down, is made up for by the
    poll.
    """

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._waiting = threading.Lock()
        self._making = threading.Lock()
        self._cord: tuple[socket.socket, socket.socket] | None = None
        self._connection: Connection | None = None
        self._schema: str | None = None

    def ring(self) -> None:
        _, far = self._ends()
        with suppress(BlockingIOError):  # then it has rung so often that nobody can miss it
            far.send(b"!")

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        near, _ = self._ends()
        with self._waiting, selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ)
            if connection := self._listening():
                selector.register(connection.fileno(), selectors.EVENT_READ)
            while ready := selector.select(max(0.0, deadline - time.monotonic())):
                for key, _ in ready:
                    if key.fileobj is near:
                        near.recv(4096)
                        return True
                    if self._notified():
                        return True
                    if self._connection is None:
                        selector.unregister(key.fileobj)
            return False

    def close(self) -> None:
        if self._cord is not None:
            self.ring()  # whoever waits lets go
        with self._waiting, self._making:
            self._drop()
            for end in self._cord or ():
                end.close()
            self._cord = None

    def _ends(self) -> tuple[socket.socket, socket.socket]:
        with self._making:
            if self._cord is None:
                self._cord = socket.socketpair()
                for end in self._cord:
                    end.setblocking(False)
            return self._cord

    def _listening(self) -> Connection | None:
        if self._connection is None:
            try:
                self._connection = self._place.connect()
                self._connection.execute(f"LISTEN {CHANNEL}")
                name = f"{self._place.prefix}jobs_claim"
                [(self._schema,)] = _fetch(self._connection, SCHEMA_OF_CONTRACT, [name])
            except (psycopg.Error, PyjobsError):
                self._drop()
        return self._connection

    def _notified(self) -> bool:
        assert self._connection is not None
        try:
            heard = [notification.payload for notification in self._connection.notifies(timeout=0)]
        except psycopg.Error:
            self._drop()
            return False
        return self._schema in heard

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


SCHEMA_OF_CONTRACT = """
    SELECT (SELECT n.nspname
              FROM pg_proc p
              JOIN pg_namespace n ON n.oid = p.pronamespace
             WHERE p.oid = to_regproc(%s))
"""


def _fetch(connection: Connection, statement: str, values: Sequence[Any]) -> list[Row]:
    return psycopg.Cursor(connection, row_factory=tuple_row).execute(statement, values, binary=True).fetchall()


def _fetch_id(connection: Connection, statement: str, values: Sequence[Value]) -> UUID:
    [(id,)] = _fetch(connection, statement, values)
    assert isinstance(id, UUID)
    return id


def _told(error: psycopg.Error | UnicodeEncodeError) -> PyjobsError:
    """What a caller is told of an error. It names no arguments: of what the server says, only the message is used."""
    if isinstance(error, UnicodeEncodeError) or (isinstance(error, psycopg.DataError) and error.sqlstate is None):
        return InvalidOption(
            "a text holds a character that PostgreSQL cannot keep", "leave out NUL and half surrogate pairs"
        )
    code, said = error.sqlstate or "", error.diag.message_primary or _first_line(error)
    if code.startswith("PJ"):
        return common.refusal(code, said, error.diag.message_hint or "")
    if isinstance(error, (*ABORTED, *AWAY, *GAVE_UP)):
        return StoreUnavailable(f"the database could not finish the call: {said}", "try again")
    if isinstance(error, (errors.UndefinedFunction, errors.UndefinedTable, errors.InvalidSchemaName)):
        return ContractMismatch(f"the database lacks a part of the contract: {said}", "run: pyjobs migrate")
    if isinstance(error, errors.InsufficientPrivilege):
        return InvalidConfiguration(
            f"this database user may not: {said}",
            "let the owner call jobs_grant(user, role): producer, worker, operator or viewer",
        )
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        not code or code.startswith(("08", "57P"))
    ):
        return StoreUnavailable(f"the connection was lost: {said}", HINT_REACH)
    return PyjobsError(f"the database refused: {said}", f"PostgreSQL calls this {code}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _uuid_array(ids: Iterable[UUID]) -> str:
    return f"{{{','.join(each.hex for each in ids)}}}"


def _claim_values(request: ClaimRequest) -> tuple[str, UUID, str]:
    return request.worker, request.token, common.claim_options(request)


def _where(filter: Options | None) -> tuple[str, list[Any]]:
    found = common.conditions(filter)
    tests = " AND ".join(_test(condition) for condition in found)
    return (f"WHERE {tests}" if tests else ""), [each.value for each in found if each.value is not None]


def _test(condition: common.Condition) -> str:
    if condition.value is None:
        return f"{condition.column} IS NULL"
    if condition.operator == "IN":
        return f"{condition.column} = ANY (%s)"
    return f"{condition.column} {condition.operator} %s"


def _in_utc(row: Row) -> Row:
    return tuple(value.astimezone(UTC) if isinstance(value, datetime) else value for value in row)
