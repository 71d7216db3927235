"""slot.sql: numbered permits of a bucket, taken by inserting them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from pyjobs.records import ClaimedJob
from pyjobs.store.base import Store
from steps import claim, claim_one, define, enqueue, enqueue_all, settle


@pytest.fixture
def jobs(store: Store) -> list[ClaimedJob]:
    """Unlimited jobs in hand, beside a group `g` with two slots a bucket."""
    define(store)
    define(store, "limited", concurrency={"limit": 2, "group": "g", "key": "k"})
    enqueue_all(store, 4)
    return claim(store, 4)


def take(store: Store, job: ClaimedJob, bucket: str = "g:a") -> int | None:
    return store.take_slot(bucket, job.id, job.token)


def holders(store: Store) -> dict[tuple[str | None, int | None], UUID]:
    return {(row.bucket, row.slot): row.job_id for row in store.limits() if row.job_id is not None}


def test_the_lowest_free_slot_is_taken_up_to_the_limit(store: Store, jobs: list[ClaimedJob]) -> None:
    first, second, third, _ = jobs
    lowest = take(store, first)
    assert lowest is not None

    assert take(store, second) == lowest + 1
    assert take(store, third) is None
    assert holders(store) == {("g:a", lowest): first.id, ("g:a", lowest + 1): second.id}


def test_each_bucket_has_its_own(store: Store, jobs: list[ClaimedJob]) -> None:
    slots = [take(store, job, bucket) for job, bucket in zip(jobs, ["g:a", "g:a", "g:b", "g:b"], strict=True)]

    assert None not in slots
    assert len(holders(store)) == 4


def test_a_freed_slot_is_taken_again(store: Store, jobs: list[ClaimedJob]) -> None:
    first, second, third, _ = jobs
    slot = take(store, first)
    assert slot is not None
    take(store, second)

    assert store.free_slot("g:a", slot, first.token) is True
    assert take(store, third) == slot


def test_only_the_token_that_holds_a_slot_frees_it(store: Store, jobs: list[ClaimedJob]) -> None:
    slot = take(store, jobs[0])
    assert slot is not None

    assert store.free_slot("g:a", slot, uuid4()) is False
    assert store.free_slot("g:b", slot, jobs[0].token) is False
    assert len(holders(store)) == 1


def test_freeing_twice_frees_once(store: Store, jobs: list[ClaimedJob]) -> None:
    slot = take(store, jobs[0])
    assert slot is not None

    assert store.free_slot("g:a", slot, jobs[0].token) is True
    assert store.free_slot("g:a", slot, jobs[0].token) is False


def test_a_bucket_of_no_group_has_no_slots(store: Store, jobs: list[ClaimedJob]) -> None:
    assert take(store, jobs[0], "nobody:a") is None
    assert holders(store) == {}


def test_taking_again_for_the_same_claim_answers_the_same_slot(store: Store, jobs: list[ClaimedJob]) -> None:
    """A caller who lost the reply asks again, and does not use the bucket up."""
    assert take(store, jobs[0]) == take(store, jobs[0])
    assert len(holders(store)) == 1


def test_claim_and_settle_take_and_free_them(store: Store) -> None:
    define(store, concurrency={"limit": 1})
    id = enqueue(store)
    job = claim_one(store)
    assert [holder for (bucket, _), holder in holders(store).items() if bucket == "work"] == [id]

    settle(store, job)
    assert holders(store) == {}


def test_a_slot_in_hand_keeps_the_bucket_closed_to_claims(store: Store, jobs: list[ClaimedJob]) -> None:
    take(store, jobs[0])
    take(store, jobs[1])
    enqueue(store, "limited", args='{"k": "a"}')
    open_to_all = enqueue(store, "limited", args='{"k": "b"}')

    assert [job.id for job in claim(store, 10)] == [open_to_all]


def test_settling_the_job_frees_a_slot_it_took_by_itself(store: Store, jobs: list[ClaimedJob]) -> None:
    take(store, jobs[0])
    settle(store, jobs[0])

    assert holders(store) == {}


def test_a_slot_whose_job_does_not_run_under_its_token_is_swept(store: Store, jobs: list[ClaimedJob], sql: Any) -> None:
    slot = store.take_slot("g:a", jobs[0].id, uuid4())
    if slot is not None:
        assert store.sweep().slots_freed == 1

    assert holders(store) == {}
