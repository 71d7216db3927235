"""The options of one enqueue, as an application writes them, and as ``jobs_enqueue`` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, get_args
from uuid import UUID

from pyjobs.arguments import dumps
from pyjobs.duration import milliseconds
from pyjobs.errors import InvalidOption
from pyjobs.records import State

Duration = int | str | timedelta
"""Milliseconds, a text such as ``"30s"``, or a timedelta."""


class SharedOptions(TypedDict, total=False):
    """What any call, schedule or callback may say about its job; what is left out comes from the definition."""

    queue: str
    priority: int
    """Lower goes first."""
    max_attempts: int
    timeout: Duration
    tenant: str | None
    """Left out: the tenant in scope. None: a job of no tenant."""
    meta: Mapping[str, Any]


class EnqueueOptions(SharedOptions, total=False):
    """What one call may say about its job."""

    at: datetime
    """An aware moment; not together with ``delay``."""
    delay: Duration
    unique_key: str
    """While another job holds it, nothing is inserted and that job's id is the answer."""
    unique_for: Literal["active", "row", "ever"]
    batch_id: UUID


class JobFilter(TypedDict, total=False):
    """Which jobs are meant; every key given must match."""

    id: UUID
    ids: Sequence[UUID]
    state: State
    queue: str
    name: str
    tenant: str | None
    """None: jobs of no tenant."""
    batch_id: UUID
    dead_reason: str
    before: datetime


def contract_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same as the JSON object ``jobs_enqueue`` takes. ``InvalidOption`` for what is unknown or unreadable; an
    option that is None counts as left out, but for ``tenant``."""
    if not options:
        return {}
    given = {name: value for name, value in options.items() if value is not None or name == "tenant"}
    unknown = given.keys() - EnqueueOptions.__annotations__.keys()
    if unknown:
        raise InvalidOption(
            f"there is no option {min(unknown)!r}", "options: " + ", ".join(EnqueueOptions.__annotations__)
        )
    if "at" in given and "delay" in given:
        raise InvalidOption("at and delay are both given", "a job runs at a moment or after a delay, not both")
    return dict(_contract_option(name, value) for name, value in given.items())


def _contract_option(name: str, value: Any) -> tuple[str, Any]:
    match name:
        case "at":
            return "run_at", moment(value, "at")
        case "delay":
            return "delay_ms", milliseconds(value, "delay")
        case "timeout":
            return "timeout_ms", milliseconds(value, "timeout")
        case "batch_id":
            return name, str(value)
        case "meta":
            dumps(value, "meta")
            return name, value
        case _:
            return name, value


def moment(value: object, name: str) -> str:
    """An aware datetime as ISO 8601 with its offset."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidOption(f"{name} is not a moment", "pass a datetime with a time zone, such as datetime.now(UTC)")
    return value.isoformat()


def contract_filter(filter: Mapping[str, Any]) -> dict[str, Any]:
    """The same as the JSON object ``jobs_cancel`` takes; a key that is None counts as left out, but for ``tenant``."""
    given = {name: value for name, value in filter.items() if value is not None or name == "tenant"}
    unknown = given.keys() - JobFilter.__annotations__.keys()
    if unknown:
        raise InvalidOption(f"there is no filter {min(unknown)!r}", "filters: " + ", ".join(JobFilter.__annotations__))
    return {name: _contract_key(name, value) for name, value in given.items()}


def contract_selection(id: UUID | None, filter: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """One job by its id, or those that a filter means, as the routines that change jobs take it."""
    chosen = contract_filter(filter if id is None else {**filter, "id": id})
    return chosen if limit is None else chosen | {"limit": limit}


def contract_start(at: datetime | None, delay: Duration | None) -> dict[str, Any]:
    """When jobs that are put back run, as ``jobs_retry`` takes it."""
    return contract_options({"at": at, "delay": delay})


def _contract_key(name: str, value: Any) -> Any:
    match name:
        case "id" | "batch_id":
            return str(value)
        case "ids":
            return [str(each) for each in value]
        case "before":
            return moment(value, name)
        case "state" if value not in get_args(State):
            raise InvalidOption(f"there is no state {value!r}", "states: " + ", ".join(get_args(State)))
        case _:
            return value
