"""What ``pyjobs doctor`` looks at: each check answers one finding, and what to do about it.

The database is read once, into a :class:`Patient`; a check only judges. Ages are by the database's clock. What a
worker does within seconds is given ``GRACE`` before it counts as not done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pyjobs import install
from pyjobs.app import Jobs
from pyjobs.cli import views
from pyjobs.cli.differences import Difference, differences
from pyjobs.cli.output import span
from pyjobs.duration import text
from pyjobs.errors import ContractMismatch, PyjobsError, StoreUnavailable
from pyjobs.records import DefinitionRecord, JobRecord, OrphanRow, ScheduleRecord, StatusRow, WorkerRecord
from pyjobs.store.base import CONTRACT_VERSION, Store

Level = Literal["ok", "warning", "problem"]

GRACE = timedelta(minutes=1)
DEFAULT_LEASE_MS = 300_000
CLOCK_WARNING = timedelta(seconds=2)
CLOCK_PROBLEM = timedelta(seconds=60)
MOST_RUNNING = 100_000
NAMED = 5  # how many names a message holds; the rest are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check came to. ``subjects``: the names or ids it is about, all of them."""

    check: str
    level: Level
    message: str
    advice: str = ""
    subjects: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Patient:
    """All that is judged, read one after the other."""

    now: datetime
    clock_offset: timedelta
    """How far this host's clock is ahead of the database's, less what the call itself took."""
    status: Sequence[StatusRow]
    workers: Sequence[WorkerRecord]
    """Those that are live."""
    orphans: Sequence[OrphanRow]
    running: Sequence[JobRecord]
    paused: Sequence[str]
    schedules: Sequence[ScheduleRecord]
    definitions: Sequence[DefinitionRecord]
    differences: Sequence[Difference] | None
    """None: no application is named."""

    @classmethod
    def of(cls, store: Store, declared: Jobs | None) -> Patient:
        now, offset = _clocks(store)
        return cls(
            now=now,
            clock_offset=offset,
            status=store.status(),
            workers=[each for each in store.workers() if each.live],
            orphans=store.orphans(),
            running=store.jobs({"state": "running"}, limit=MOST_RUNNING),
            paused=store.paused(),
            schedules=store.schedules(),
            definitions=store.definitions(),
            differences=differences(declared, store) if declared else None,
        )


def examine(jobs: Jobs, *, compared: bool) -> list[Finding]:
    """All findings. Where the database cannot be read, no more than why. ``compared``: whether ``jobs`` is an
    application, whose declarations are to be in the database."""
    schema = _schema(jobs.url)
    try:
        with closing(jobs.open_store()) as store:
            _check_contract(store)
            patient = Patient.of(store, jobs if compared else None)
    except StoreUnavailable as error:
        return [Finding("database", "problem", error.message, error.hint)]
    except ContractMismatch as error:
        return [schema if schema.level == "problem" else Finding("schema", "problem", error.message, error.hint)]
    return [Finding("database", "ok", "it answers"), schema, *(check(patient) for check in CHECKS)]


def _check_contract(store: Store) -> None:
    installed = store.contract()
    if installed != CONTRACT_VERSION:
        raise ContractMismatch(
            f"the database has version {installed} of the contract, this pyjobs needs {CONTRACT_VERSION}",
            "pyjobs migrate, or a pyjobs of the other version",
        )


def _schema(url: str) -> Finding:
    try:
        status = install.status(url)
    except PyjobsError as error:  # it may be that this user may not read the account; the contract is looked at anyhow
        return Finding("schema", "warning", f"what is installed cannot be told: {error.message}", error.hint)
    if status.newer:
        return Finding(
            "schema",
            "warning",
            f"pyjobs {status.installed_version} is installed, newer than this {status.package_version}",
            f"install pyjobs {status.installed_version} here too",
        )
    if status.current:
        return Finding("schema", "ok", f"pyjobs {status.installed_version} is installed, up to date")
    if status.installed_version is None:
        return Finding("schema", "problem", "pyjobs is not installed in this database", "pyjobs migrate")
    return Finding(
        "schema",
        "problem",
        f"pyjobs {status.installed_version} is installed, and not what this {status.package_version} needs",
        "pyjobs migrate",
        status.pending,
    )


def _clock(patient: Patient) -> Finding:
    off = abs(patient.clock_offset)
    if off <= CLOCK_WARNING:
        return Finding("clock", "ok", "this host's clock and the database's agree")
    return Finding(
        "clock",
        "problem" if off > CLOCK_PROBLEM else "warning",
        f"this host's clock is {span(off)} {'ahead of' if patient.clock_offset > timedelta() else 'behind'}"
        " the database's, which is the one that counts",
        "let both hosts set their clocks by the network",
    )


def _workers(patient: Patient) -> Finding:
    if patient.workers:
        return Finding("workers", "ok", f"{len(patient.workers)} live", "", [each.id for each in patient.workers])
    return Finding(
        "workers", "warning", "none is live: nothing is performed, fired or taken back", "pyjobs worker --app …"
    )


def _names(patient: Patient) -> Finding:
    if not patient.orphans:
        return Finding("names", "ok", "every name that waits has a worker")
    due = any(each.oldest_run_at <= patient.now for each in patient.orphans)
    told = _named(f"{each.name} ({each.waiting} waiting)" for each in patient.orphans)
    return Finding(
        "names",
        "problem" if due else "warning",
        f"no live worker performs {told}" + ("" if due else ", not due yet"),
        "start a worker of the application that defines them; for a name that is no more: pyjobs cancel --name NAME",
        [each.name for each in patient.orphans],
    )


def _queues(patient: Patient) -> Finding:
    waiting = {row.queue: row.count for row in patient.status if row.state == "pending"}
    if patient.paused:
        return Finding(
            "queues",
            "warning",
            "paused: " + _named(f"{name} ({waiting.get(name, 0)} waiting)" for name in patient.paused),
            "pyjobs resume QUEUE, when it may go on",
            patient.paused,
        )
    return Finding("queues", "ok", "none is paused")


def _served(patient: Patient) -> Finding:
    served = [views.worker_info(each).get("queues") for each in patient.workers]
    left = sorted(
        row.queue
        for row in patient.status
        if row.state == "pending" and row.queue not in patient.paused and not _serves(served, row.queue)
    )
    if left and patient.workers:  # that there is none at all is another finding
        return Finding(
            "served",
            "problem",
            f"jobs wait in queues that no live worker takes from: {_named(left)}",
            "start a worker with --queue for them, or without --queue",
            left,
        )
    return Finding("served", "ok", "every queue where jobs wait has a worker")


def _leases(patient: Patient) -> Finding:
    over = [each for each in patient.running if each.lease_until and each.lease_until < patient.now - GRACE]
    if not over:
        return Finding("leases", "ok", f"{len(patient.running)} running, none beyond its lease")
    longest = max(patient.now - each.lease_until for each in over if each.lease_until)
    return Finding(
        "leases",
        "problem",
        f"{len(over)} running beyond the lease, by up to {span(longest)}: nobody takes back what was lost",
        "start a worker: each of them does it",
        [str(each.id) for each in over],
    )


def _timeouts(patient: Patient) -> Finding:
    long = {each.name: _shortest_lease(patient, each) for each in patient.definitions if each.timeout_ms}
    wrong = [
        (each.name, each.timeout_ms, *long[each.name])
        for each in patient.definitions
        if each.timeout_ms and each.timeout_ms >= long[each.name][0]
    ]
    if not wrong:
        return Finding("timeouts", "ok", "every timeout is shorter than the lease")
    told = _named(f"{name} ({text(timeout)}, lease {text(lease)})" for name, timeout, lease, _ in wrong)
    return Finding(
        "timeouts",
        "problem" if any(known for *_, known in wrong) else "warning",
        f"the timeout is not shorter than the worker's lease: {told}",
        "pyjobs worker --lease, longer than every timeout; or a shorter timeout",
        [name for name, *_ in wrong],
    )


def _schedules(patient: Patient) -> Finding:
    defined = {each.name for each in patient.definitions}
    late = [
        each
        for each in patient.schedules
        if each.enabled and each.job in defined and each.next_run_at < patient.now - GRACE
    ]
    if not late:
        return Finding("schedules", "ok", f"none of {len(patient.schedules)} is overdue")
    told = _named(f"{each.name} (by {span(patient.now - each.next_run_at)})" for each in late)
    return Finding(
        "schedules",
        "problem",
        f"overdue: {told}: nobody fires them",
        "start a worker without --no-schedules",
        [each.name for each in late],
    )


def _schedule_jobs(patient: Patient) -> Finding:
    defined = {each.name for each in patient.definitions}
    wrong = [each for each in patient.schedules if each.enabled and each.job not in defined]
    if not wrong:
        return Finding("schedule_jobs", "ok", "every schedule's job is defined")
    return Finding(
        "schedule_jobs",
        "problem",
        "their job is not defined: " + _named(f"{each.name} (of {each.job})" for each in wrong),
        "pyjobs sync, with the application that defines the job, or with the one that no longer declares the schedule",
        [each.name for each in wrong],
    )


def _definitions(patient: Patient) -> Finding:
    if patient.differences is None:
        return Finding("definitions", "ok", "not compared: there is no application to compare with (--app)")
    if not patient.differences:
        return Finding("definitions", "ok", "the database has what the application declares")
    told = _named(f"{each.name} ({each.told() or each.change})" for each in patient.differences)
    return Finding(
        "definitions",
        "warning",
        f"the application and the database differ: {told}",
        "pyjobs sync (a worker does it when it starts)",
        [each.name for each in patient.differences],
    )


def _dead(patient: Patient) -> Finding:
    counts = {row.queue: row.count for row in patient.status if row.state == "dead"}
    if not counts:
        return Finding("dead", "ok", "no job is dead")
    return Finding(
        "dead",
        "warning",
        f"{sum(counts.values())} dead, in {_named(f'{queue} ({count})' for queue, count in sorted(counts.items()))}",
        "pyjobs dead shows why; then pyjobs retry, or pyjobs discard",
        sorted(counts),
    )


CHECKS: tuple[Callable[[Patient], Finding], ...] = (
    _clock,
    _workers,
    _names,
    _queues,
    _served,
    _leases,
    _timeouts,
    _schedules,
    _schedule_jobs,
    _definitions,
    _dead,
)


def _clocks(store: Store) -> tuple[datetime, timedelta]:
    """The database's time, and how far this host's is ahead of it. What the call took is doubt, not difference."""
    before = datetime.now(UTC)
    now = store.now()
    after = datetime.now(UTC)
    if before <= now <= after:
        return now, timedelta()
    return now, before - now if now < before else after - now


def _shortest_lease(patient: Patient, definition: DefinitionRecord) -> tuple[int, bool]:
    """The shortest lease of the live workers that may perform it, in ms, and whether there is one that tells."""
    leases = [
        info["lease_ms"]
        for info in map(views.worker_info, patient.workers)
        if isinstance(info.get("lease_ms"), int)
        and _serves([info.get("names")], definition.name)
        and _serves([info.get("queues")], definition.queue)
    ]
    return (min(leases), True) if leases else (DEFAULT_LEASE_MS, False)


def _serves(lists: Iterable[Any], name: str) -> bool:
    """Whether one of the lists holds the name. A worker that says none takes all."""
    return any(not isinstance(each, list) or name in each for each in lists)


def _named(names: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    every = list(names)
    first = ", ".join(every[:NAMED])
    return first if len(every) <= NAMED else f"{first} and {len(every) - NAMED} more"
