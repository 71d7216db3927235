"""``Jobs``: what an application holds. It knows the jobs by name, enqueues them, and reads what became of them.

It keeps no rule of its own: what may be enqueued, what is unique and what runs when is the database's to say.
Every enqueue makes its id before the call, so a call whose reply was lost is sent again and answered the same.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload
from uuid import UUID

from pyjobs import tenant as tenants
from pyjobs.arguments import dumps
from pyjobs.batch import Batch, Named
from pyjobs.config import database_url
from pyjobs.connections import driver_connection
from pyjobs.context import JobContext
from pyjobs.cron import next_moment
from pyjobs.definition import Job, JobOptions
from pyjobs.duration import milliseconds
from pyjobs.errors import InvalidArguments, InvalidConfiguration, InvalidOption, UnknownJob
from pyjobs.ids import new_id
from pyjobs.options import (
    Duration,
    EnqueueOptions,
    JobFilter,
    SharedOptions,
    contract_filter,
    contract_options,
    contract_selection,
    contract_start,
)
from pyjobs.packages import shipped
from pyjobs.pool import StorePool
from pyjobs.records import (
    BatchRecord,
    Enqueued,
    Failure,
    JobRecord,
    LimitRow,
    NewJob,
    ScheduleRecord,
    State,
    StatusRow,
    TimingRow,
    WorkerRecord,
)
from pyjobs.store import open_store
from pyjobs.store.base import Store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)


class Decorator(Protocol):
    """What ``@jobs.job(...)`` decorates with."""

    def __call__(self, handler: Callable[P, R]) -> Job[P, R]: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A declared schedule: exactly one of ``cron`` and ``every_ms`` is set."""

    name: str
    job: str
    cron: str | None
    every_ms: int | None
    timezone: str
    args: str
    options: Mapping[str, Any]
    enabled: bool

    def next_moment(self, after: datetime) -> datetime:
        """Its first moment after ``after``."""
        return next_moment(cron=self.cron, every_ms=self.every_ms, timezone=self.timezone, after=after)


@dataclass(frozen=True, slots=True)
class Stats:
    """What the queue holds: jobs by state, by queue and state, and run times of what is finished."""

    totals: Mapping[State, int]
    queues: Sequence[StatusRow]
    timings: Sequence[TimingRow]


Request = NewJob | tuple[str | Named, Mapping[str, Any]] | tuple[str | Named, Mapping[str, Any], EnqueueOptions]
"""One of ``enqueue_many``: ``("welcome", {"user_id": 1})``, the same with options, or a ``NewJob``."""


class Schedules(Mapping[str, Schedule]):
    """The schedules declared in this application, by name. Called, it reads those that the database holds."""

    def __init__(self, pool: StorePool, declared: Mapping[str, Schedule]) -> None:
        self._pool = pool
        self._declared = declared

    def __getitem__(self, name: str) -> Schedule:
        return self._declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __call__(self) -> Sequence[ScheduleRecord]:
        with self._pool.store() as store:
            return store.schedules()


class Batches:
    """Reading batches."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    def get(self, id: UUID) -> BatchRecord | None:
        """One batch with its counts; None when there is none (any more)."""
        with self._pool.store() as store:
            return store.batch(id)

    def list(self, *, finished: bool | None = None, limit: int = 100) -> Sequence[BatchRecord]:
        """Batches, newest first."""
        with self._pool.store() as store:
            return store.batches(finished=finished, limit=limit)

    def jobs(self, id: UUID, *, state: State | None = None, limit: int = 100) -> Sequence[JobRecord]:
        """The jobs of one batch, newest first."""
        with self._pool.store() as store:
            return store.jobs(contract_filter({"batch_id": id, "state": state}), limit=limit)


class Dead:
    """The jobs that failed for good: kept until somebody puts them back or discards them."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    def list(self, *, limit: int = 100, **filter: Unpack[JobFilter]) -> Sequence[JobRecord]:
        """Dead jobs, newest first."""
        with self._pool.store() as store:
            return store.jobs(_dead(filter), limit=limit)

    def count(self, **filter: Unpack[JobFilter]) -> int:
        """How many there are."""
        with self._pool.store() as store:
            return store.count(_dead(filter))

    def retry(self, *, delay: Duration = 0, **filter: Unpack[JobFilter]) -> int:
        """Put the dead jobs that match back, their attempts starting over; how many. Calls ``jobs_retry``.
        ``UniqueKeyHeld`` when one is named by ``id`` and another job holds its key now."""
        with self._pool.store() as store:
            return store.retry(_dead(filter), {"delay_ms": milliseconds(delay, "delay")})

    def discard(self, **filter: Unpack[JobFilter]) -> int:
        """Delete the dead jobs that match; how many. Calls ``jobs_discard``."""
        with self._pool.store() as store:
            return store.discard(_dead(filter))


class Jobs:
    """An application's jobs on one database.

    ``url``: the database; without it ``PYJOBS_DATABASE_URL`` or ``[tool.pyjobs]``, when first needed.
    ``name``: under which its schedules are known in the database; the module that makes it unless given.
    ``pool_size``: how many threads can be at the database at once.
    ``tenant_scope``: the application's own scope of a tenant, a context manager made from its name; a worker enters it
    around the handler of a job that has one, and an error in entering it is the attempt's failure.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        pool_size: int = 8,
        tenant_scope: Callable[[str], AbstractContextManager[object]] | None = None,
    ) -> None:
        self.name = name or _module_of(sys._getframe(1))
        self._url = url
        self.tenant_scope = tenant_scope
        self._including = threading.RLock()
        self._includer: int | None = None  # the thread that includes something
        self._loaded = False
        # What is declared, by name: by the application itself; and by what it includes, which gives way to that.
        self._definitions: ChainMap[str, Job[..., Any]] = ChainMap({}, {})
        self._schedules: ChainMap[str, Schedule] = ChainMap({}, {})
        self._pool = StorePool(self.open_store, pool_size)
        self.schedules = Schedules(self._pool, self._schedules)
        self.batches = Batches(self._pool)
        self.dead = Dead(self._pool)

    @property
    def url(self) -> str:
        """The database's URL; ``InvalidConfiguration`` when nobody names one."""
        if self._url is None:
            self._url = database_url()
        return self._url

    def use(self, url: str) -> None:
        """Use another database from now on."""
        self.close()
        self._url = url

    @contextmanager
    def using(self, url: str) -> Iterator[None]:
        """Use another database for the block, in all threads. For tests."""
        before = self._url
        self.use(url)
        try:
            yield
        finally:
            self.close()
            self._url = before

    def open_store(self) -> Store:
        """A store of your own, on a connection of its own. Close it when done."""
        return open_store(self.url)

    def close(self) -> None:
        """Give back the idle connections."""
        self._pool.close()

    # Declaring

    @property
    def definitions(self) -> Mapping[str, Job[..., Any]]:
        """The jobs by name."""
        return MappingProxyType(self._definitions)

    @overload
    def job(self, handler: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, name: str | None = None, /, **options: Unpack[JobOptions]) -> Decorator: ...
    def job(self, first: Any = None, /, **options: Unpack[JobOptions]) -> Any:
        """Define a job: ``@jobs.job``, ``@jobs.job("mail/send", queue="mail")``. Without a name it has the handler's.

        A parameter called ``context`` is given the ``JobContext``. No type can say "these parameters but that one", so
        for a type checker, which else misses it in ``enqueue``, write ``context: JobContext | None = None``.
        """
        if callable(first):
            return self.define(first.__name__, first)

        def decorate(handler: Callable[P, R]) -> Job[P, R]:
            return self.define(first or handler.__name__, handler, **options)

        return decorate

    def define(self, name: str, handler: Callable[P, R], **options: Unpack[JobOptions]) -> Job[P, R]:
        """Define a job by call. ``InvalidConfiguration`` when the name is taken already."""
        if isinstance(handler, Job):
            raise InvalidConfiguration(f"the handler of {name!r} is a job already", "define it by handler.handler")
        layer = self._layer(self._definitions)
        if name in layer:
            raise InvalidConfiguration(f"the job {name!r} is defined twice", "give one of the two another name")
        job = Job(name, handler, self.send, self._entered, **options)
        layer[name] = job
        return job

    def schedule(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        enabled: bool = True,
        **options: Unpack[SharedOptions],
    ) -> Callable[[Job[P, R]], Job[P, R]]:
        """Enqueue the job at each moment of ``cron`` or ``every``; stands above ``@jobs.job``. Without a name the
        schedule has the job's. Raises ``InvalidSchedule`` for one that cannot be read or never comes round."""

        def decorate(job: Job[P, R]) -> Job[P, R]:
            if not isinstance(job, Job):
                raise InvalidConfiguration("@jobs.schedule is given a function", "put it above @jobs.job")
            self.recur(
                name or job.name,
                job=job.name,
                cron=cron,
                every=every,
                timezone=timezone,
                args=args,
                enabled=enabled,
                **options,
            )
            return job

        return decorate

    def recur(
        self,
        name: str,
        *,
        job: str | Named | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        args: Mapping[str, Any] | None = None,
        enabled: bool = True,
        **options: Unpack[SharedOptions],
    ) -> Schedule:
        """Declare a schedule by call: of the job of its own name unless ``job`` is given (or defined later)."""
        layer = self._layer(self._schedules)
        if name in layer:
            raise InvalidConfiguration(f"the schedule {name!r} is declared twice", "give one of the two a name=…")
        target = name if job is None else _name(job)
        if unknown := options.keys() - SharedOptions.__annotations__.keys():
            raise InvalidOption(
                f"a schedule has no option {min(unknown)!r}", "options: " + ", ".join(SharedOptions.__annotations__)
            )
        schedule = Schedule(
            name=name,
            job=target,
            cron=cron,
            every_ms=None if every is None else milliseconds(every, "every"),
            timezone=timezone,
            args=self._encoded(target, args),
            options=contract_options(options),
            enabled=enabled,
        )
        schedule.next_moment(_ANY_MOMENT)
        layer[name] = schedule
        return schedule

    def include(self, declare: Callable[[Jobs], object]) -> None:
        """Let ``declare`` define jobs and schedules here that give way to the application's own of the same name,
        whichever is declared first. When it raises, nothing of it stays."""
        with self._including:
            outer, self._includer = self._includer, threading.get_ident()
            jobs, schedules = dict(self._definitions.maps[1]), dict(self._schedules.maps[1])
            try:
                declare(self)
            except BaseException:
                self._definitions.maps[1], self._schedules.maps[1] = jobs, schedules
                raise
            finally:
                self._includer = outer

    def load_packages(self) -> None:
        """Include the jobs that installed packages ship, once: each entry point of the group ``pyjobs.jobs`` is a
        function that takes this ``Jobs`` and defines on it. ``sync`` and workers do it when they start.

        ``InvalidConfiguration`` for one that fails, and then nothing is included. To go on without it would be to
        forget its schedules.
        """
        with self._including:
            if not self._loaded:
                self.include(_declare_shipped)
                self._loaded = True

    def sync(self, store: Store | None = None) -> None:
        """Put the jobs and schedules declared here into the database, and forget the schedules which this application
        declared earlier and no longer does. Workers do it when they start. Safe to repeat, and by many at once. What
        packages ship is loaded first.

        Calls ``jobs_define``, ``jobs_put_schedule``, ``jobs_prune_schedules``. ``UnknownJob`` for a schedule of a job
        that nobody defines, before anything is changed.
        """
        if store is None:
            with self._pool.store() as own:
                return self.sync(own)
        self.load_packages()
        self._check_schedules(store)
        for job in self._definitions.values():
            store.define(job.name, job.options())
        for schedule in self.schedules.values():
            options = {
                "job": schedule.job,
                "cron": schedule.cron,
                "every_ms": schedule.every_ms,
                "timezone": schedule.timezone,
                "args": schedule.args,
                "options": schedule.options,
                "source": self.name,
                "enabled": schedule.enabled,
            }
            given = {key: value for key, value in options.items() if value is not None}
            store.put_schedule(schedule.name, given, schedule.next_moment(store.now()))
        store.prune_schedules(self.name, [*self.schedules])

    # Enqueueing

    def enqueue(
        self,
        name: str | Named,
        args: Mapping[str, Any] | None = None,
        *,
        id: UUID | None = None,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> UUID:
        """Enqueue a job by name; its id, or the id of the job that holds its unique key. Calls ``jobs_enqueue``.

        With ``connection`` (a DB-API connection of this database, a SQLAlchemy session or connection, a Django
        connection or its alias) it happens in the transaction that is open there: the job exists if and only if that
        commits. ``id``: your own, to repeat a call safely.
        Raises ``UnknownJob``, ``InvalidArguments``, ``InvalidOption``, ``OtherTenant``, ``BatchClosed``,
        ``UnknownBatch``.
        """
        return self._enqueue(self.new_job(name, args, options, id), connection)

    def send(self, name: str, args: str, options: EnqueueOptions | None = None, connection: Any = None) -> UUID:
        """``enqueue`` with the arguments as JSON text, kept verbatim."""
        return self._enqueue(self.new_job_of_text(name, args, options or {}), connection)

    def enqueue_many(self, requests: Iterable[Request], *, connection: Any = None) -> Sequence[Enqueued]:
        """Enqueue many in one round trip, all or none; an answer for each, in order. Calls ``jobs_enqueue_many``."""
        new = [_scoped(each) if isinstance(each, NewJob) else self._requested(*each) for each in requests]
        if not new:
            return []
        return self.call(lambda store: store.enqueue_many(new), connection)

    async def aenqueue(
        self,
        name: str | Named,
        args: Mapping[str, Any] | None = None,
        *,
        id: UUID | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> UUID:
        """``enqueue`` for asyncio: the call waits in a thread, the event loop goes on."""
        return await asyncio.to_thread(self.enqueue, name, args, id=id, **options)

    def batch(
        self,
        callback: str | Named | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> Batch:
        """A batch to fill in a ``with`` block. ``callback`` is enqueued with ``args`` and ``options`` once all its jobs
        are terminal, dead ones included; the counts are in its context's ``batch``. Calls ``jobs_open_batch`` and
        ``jobs_seal_batch``."""
        id = new_id()
        settings = _stamped(options)
        opened: dict[str, Any] = {"id": str(id), "name": name}
        if "tenant" in settings:
            opened["tenant"] = settings.pop("tenant")
        if callback is not None:
            target = _name(callback)
            opened["callback"] = {"name": target, "args": self._encoded(target, args), "options": settings}
        return Batch(id, opened, self.new_job, self.call, connection)

    def tenant(self, name: str | None) -> AbstractContextManager[None]:
        """The block belongs to a tenant: what it enqueues is stamped. ``OtherTenant`` inside a different one; None
        leaves the scope."""
        return tenants.entered(name)

    def perform_now(self, name: str | Named, args: Mapping[str, Any] | None = None) -> Any:
        """Perform a job here and now and answer what its handler answers: no queue, no limit, no retry. Its arguments
        make the same way through JSON as any. For tests and the shell; not for a running event loop if it is async."""
        job = self._definition(_name(name))
        return self.perform_text_now(job.name, self._encoded(job.name, args))

    def perform_text_now(self, name: str, args: str) -> Any:
        """``perform_now`` with the arguments as JSON text."""
        job = self._definition(name)
        call = job.prepare(args, lambda: _inline_context(job))
        if not job.is_async:
            return call()

        async def awaited() -> Any:
            return await call()

        return asyncio.run(awaited())

    # What a batch and a job enqueue by

    def new_job(
        self, job: str | Named, args: Mapping[str, Any] | None, options: EnqueueOptions, id: UUID | None = None
    ) -> NewJob:
        """A job ready to be sent: its arguments as JSON, its tenant stamped, its id made."""
        name = _name(job)
        return self.new_job_of_text(name, self._encoded(name, args), options, id)

    def new_job_of_text(self, name: str, args: str, options: EnqueueOptions, id: UUID | None = None) -> NewJob:
        """``new_job`` with the arguments as JSON text, kept verbatim."""
        return NewJob(name, args, _stamped(options), id or new_id())

    def call(self, call: Callable[[Store], T], connection: Any = None) -> T:
        """A call on a store of the pool, or in the transaction open on ``connection``. If the database does not know a
        job of this application yet, it is defined and the call is made once more; but not in a transaction of the
        caller's, which the refusal may have ended."""
        with self._store(connection) as store:
            try:
                return call(store)
            except UnknownJob:
                if connection is not None:
                    raise
            with suppress(InvalidConfiguration):  # whoever may only enqueue leaves it to the workers
                self._define_missing(store)  # perhaps another thread has just done it: that is no reason to give up
            return call(store)

    # Reading

    def get(self, id: UUID) -> JobRecord | None:
        """One job with its args; None when there is none (any more)."""
        with self._pool.store() as store:
            return store.job(id)

    def failures(self, id: UUID) -> Sequence[Failure]:
        """A job's failed attempts, oldest first."""
        with self._pool.store() as store:
            return store.failures(id)

    def list(self, *, limit: int = 100, **filter: Unpack[JobFilter]) -> Sequence[JobRecord]:
        """Jobs, newest first, without their args."""
        with self._pool.store() as store:
            return store.jobs(contract_filter(filter), limit=limit)

    def count(self, **filter: Unpack[JobFilter]) -> int:
        """How many jobs there are."""
        with self._pool.store() as store:
            return store.count(contract_filter(filter))

    def stats(self) -> Stats:
        """What the queue holds and how long its jobs take."""
        with self._pool.store() as store:
            queues = store.status()
            timings = store.timings()
        totals: dict[State, int] = {}
        for row in queues:
            totals[row.state] = totals.get(row.state, 0) + row.count
        return Stats(totals, queues, timings)

    def limits(self) -> Sequence[LimitRow]:
        """The concurrency limits and who holds a slot of them."""
        with self._pool.store() as store:
            return store.limits()

    def workers(self) -> Sequence[WorkerRecord]:
        """The workers, as they last spoke."""
        with self._pool.store() as store:
            return store.workers()

    # Operating

    def retry(
        self,
        id: UUID | None = None,
        /,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
        limit: int | None = None,
        **filter: Unpack[JobFilter],
    ) -> int:
        """Put jobs back, their attempts starting over: one by its id, or all that match, dead, cancelled, done and
        scheduled ones alike unless ``state`` says which; how many. ``at``, ``delay``: when they run, if not now.
        ``limit``: at most so many, the oldest first. Calls ``jobs_retry``, all in one transaction.

        By id ``JobRunning``, and ``UniqueKeyHeld`` when another job holds its key now; such jobs are passed over
        otherwise. ``InvalidOption`` when nothing says which jobs are meant.
        """
        with self._pool.store() as store:
            return store.retry(contract_selection(id, filter, limit), contract_start(at, delay))

    def cancel(self, id: UUID | None = None, /, *, limit: int | None = None, **filter: Unpack[JobFilter]) -> int:
        """Cancel waiting jobs now, and ask the workers of running ones to stop: one by its id, or all that match; how
        many. Those that have ended already stay as they are. Calls ``jobs_cancel``, all in one transaction.

        ``InvalidOption`` when nothing says which jobs are meant.
        """
        with self._pool.store() as store:
            return store.cancel(contract_selection(id, filter, limit))

    def discard(self, id: UUID | None = None, /, *, limit: int | None = None, **filter: Unpack[JobFilter]) -> int:
        """Delete jobs that are not running: one by its id (``JobRunning`` if it is), or all that match, in whatever
        state unless ``state`` says which; how many. Calls ``jobs_discard``, all in one transaction.

        ``InvalidOption`` when nothing says which jobs are meant.
        """
        with self._pool.store() as store:
            return store.discard(contract_selection(id, filter, limit))

    def pause_queue(self, queue: str) -> None:
        """Let nobody claim from the queue; what runs goes on. Calls ``jobs_pause_queue``. ``BadName`` for a name that
        is empty or too long."""
        with self._pool.store() as store:
            store.pause_queue(queue)

    def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again. Calls ``jobs_resume_queue``."""
        with self._pool.store() as store:
            store.resume_queue(queue)

    def forget(self, name: str) -> bool:
        """Remove what the database knows of a job name; its waiting jobs stay. False when it knows none. A worker that
        defines the name brings it back when it starts. Calls ``jobs_forget``."""
        with self._pool.store() as store:
            return store.forget(name)

    # What these share

    def _layer(self, layers: ChainMap[str, T]) -> MutableMapping[str, T]:
        """Where what this thread declares belongs."""
        return layers.maps[1 if self._includer == threading.get_ident() else 0]

    @contextmanager
    def _entered(self, tenant: str | None) -> Iterator[None]:
        """The scope in which a handler is called: the tenant's here, and the application's own."""
        own = nullcontext() if tenant is None or self.tenant_scope is None else self.tenant_scope(tenant)
        with tenants.entered(tenant), own:
            yield

    def _definition(self, name: str) -> Job[..., Any]:
        if name not in self._definitions:
            raise UnknownJob(f"no job {name!r} is defined here", "defined: " + (", ".join(self._definitions) or "none"))
        return self._definitions[name]

    def _encoded(self, name: str, args: Mapping[str, Any] | None) -> str:
        definition = self._definitions.get(name)
        named = {} if args is None else args
        return definition.encode(named) if definition else _encode(named)

    def _requested(
        self, name: str | Named, args: Mapping[str, Any], options: EnqueueOptions | None = None
    ) -> NewJob:
        job = _name(name)
        return NewJob(job, self._encoded(job, args), _stamped(options or {}))  # the store makes the ids, all at once

    def _store(self, connection: Any) -> AbstractContextManager[Store]:
        if connection is None:
            return self._pool.store()
        return nullcontext(self.open_store().join(driver_connection(connection)))

    def _enqueue(self, job: NewJob, connection: Any) -> UUID:
        return self.call(lambda store: store.enqueue(job.name, job.args, job.options, job.id), connection)

    def _check_schedules(self, store: Store) -> None:
        missing = {each.job: each.name for each in self.schedules.values() if each.job not in self._definitions}
        elsewhere = {each.name for each in store.definitions()} if missing else set()
        for job, schedule in missing.items():
            if job not in elsewhere:
                raise UnknownJob(
                    f"the schedule {schedule!r} is of the job {job!r}, which nobody defines",
                    "define it, or correct job=…",
                )

    def _define_missing(self, store: Store) -> None:
        """Define what the database does not know; what it knows may be of a newer deploy."""
        for name in self._definitions.keys() - {each.name for each in store.definitions()}:
            store.define(name, self._definitions[name].options())


def _declare_shipped(jobs: Jobs) -> None:
    for package in shipped():
        package.declare(jobs)


def _encode(args: Mapping[str, Any]) -> str:
    """The arguments of a job that is defined elsewhere as JSON: what JSON does not know is refused."""
    if not isinstance(args, Mapping):
        raise InvalidArguments("args is not a mapping of names to values", 'pass them by name: {"user_id": 1}')
    return dumps(dict(args))


def _stamped(options: EnqueueOptions) -> dict[str, Any]:
    """The options as the contract takes them, with the tenant in scope unless one is named."""
    return _with_tenant(contract_options(options))


def _scoped(new: NewJob) -> NewJob:
    """A job that was made elsewhere: in a scope it is as much the tenant's as any other."""
    return replace(new, options=_with_tenant(dict(new.options)))


def _with_tenant(given: dict[str, Any]) -> dict[str, Any]:
    scope = tenants.current()
    if "tenant" in given:
        tenants.check(given["tenant"])
    elif scope is not None:
        given["tenant"] = scope
    return given


def _dead(filter: JobFilter) -> dict[str, Any]:
    return contract_filter(filter) | {"state": "dead"}


def _name(job: str | Named) -> str:
    name = job if isinstance(job, str) else getattr(job, "name", None)
    if not isinstance(name, str):
        raise UnknownJob(f"a {type(job).__name__} is not a job", "pass a job's name, or what @jobs.job made")
    return name


def _inline_context(job: Job[..., Any]) -> JobContext:
    now = datetime.now(UTC)
    return JobContext(
        id=new_id(),
        name=job.name,
        queue=job.queue,
        attempt=1,
        max_attempts=job.max_attempts,
        enqueued_at=now,
        run_at=now,
        worker="inline",
        tenant=tenants.current(),
    )


def _module_of(frame: FrameType) -> str:
    """The module as an import would call it, also when it is the program that runs: a worker that imports it and a
    script that is it must agree."""
    module = str(frame.f_globals.get("__name__", "jobs"))
    if module != "__main__":
        return module
    spec = frame.f_globals.get("__spec__")
    return spec.name if spec else Path(frame.f_globals.get("__file__", "jobs")).stem
