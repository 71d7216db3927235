"""Where an application's declarations and the database differ: what ``pyjobs sync`` will change.

A definition that the application lacks is no difference: another application may have made it. Nor can all of a
schedule be compared: its arguments and options are not shown by any view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyjobs.app import Jobs, Schedule
from pyjobs.definition import Job
from pyjobs.duration import text
from pyjobs.records import DefinitionRecord, ScheduleRecord
from pyjobs.store.base import Store

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One job or schedule. ``fields``: what is changed, from what the database says to what the application says."""

    kind: Literal["job", "schedule"]
    name: str
    change: Literal["new", "changed", "gone"]
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def told(self) -> str:
        """The change in words."""
        return ", ".join(f"{name}: {_said(a, name)} → {_said(b, name)}" for name, (a, b) in self.fields.items())


def differences(jobs: Jobs, store: Store) -> list[Difference]:
    """All of them, by kind and name."""
    return [*_of_jobs(jobs, store), *_of_schedules(jobs, store)]


def _of_jobs(jobs: Jobs, store: Store) -> Iterator[Difference]:
    there = {each.name: each for each in store.definitions()}
    for name, job in sorted(jobs.definitions.items()):
        if name not in there:
            yield Difference("job", name, "new")
        elif changed := _changed(_of_record(there[name]), _of_job(job)):
            yield Difference("job", name, "changed", changed)


def _of_schedules(jobs: Jobs, store: Store) -> Iterator[Difference]:
    there = {each.name: each for each in store.schedules()}
    own = {name for name, each in there.items() if each.source == jobs.name}
    for name in sorted(jobs.schedules.keys() | own):
        if name not in jobs.schedules:
            yield Difference("schedule", name, "gone")
        elif name not in there:
            yield Difference("schedule", name, "new")
        elif changed := _changed(_timing(there[name], there[name].source), _timing(jobs.schedules[name], jobs.name)):
            yield Difference("schedule", name, "changed", changed)


def _of_job(job: Job[..., Any]) -> Values:
    options = job.options()
    backoff, limit = options.pop("backoff"), options.pop("concurrency") or {}
    return options | {
        "backoff.base_ms": backoff["base_ms"],
        "backoff.factor": float(backoff["factor"]),
        "backoff.max_ms": backoff["max_ms"],
        "backoff.jitter": float(backoff["jitter"]),
        "concurrency.limit": limit.get("limit"),
        "concurrency.group": limit.get("group", job.name) if limit else None,
        "concurrency.key": limit.get("key"),
    }


def _of_record(record: DefinitionRecord) -> Values:
    return {
        "queue": record.queue,
        "priority": record.priority,
        "max_attempts": record.max_attempts,
        "timeout_ms": record.timeout_ms,
        "keep_done_ms": record.keep_done_ms,
        "keep_dead_ms": record.keep_dead_ms,
        "backoff.base_ms": record.backoff_base_ms,
        "backoff.factor": float(record.backoff_factor),
        "backoff.max_ms": record.backoff_max_ms,
        "backoff.jitter": float(record.backoff_jitter),
        "concurrency.limit": record.concurrency_limit,
        "concurrency.group": record.concurrency_group,
        "concurrency.key": record.concurrency_key,
    }


def _timing(schedule: Schedule | ScheduleRecord, source: str | None) -> Values:
    return {
        "job": schedule.job,
        "cron": schedule.cron,
        "every_ms": schedule.every_ms,
        "timezone": schedule.timezone,
        "enabled": schedule.enabled,
        "source": source,
    }


def _changed(there: Values, here: Values) -> dict[str, tuple[Any, Any]]:
    return {name: (there[name], value) for name, value in here.items() if there[name] != value}


def _said(value: Any, name: str) -> str:
    if value is None:
        return "none"
    return text(value) if name.endswith("_ms") else str(value)
