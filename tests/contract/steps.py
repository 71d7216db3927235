"""The few moves that every test makes, and how a refusal looks.

Nothing here knows which database it talks to: it goes through the store, like everything in this folder.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from pyjobs.errors import PyjobsError
from pyjobs.records import ClaimedJob, ClaimRequest, JobRecord, NewJob, OutcomeKind, Settled, State
from pyjobs.store.base import Store

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000  # in ms, as the contract's durations are


PARAMETERS = {
    "jobs_enqueue": ("name", "args", "options", "id"),
    "jobs_enqueue_many": ("jobs",),
    "jobs_claim": ("worker", "token", "options"),
    "jobs_heartbeat": ("worker", "held", "options"),
    "jobs_settle": ("id", "token", "outcome", "detail"),
    "jobs_settle_many": ("outcomes",),
    "jobs_define": ("name", "options"),
    "jobs_open_batch": ("options",),
    "jobs_sweep": ("options",),
    "jobs_cancel": ("filter",),
}


def define(store: Store, name: str = "work", **options: Any) -> None:
    store.define(name, options)


def enqueue(store: Store, name: str = "work", args: str = "{}", *, id: UUID | None = None, **options: Any) -> UUID:
    return store.enqueue(name, args, options, id)


def enqueue_all(store: Store, number: int, name: str = "work", args: str = "{}", **options: Any) -> list[UUID]:
    """That many equal jobs in one call, in the order in which they will be claimed."""
    return sorted(job.id for job in store.enqueue_many([NewJob(name, args, options)] * number))


def request(max_jobs: int = 1, *, worker: str = "worker-1", token: UUID | None = None, **how: Any) -> ClaimRequest:
    return ClaimRequest(worker=worker, token=token or uuid4(), max_jobs=max_jobs, **how)


def claim(store: Store, max_jobs: int = 1, **how: Any) -> list[ClaimedJob]:
    return store.claim(request(max_jobs, **how))


def claim_one(store: Store, **how: Any) -> ClaimedJob:
    [job] = claim(store, **how)
    return job


def settle(store: Store, job: ClaimedJob, outcome: OutcomeKind = "done", **detail: Any) -> Settled:
    return store.settle(job.id, job.token, outcome, detail)


def perform(store: Store, outcome: OutcomeKind = "done", **detail: Any) -> UUID:
    """Claim the next job and settle it."""
    job = claim_one(store)
    assert settle(store, job, outcome, **detail).accepted
    return job.id


def bury(store: Store, **enqueuing: Any) -> UUID:
    """A dead job."""
    id = enqueue(store, **enqueuing)
    assert perform(store, "failed", permanent=True) == id
    return id


def found(store: Store, id: UUID) -> JobRecord:
    record = store.job(id)
    assert record is not None
    return record


def state(store: Store, id: UUID) -> State | None:
    record = store.job(id)
    return record.state if record else None


def iso(moment: datetime) -> str:
    return moment.isoformat()


def after(store: Store, ms: int) -> str:
    """The moment that many ms from now, by the database's clock, as an option."""
    return iso(store.now() + timedelta(milliseconds=ms))


def batch_meta(meta: str | None) -> dict[str, Any]:
    assert meta is not None
    counts: dict[str, Any] = json.loads(meta)["batch"]
    return counts


@contextmanager
def refused(store: Store, error: type[PyjobsError], *mentions: str) -> Iterator[None]:
    """The call is refused with that error, which says what was wrong and what to do; nothing was enqueued."""
    before = store.count()
    with pytest.raises(error) as caught:
        yield
    said = f"{caught.value.message} {caught.value.hint}"
    for mention in mentions:
        assert mention in said
    assert caught.value.hint, f"no hint in {said!r}"
    assert store.count() == before


def call(sql: Any, routine: str, *arguments: str | None) -> None:
    """A routine by plain SQL, as another language would call it."""
    places = ", ".join("?" * len(arguments))
    if sql.dialect == "sqlite":
        names = ", ".join(PARAMETERS[routine][: len(arguments)])
        sql(f"INSERT INTO {routine} ({names}) VALUES ({places})", *arguments)
    elif sql.dialect == "mysql":  # whose routines have no defaults
        name = "jobs_enqueue_with_id" if routine == "jobs_enqueue" else routine
        left_out = [None] * (len(PARAMETERS[routine]) - len(arguments))
        sql(f"CALL {name}({', '.join('?' * len(PARAMETERS[routine]))})", *arguments, *left_out)
    else:
        sql(f"SELECT * FROM {routine}({places})", *arguments)


def each(names: str | tuple[str, ...], cases: Mapping[str, Any] | Iterable[Any]) -> Callable[..., Callable[..., None]]:
    """Like ``parametrize``, for cases that do not get in each other's way: they share the database of one test."""
    named = cases if isinstance(cases, Mapping) else {str(case): case for case in cases}
    own = (names,) if isinstance(names, str) else names

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_cases(*self: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for name, case in named.items():
                values = (case,) if isinstance(names, str) else case
                with subtests.test(name):
                    test(*self, **fixtures, **dict(zip(own, values, strict=True)))

        shown = [parameter for name, parameter in inspect.signature(test).parameters.items() if name not in own]
        subtests = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        all_cases.__signature__ = inspect.Signature([*shown, subtests])  # type: ignore[attr-defined]
        return all_cases

    return decorate
