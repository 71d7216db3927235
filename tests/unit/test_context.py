from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from pyjobs import BatchCounts, JobContext, Permanent, RetryAfter, Snooze
from pyjobs.errors import InvalidOption
from pyjobs.records import ClaimedJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claimed(meta: str | None = None) -> ClaimedJob:
    return ClaimedJob(
        id=uuid4(),
        name="work",
        queue="mail",
        args="{}",
        attempt=2,
        max_attempts=5,
        timeout_ms=None,
        priority=0,
        tenant="acme",
        batch_id=None,
        meta=meta,
        unique_key=None,
        enqueued_at=NOW,
        run_at=NOW + timedelta(1),
        token=uuid4(),
        lease_until=NOW,
    )


def test_a_context_tells_of_the_attempt() -> None:
    job = claimed('{"trace": "t"}')
    context = JobContext.of(job, "worker-1")
    assert (context.id, context.name, context.queue, context.worker) == (job.id, "work", "mail", "worker-1")
    assert (context.attempt, context.max_attempts, context.tenant) == (2, 5, "acme")
    assert (context.enqueued_at, context.run_at) == (job.enqueued_at, job.run_at)
    assert context.meta == {"trace": "t"}
    assert context.batch is None
    assert not context.cancelled.is_set()


def test_a_job_without_meta_has_an_empty_one() -> None:
    assert JobContext.of(claimed(), "w").meta == {}


def test_a_callback_is_told_what_its_batch_came_to() -> None:
    id = uuid4()
    counts = {"id": str(id), "name": None, "total": 3, "done": 3, "failed": 1, "succeeded": 2}
    context = JobContext.of(claimed(json.dumps({"batch": counts, "trace": "t"})), "w")
    assert context.batch == BatchCounts(id=id, name=None, total=3, done=3, failed=1, succeeded=2)
    assert context.meta["trace"] == "t"


@pytest.mark.parametrize(
    "batch", ["5", '"mine"', "null", "{}", '{"id": 1}', '{"id": "x", "name": null}', f'{{"id": "{UUID(int=1)}"}}']
)
def test_a_batch_in_the_meta_that_is_the_applications_own_is_left_alone(batch: str) -> None:
    assert JobContext.of(claimed('{"batch": ' + batch + "}"), "w").batch is None


def test_two_contexts_do_not_share_a_signal() -> None:
    one, other = JobContext.of(claimed(), "w"), JobContext.of(claimed(), "w")
    one.cancelled.set()
    assert not other.cancelled.is_set()


def test_the_log_carries_the_ids_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    context = JobContext.of(claimed(), "w")
    with caplog.at_level(logging.INFO, "pyjobs.job"):
        context.log.info("halfway")
    [record] = caplog.records
    assert record.getMessage() == "halfway"
    assert (record.job_id, record.job, record.queue, record.attempt) == (  # type: ignore[attr-defined]
        str(context.id),
        "work",
        "mail",
        2,
    )


def test_what_a_handler_raises_carries_its_delay() -> None:
    assert Snooze("10m").delay_ms == 600_000
    assert RetryAfter(timedelta(hours=1), "busy").delay_ms == 3_600_000
    assert str(RetryAfter("1h", "busy")) == "busy"
    assert str(RetryAfter("1h"))
    assert str(Permanent("gone")) == "gone"
    with pytest.raises(InvalidOption):
        Snooze("soon")


@pytest.mark.parametrize("delay", [0, 1, "999ms"])
def test_a_snooze_is_no_shorter_than_a_second(delay: int | str) -> None:
    with pytest.raises(InvalidOption, match="too short"):
        Snooze(delay)
