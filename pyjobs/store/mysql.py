"""The contract on MySQL and MariaDB, through PyMySQL.

A call is one CALL and one result. The routines of a worker are a transaction each, and those of a producer are whole or
not at all; so a connection that commits by itself is all they need.

Why a call may be repeated after the engine aborted it or the connection was lost: every routine recognises what it has
done already, by the id, the token or the moment it is given. What was aborted left nothing; where the connection was
lost nobody knows, and the repeat finds out.

While ``migrate`` replaces a routine it is not there for some milliseconds, for no transaction covers that. So a call
that lacks one is repeated as well, on a connection that has met the contract before.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from copy import copy
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast
from uuid import UUID

import pymysql
from pymysql.constants import ER

from pyjobs.errors import ContractMismatch, PyjobsError, StoreUnavailable
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
from pyjobs.store.mysql_line import AWAY, GAVE_UP, Answer, Call, Driver, Place, Row, hang_up, number_of, unkept

T = TypeVar("T")
Connection = Any  # of PyMySQL, which comes without types

CLAIM = "jobs_claim(%s, %s, %s)"
SETTLE_MANY = "jobs_settle_many(%s)"
SHORTEST_NAP, LONGEST_NAP = 0.004, 0.025  # seconds between two looks of a sleeping worker
LOOK = Call("SELECT waits, newest FROM jobs__work")
LARGE = 500_000  # characters of a call, of which some servers take no more
MOST = Call("SELECT @@max_allowed_packet")
LONGEST_DOUBT = 0.25  # seconds between two wakings for work that is not for this worker
_DRIVER = Driver("pymysql")


class MysqlStore:
    """The database at ``url``: ``mysql://user:password@host:port/database``, or ``mariadb://…``."""

    dialect: ClassVar[str] = "mysql"
    single_writer: ClassVar[bool] = False

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
        """The same routines inside the caller's transaction: ``connection`` is one of PyMySQL or mysqlclient,
        or a cursor of it."""
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
        """Version of the installed contract; ``ContractMismatch`` when there is none. Calls ``jobs_contract``."""
        return int(self._value("jobs_contract()"))

    def now(self) -> datetime:
        """The database's clock. Reads ``jobs_clock``."""
        [(now,)] = self._rows("SELECT now FROM jobs_clock")
        return _moment(now)

    # define.sql

    def define(self, name: str, options: Options) -> None:
        """Insert or change a definition. Calls ``jobs_define``."""
        self._do("jobs_define(%s, %s)", name, common.encoded(options))

    def forget(self, name: str) -> bool:
        """Remove a definition; False when there was none. Calls ``jobs_forget``."""
        return bool(self._value("jobs_forget(%s)", name))

    # enqueue.sql

    def enqueue(self, name: str, args: str, options: Options | None = None, id: UUID | None = None) -> UUID:
        """Enqueue a job; its id, or that of the job that holds its key. Calls ``jobs_enqueue_with_id``."""
        common.check_args(args)
        given = common.encoded(options) if options else None
        return UUID(self._value("jobs_enqueue_with_id(%s, %s, %s, %s)", name, args, given, id or new_id()))

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue all of them or none, with an answer for each in order. Calls ``jobs_enqueue_many``."""
        return self._called(Enqueued, "jobs_enqueue_many(%s)", common.job_document(jobs))

    # batch.sql

    def open_batch(self, options: Options) -> UUID:
        """Open a batch; its id. Calls ``jobs_open_batch``."""
        return UUID(self._value("jobs_open_batch(%s)", common.encoded({"id": new_id()} | dict(options))))

    def seal_batch(self, batch_id: UUID) -> BatchRecord:
        """Fix the batch's total. Calls ``jobs_seal_batch``."""
        [batch] = self._called(BatchRecord, "jobs_seal_batch(%s)", batch_id)
        return batch

    def advance_batch(self, batch_id: UUID) -> BatchRecord:
        """Finish the batch if all its jobs have ended. Calls ``jobs_advance_batch``."""
        [batch] = self._called(BatchRecord, "jobs_advance_batch(%s)", batch_id)
        return batch

    # claim.sql, heartbeat.sql, settle.sql

    def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        """Take due work. Calls ``jobs_claim``."""
        claimed = self._called(ClaimedJob, CLAIM, *_claim_values(request))
        self._bell.claimed(len(claimed))
        return claimed

    def heartbeat(
        self, worker: str, held: Sequence[Held], *, lease_ms: int = 300_000, info: Options | None = None
    ) -> list[Attention]:
        """Extend the leases of what is held; what needs attention. Calls ``jobs_heartbeat``."""
        options = common.encoded({"lease_ms": lease_ms} | ({} if info is None else {"info": info}))
        return self._called(Attention, "jobs_heartbeat(%s, %s, %s)", worker, common.held_document(held), options)

    def leave(self, worker: str) -> None:
        """Strike the worker off. Calls ``jobs_heartbeat``."""
        self._do("jobs_heartbeat(%s, '[]', %s)", worker, '{"leaving": true}')

    def settle(self, id: UUID, token: UUID, outcome: OutcomeKind, detail: Options | None = None) -> Settled:
        """Say what an attempt came to. Calls ``jobs_settle``."""
        given = common.encoded(detail or {})
        [(accepted, state)] = self._rows("CALL jobs_settle(%s, %s, %s, %s)", id, token, outcome, given)
        return Settled(id, bool(accepted), state)

    def settle_many(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Say what attempts came to, with an answer for each in order. Calls ``jobs_settle_many``."""
        return self._called(Settled, SETTLE_MANY, common.outcome_document(outcomes))

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
        self._do("jobs_put_schedule(%s, %s, %s)", name, common.encoded(options), next_run_at)

    def prune_schedules(self, source: str, names: Sequence[str]) -> int:
        """Forget what the source no longer declares; how many. Calls ``jobs_prune_schedules``."""
        return int(self._value("jobs_prune_schedules(%s, %s)", source, common.encoded(list(names))))

    def tick_schedule(self, name: str, expected: datetime, next_run_at: datetime) -> UUID | None:
        """Fire the moment ``expected``; None when another did or it is not due. Calls ``jobs_tick_schedule``."""
        fired = self._value("jobs_tick_schedule(%s, %s, %s)", name, expected, next_run_at)
        return UUID(fired) if fired else None

    # sweep.sql

    def sweep(self, options: Options | None = None) -> Swept:
        """Promote, rescue and prune; how much of each. Calls ``jobs_sweep``."""
        [swept] = self._called(Swept, "jobs_sweep(%s)", common.encoded(options or {}))
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
        self._do("jobs_pause_queue(%s)", queue)

    def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again. Calls ``jobs_resume_queue``."""
        self._do("jobs_resume_queue(%s)", queue)

    def set(self, name: str, value: Any) -> None:
        """Change a setting. Calls ``jobs_set``."""
        self._do("jobs_set(%s, %s)", name, value if isinstance(value, str) else json.dumps(value))

    # views.sql

    def job(self, id: UUID) -> JobRecord | None:
        """One job with its args and meta. Reads ``jobs_list`` and ``jobs_payloads``."""
        found = self._listed(JobRecord, "jobs_list JOIN jobs_payloads USING (id) WHERE id = %s", id)
        return found[0] if found else None

    def jobs(self, filter: Options | None = None, *, limit: int = 100) -> list[JobRecord]:
        """Jobs that match, newest first, without args and meta. Reads ``jobs_list``."""
        where, values = _where(filter)
        listed = _columns(JobRecord, without=("args", "meta"))
        newest = f"jobs_list {where} ORDER BY enqueued_at DESC, id DESC LIMIT %s"
        found = self._session.run(Call(f"SELECT {listed} FROM {newest}", [*values, limit]))
        return _records(JobRecord, found)

    def count(self, filter: Options | None = None) -> int:
        """How many jobs match. Reads ``jobs_list``."""
        where, values = _where(filter)
        [(number,)] = self._rows(f"SELECT count(*) FROM jobs_list {where}", *values)
        return int(number)

    def dead(self, filter: Options | None = None, *, limit: int = 100) -> list[DeadRecord]:
        """Dead jobs that match, the last to die first. Reads ``jobs_dead``."""
        where, values = _where({**(filter or {}), "state": "dead"})
        # Chosen before their failures are looked up: else those of all dead jobs would be.
        chosen = f"SELECT id FROM jobs_list {where} ORDER BY finished_at DESC, id DESC LIMIT %s"
        source = f"jobs_dead JOIN ({chosen}) AS chosen USING (id) ORDER BY finished_at DESC, id DESC"
        return self._listed(DeadRecord, source, *values, limit)

    def failures(self, job_id: UUID) -> list[Failure]:
        """A job's failed attempts, oldest first. Reads ``jobs_errors``."""
        return self._listed(Failure, "jobs_errors WHERE job_id = %s ORDER BY id", job_id)

    def status(self) -> list[StatusRow]:
        """Jobs by queue and state. Reads ``jobs_status``."""
        return self._listed(StatusRow, "jobs_status ORDER BY queue, state")

    def timings(self) -> list[TimingRow]:
        """Run times by queue and name. Reads ``jobs_timings``."""
        return self._listed(TimingRow, "jobs_timings ORDER BY queue, name")

    def limits(self) -> list[LimitRow]:
        """Bounds and who holds their slots. Reads ``jobs_limits``."""
        return self._listed(LimitRow, "jobs_limits ORDER BY `group`, bucket, slot")

    def batch(self, id: UUID) -> BatchRecord | None:
        """One batch. Reads ``jobs_batch_status``."""
        found = self._listed(BatchRecord, "jobs_batch_status WHERE id = %s", id)
        return found[0] if found else None

    def batches(self, *, finished: bool | None = None, limit: int = 100) -> list[BatchRecord]:
        """Batches, newest first. Reads ``jobs_batch_status``."""
        which = "(%s IS NULL OR (finished_at IS NOT NULL) = %s)"
        order = "ORDER BY opened_at DESC, id DESC LIMIT %s"
        return self._listed(BatchRecord, f"jobs_batch_status WHERE {which} {order}", finished, finished, limit)

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
        return [queue for (queue,) in self._rows("SELECT queue FROM jobs_paused_queues ORDER BY queue")]

    # How a call is made.

    def _do(self, routine: str, *values: Any) -> None:
        self._session.run(Call(f"CALL {routine}", values))

    def _value(self, routine: str, *values: Any) -> Any:
        [(value,)] = self._rows(f"CALL {routine}", *values)
        return value

    def _rows(self, statement: str, *values: Any) -> Sequence[Row]:
        return self._session.run(Call(statement, values)).rows

    def _called(self, kind: type[T], routine: str, *values: Any) -> list[T]:
        return _records(kind, self._session.run(Call(f"CALL {routine}", values)))

    def _listed(self, kind: type[T], source: str, *values: Any) -> list[T]:
        return _records(kind, self._session.run(Call(f"SELECT {_columns(kind)} FROM {source}", values)))


class _Session(Protocol):
    """How calls get to a database, and errors back."""

    def run(self, call: Call) -> Answer:
        """What a call answers."""

    def close(self) -> None: ...


class _OwnSession:
    """A connection of the store's own: made when needed, made again when lost, one thread at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._turn = threading.Lock()
        self._connection: Connection | None = None
        self._was_connected = False
        self._has_worked = False

    def run(self, call: Call) -> Answer:
        pauses = common.pauses()
        with self._turn:
            while True:
                try:
                    answer = self._attempt(call)
                except PyjobsError as error:
                    pause = next(pauses, None) if self._may_pass(error) else None
                    if pause is None:
                        raise
                else:
                    self._has_worked = True
                    return answer
                time.sleep(pause)

    def close(self) -> None:
        with self._turn:
            self._drop()
            self._was_connected = self._has_worked = False

    def _may_pass(self, error: PyjobsError) -> bool:
        if isinstance(error, ContractMismatch):
            return self._has_worked
        gave_up = isinstance(error.__cause__, pymysql.MySQLError) and number_of(error.__cause__) in GAVE_UP
        return isinstance(error, StoreUnavailable) and self._was_connected and not gave_up

    def _attempt(self, call: Call) -> Answer:
        connection = self._connected()
        try:
            return _DRIVER.answer(connection, call)
        except UnicodeEncodeError:
            raise unkept() from None
        except pymysql.MySQLError as error:
            raise self._told(connection, error, call) from error
        except BaseException:  # of the answer some may be left unread
            self._drop()
            raise

    def _told(self, connection: Connection, error: Exception, call: Call) -> PyjobsError:
        try:
            told = _DRIVER.told(connection, error)
            connection.rollback()
        except pymysql.MySQLError as lost:
            told = _DRIVER.told(connection, lost)
        if number_of(error) in AWAY or not connection.open:
            self._drop()
            if self._is_too_large(call):
                told = _DRIVER.told(connection, pymysql.OperationalError(ER.NET_PACKET_TOO_LARGE))
        return told

    def _is_too_large(self, call: Call) -> bool:
        """Whether it is for its size that the server has hung up, of which it mostly says nothing."""
        if sum(len(value) for value in call.values if isinstance(value, str)) < LARGE:
            return False
        try:
            connection = self._connected()
            [(most,)] = _DRIVER.answer(connection, MOST).rows
            sent = connection.cursor().mogrify(call.statement, [str(value) for value in call.values])
        except (pymysql.MySQLError, PyjobsError):
            return False
        return len(sent.encode()) >= int(most)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._place.connect()
            self._was_connected = True
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            hang_up(self._connection)
            self._connection = None


class _JoinedSession:
    """The caller's connection and transaction: nothing is committed, rolled back, repeated or closed."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection.connection if hasattr(connection, "nextset") else connection  # a cursor's
        self._driver = Driver.of(self._connection)

    def run(self, call: Call) -> Answer:
        try:
            return self._driver.answer(self._connection, call)
        except UnicodeEncodeError:
            raise unkept() from None
        except self._driver.error as error:
            raise self._driver.told(self._connection, error) from error

    def close(self) -> None:
        """The connection is not ours."""


class _Bell:
    """Wakes whoever waits: when work waits in the database, or when another thread rings.

    MySQL sends no notifications. A connection that does nothing else asks it every few milliseconds, the longer it is
    quiet the less often, whether a job is due and which one is the newest, which reads the ends of two indexes. What
    is due need not be for this worker: where it woke for some and then claimed none, it wakes for the same work after a
    longer and longer while, and at once only for newer.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._rung = threading.Event()
        self._turn = threading.Lock()
        self._connection: Connection | None = None
        self._newest: Any = None
        self._doubt = 0.0

    def ring(self) -> None:
        self._rung.set()

    def claimed(self, count: int) -> None:
        """Work that waits may well be for this worker."""
        if count:
            self._doubt = 0.0

    def wait(self, timeout: float) -> bool:
        start = time.monotonic()
        while not self._rung.is_set():
            waited = time.monotonic() - start
            if self._work_has_come(waited):
                return True
            if waited >= timeout:
                return False
            nap = min(SHORTEST_NAP + waited / 50, LONGEST_NAP)
            self._rung.wait(min(nap if self._connection else timeout, timeout - waited))
        self._rung.clear()
        return True

    def close(self) -> None:
        with self._turn:
            self._drop()

    def _work_has_come(self, waited: float) -> bool:
        try:
            waits, newest = self._look()
        except (pymysql.MySQLError, PyjobsError):  # whoever waits looks after the timeout, and will hear of it then
            self.close()
            return False
        if not waits:
            self._doubt = 0.0
        elif newest != self._newest or waited >= self._doubt:
            self._doubt = min(2 * self._doubt + SHORTEST_NAP, LONGEST_DOUBT)
            self._newest = newest
            return True
        return False

    def _look(self) -> Row:
        with self._turn:
            if self._connection is None:
                self._connection = self._place.connect()
            answer = _DRIVER.answer(self._connection, LOOK)
            return answer.rows[0]

    def _drop(self) -> None:
        if self._connection is not None:
            hang_up(self._connection)
            self._connection = None


# From rows to records.


def _columns(kind: type[Any], without: Collection[str] = ()) -> str:
    return common.columns(kind, without).replace('"', "`")


def _records(kind: type[T], answer: Answer) -> list[T]:
    """Records of the columns that bear the names of their fields."""
    columns = dict(zip(answer.names, zip(*answer.rows, strict=True), strict=False))
    read = [map(how, columns[name]) for name, how in _readers(cast(Hashable, kind)) if name in columns]
    return list(map(kind, *read)) if read else []


@cache
def _readers(kind: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    """The fields of a record, and how each is read."""
    how: dict[str, Callable[[Any], Any]] = {"UUID": UUID, "datetime": _moment, "bool": bool, "int": int}
    types = {field.name: str(field.type).removesuffix(" | None") for field in fields(kind)}
    return [(name, _unless_null(how[of]) if of in how else _as_it_is) for name, of in types.items()]


def _unless_null(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _as_it_is(value: Any) -> Any:
    return value


def _moment(value: Any) -> datetime:
    """A moment in UTC, from what the server writes or from what a driver has made of that."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else datetime.fromisoformat(f"{value}+00:00")


def _claim_values(request: ClaimRequest) -> list[Any]:
    return [request.worker, request.token, common.claim_options(request)]


def _where(filter: Options | None) -> tuple[str, list[Any]]:
    found = common.conditions(filter)
    tests = " AND ".join(_test(condition) for condition in found)
    values = [value for each in found if each.value is not None for value in _listed_values(each.value)]
    return (f"WHERE {tests}" if tests else ""), values


def _listed_values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _test(condition: common.Condition) -> str:
    if condition.value is None:
        return f"{condition.column} IS NULL"
    if condition.operator == "IN":
        return f"{condition.column} IN ({', '.join(['%s'] * len(condition.value)) or 'NULL'})"
    return f"{condition.column} {condition.operator} %s"
