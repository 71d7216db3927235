"""What the queue's records look like to people, and as JSON where they are more than their fields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, get_args

import click

from pyjobs.cli.output import Table, ago, as_json, print_tables, printable, span
from pyjobs.duration import text
from pyjobs.records import (
    BatchRecord,
    DeadRecord,
    Failure,
    JobRecord,
    LimitRow,
    OrphanRow,
    ScheduleRecord,
    State,
    StatusRow,
    TimingRow,
    WorkerRecord,
)
from pyjobs.store.base import Store

STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Overview:
    """All that ``pyjobs status`` shows, read one after the other."""

    now: datetime
    queues: Sequence[StatusRow]
    paused: Sequence[str]
    timings: Sequence[TimingRow]
    limits: Sequence[LimitRow]
    batches: Sequence[BatchRecord]
    schedules: Sequence[ScheduleRecord]
    workers: Sequence[WorkerRecord]
    orphans: Sequence[OrphanRow]

    @classmethod
    def of(cls, store: Store) -> Overview:
        return cls(
            now=store.now(),
            queues=store.status(),
            paused=store.paused(),
            timings=store.timings(),
            limits=store.limits(),
            batches=store.batches(finished=False),
            schedules=store.schedules(),
            workers=store.workers(),
            orphans=store.orphans(),
        )


def overview_tables(overview: Overview) -> list[Table]:
    """The parts of ``pyjobs status``; one without rows has nothing to say."""
    now = overview.now
    return [
        queues_table(overview.queues, overview.paused),
        timings_table(overview.timings),
        limits_table(overview.limits, now),
        batches_table(overview.batches, now),
        schedules_table(overview.schedules, now),
        workers_table(overview.workers, now),
        orphans_table(overview.orphans, now),
    ]


def queues_table(rows: Sequence[StatusRow], paused: Sequence[str]) -> Table:
    """What is in each queue; one that is paused is told of though nothing is in it yet."""
    counts = {(row.queue, row.state): row for row in rows}
    lines = []
    for queue in sorted({row.queue for row in rows} | {*paused}):
        of_queue = [counts.get((queue, state)) for state in STATES]
        waits = [row.oldest_wait_ms for row in of_queue if row and row.oldest_wait_ms is not None]
        lines.append(
            [
                f"{queue} (paused)" if queue in paused else queue,
                *(str(row.count) if row else "-" for row in of_queue),
                span(max(waits)) if waits else "-",
            ]
        )
    return Table("Queues", ["queue", *(f"#{state}" for state in STATES), "#oldest wait"], lines)


def timings_table(rows: Sequence[TimingRow]) -> Table:
    return Table(
        "Run times",
        ["queue", "name", "#runs", "#min", "#average", "#p95", "#max"],
        [
            [
                row.queue,
                row.name,
                str(row.runs),
                span(row.min_ms),
                span(row.average_ms),
                "-" if row.p95_ms is None else span(row.p95_ms),
                span(row.max_ms),
            ]
            for row in rows
        ],
    )


def limits_table(rows: Sequence[LimitRow], now: datetime) -> Table:
    return Table(
        "Limits",
        ["group", "#limit", "bucket", "#slot", "held by", "worker", "since"],
        [
            [
                row.group,
                str(row.slots),
                row.bucket or "-",
                "-" if row.slot is None else str(row.slot),
                f"{row.name} {row.job_id}" if row.job_id else "-",
                row.worker or "-",
                ago(row.taken_at, now),
            ]
            for row in rows
        ],
        spare=["worker", "since"],
    )


def batches_table(rows: Sequence[BatchRecord], now: datetime) -> Table:
    return Table(
        "Batches",
        ["id", "name", "#total", "#done", "#failed", "callback", "opened", "finished"],
        [
            [
                str(row.id),
                row.name or "-",
                "open" if row.total is None else str(row.total),
                str(row.done),
                str(row.failed),
                row.callback or "-",
                ago(row.opened_at, now),
                ago(row.finished_at, now),
            ]
            for row in rows
        ],
        spare=["opened", "callback", "finished"],
    )


def schedules_table(rows: Sequence[ScheduleRecord], now: datetime) -> Table:
    return Table(
        "Schedules",
        ["name", "job", "when", "next", "last"],
        [
            [
                row.name if row.enabled else f"{row.name} (off)",
                row.job,
                _timing(row),
                ago(row.next_run_at, now),
                ago(row.last_run_at, now),
            ]
            for row in rows
        ],
        spare=["last"],
    )


def workers_table(rows: Sequence[WorkerRecord], now: datetime) -> Table:
    return Table(
        "Workers",
        ["id", "live", "#running", "queues", "started", "last heard"],
        [
            [
                row.id,
                "yes" if row.live else "no",
                _of_capacity(row),
                _queues(row),
                ago(row.started_at, now),
                ago(row.seen_at, now),
            ]
            for row in rows
        ],
        spare=["started", "queues"],
    )


def worker_info(worker: WorkerRecord) -> Mapping[str, Any]:
    """What a worker says of itself. One in another language may say other things, or nothing."""
    told = json.loads(worker.info)
    return told if isinstance(told, dict) else {}


def worker_document(worker: WorkerRecord) -> dict[str, Any]:
    """A worker as ``pyjobs workers --json`` prints it: what it says of itself as an object, not as text."""
    return asdict(worker) | {"info": worker_info(worker)}


def orphans_table(rows: Sequence[OrphanRow], now: datetime) -> Table:
    return Table(
        "Waiting for a worker that knows them",
        ["name", "#waiting", "oldest"],
        [[row.name, str(row.waiting), ago(row.oldest_run_at, now)] for row in rows],
    )


def jobs_table(jobs: Sequence[JobRecord], now: datetime) -> Table:
    return Table(
        "",
        ["id", "state", "name", "queue", "#attempts", "when", "tenant"],
        [
            [
                str(job.id),
                job.state,
                job.name,
                job.queue,
                f"{job.attempts}/{job.max_attempts}",
                _when(job, now),
                job.tenant or "-",
            ]
            for job in jobs
        ],
        spare=["tenant", "queue", "#attempts"],
    )


def dead_table(jobs: Sequence[DeadRecord], now: datetime) -> Table:
    return Table(
        "",
        ["id", "when", "name", "reason", "error", "queue", "#attempts", "tenant"],
        [
            [
                str(job.id),
                ago(job.finished_at, now),
                job.name,
                job.dead_reason,
                ": ".join(_error(job)) or "-",
                job.queue,
                f"{job.attempts}/{job.max_attempts}",
                job.tenant or "-",
            ]
            for job in jobs
        ],
        spare=["tenant", "queue", "#attempts", "error"],
    )


def causes_table(jobs: Sequence[DeadRecord]) -> Table:
    """What they died of, the most frequent first."""
    causes = Counter((job.name, job.dead_reason, ": ".join(_error(job)) or "-") for job in jobs)
    return Table(
        "Why",
        ["#jobs", "name", "reason", "error"],
        [[str(count), *cause] for cause, count in causes.most_common()],
    )


def history_table(failures: Sequence[Failure], now: datetime, title: str = "Failed attempts") -> Table:
    return Table(
        title,
        ["#attempt", "kind", "error", "#ran", "when", "worker"],
        [
            [
                str(each.attempt),
                each.kind,
                ": ".join(_error(each)) or "-",
                span(each.failed_at - each.started_at),
                ago(each.failed_at, now),
                each.worker,
            ]
            for each in failures
        ],
        spare=["worker"],
    )


def print_job(job: JobRecord, failures: Sequence[Failure], now: datetime) -> None:
    """One job: what is known of it, its arguments as they were given, its failed attempts, and the last one's stack."""
    for name, value in _facts(job, now):
        click.echo(f"{name:<13}{printable(value)}")
    click.echo(f"{'args':<13}{_verbatim(job.args)}")
    if job.meta is not None:
        click.echo(f"{'meta':<13}{_verbatim(job.meta)}")
    if failures:
        click.echo()
        print_tables(history_table(failures, now))
        if failures[-1].stack:
            click.echo("\nThe last one's stack")
            for line in failures[-1].stack.splitlines():
                click.echo(f"  {printable(line)}")


def print_batch(batch: BatchRecord, counts: Mapping[State, int], now: datetime) -> None:
    """One batch: what is known of it, and how many of its jobs are in each state."""
    facts = {
        "id": str(batch.id),
        "name": batch.name,
        "tenant": batch.tenant,
        "jobs": "not sealed yet" if batch.total is None else str(batch.total),
        "ended": f"{batch.done}, of them {batch.failed} dead, cancelled or deleted",
        "callback": batch.callback and " ".join([batch.callback, str(batch.callback_id or "(when all have ended)")]),
        "opened": _moment(batch.opened_at, now),
        "sealed": _moment(batch.sealed_at, now),
        "finished": _moment(batch.finished_at, now),
        "in the table": ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no jobs",
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name:<13}{printable(value)}")


def without_payload(job: JobRecord) -> dict[str, Any]:
    """A job as ``pyjobs list --json`` prints it."""
    return {key: value for key, value in asdict(job).items() if key not in ("args", "meta")}


def job_document(job: JobRecord, failures: Sequence[Failure]) -> str:
    """A job as ``pyjobs show --json`` prints it. Its args and meta stand in it verbatim: decoding and
    encoding them would change numbers and lose duplicate keys."""
    rest = as_json(without_payload(job) | {"failures": [asdict(each) for each in failures]})
    return f'{rest.removesuffix("}").rstrip()},\n  "args": {job.args or "null"},\n  "meta": {job.meta or "null"}\n}}'


def _facts(job: JobRecord, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", str(job.id)
    yield "name", job.name
    yield "state", f"{job.state} ({job.dead_reason})" if job.dead_reason else job.state
    yield "queue", f"{job.queue}, priority {job.priority}"
    yield "attempts", f"{job.attempts} of {job.max_attempts}"
    if job.timeout_ms is not None:
        yield "timeout", text(job.timeout_ms)
    for name, moment in (
        ("enqueued", job.enqueued_at),
        ("runs", job.run_at),
        ("started", job.started_at),
        ("finished", job.finished_at),
        ("cancelling", job.cancel_at),
        ("lease until", job.lease_until),
    ):
        if told := _moment(moment, now):
            yield name, told
    for name, value in (
        ("worker", job.worker),
        ("limit", job.bucket),
        ("unique key", job.unique_key),
        ("tenant", job.tenant),
        ("batch", job.batch_id),
    ):
        if value is not None:
            yield name, str(value)


def _moment(moment: datetime | None, now: datetime) -> str | None:
    return None if moment is None else f"{moment.isoformat(timespec='milliseconds')}  ({ago(moment, now)})"


def _error(failure: Failure | DeadRecord) -> list[str]:
    """The kind of exception and what it said, as far as they are known."""
    return [part for part in ((failure.type or "").rpartition(".")[2], failure.message) if part]


def _of_capacity(worker: WorkerRecord) -> str:
    at_once = worker_info(worker).get("concurrency")
    return f"{worker.running}/{at_once}" if isinstance(at_once, int) else str(worker.running)


def _queues(worker: WorkerRecord) -> str:
    queues = worker_info(worker).get("queues")
    return ", ".join(map(str, queues)) if isinstance(queues, list) else "all"


def _when(job: JobRecord, now: datetime) -> str:
    match job.state:
        case "scheduled" | "pending":
            return f"due {ago(job.run_at, now)}"
        case "running":
            return f"since {span(now - (job.started_at or now))}"
        case _:
            return ago(job.finished_at, now)


def _timing(schedule: ScheduleRecord) -> str:
    when = schedule.cron or f"every {text(schedule.every_ms or 0)}"
    return when if schedule.timezone == "UTC" else f"{when} ({schedule.timezone})"


def _verbatim(json_text: str | None) -> str:
    # JSON may be spread over lines; apart from those only what could steer a terminal is touched.
    return "\n".join(printable(line) for line in (json_text or "").split("\n"))
