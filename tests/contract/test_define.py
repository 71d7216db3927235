"""define.sql: what a job name stands for, and what a change of it does to the jobs that wait already."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyjobs.errors import BadName, InvalidOption, LimitConflict
from pyjobs.records import ClaimedJob, DefinitionRecord, NewJob
from pyjobs.store.base import Store
from steps import (
    DAY,
    HOUR,
    claim,
    claim_one,
    define,
    each,
    enqueue,
    enqueue_all,
    found,
    perform,
    refused,
    settle,
    state,
)


def definition(store: Store, name: str = "work") -> DefinitionRecord:
    [record] = [record for record in store.definitions() if record.name == name]
    return record


def test_the_defaults_are_those_of_the_contract(store: Store) -> None:
    define(store)

    assert definition(store) == DefinitionRecord(
        name="work",
        queue="default",
        priority=0,
        max_attempts=5,
        timeout_ms=None,
        backoff_base_ms=5_000,
        backoff_factor=4,
        backoff_max_ms=3_600_000,
        backoff_jitter=0.15,
        concurrency_group=None,
        concurrency_limit=None,
        concurrency_key=None,
        keep_done_ms=86_400_000,
        keep_dead_ms=None,
    )


def test_every_option_is_kept(store: Store) -> None:
    define(
        store,
        queue="mailers",
        priority=-10,
        max_attempts=3,
        timeout_ms=30_000,
        backoff={"base_ms": 100, "factor": 1.5, "max_ms": HOUR, "jitter": 0},
        concurrency={"limit": 3, "group": "smtp", "key": "account.id"},
        keep_done_ms=0,
        keep_dead_ms=DAY,
    )

    assert definition(store) == DefinitionRecord(
        name="work",
        queue="mailers",
        priority=-10,
        max_attempts=3,
        timeout_ms=30_000,
        backoff_base_ms=100,
        backoff_factor=1.5,
        backoff_max_ms=HOUR,
        backoff_jitter=0,
        concurrency_group="smtp",
        concurrency_limit=3,
        concurrency_key="account.id",
        keep_done_ms=0,
        keep_dead_ms=DAY,
    )


def test_the_group_of_a_limit_is_the_jobs_name_unless_it_is_given(store: Store) -> None:
    define(store, concurrency={"limit": 2})

    assert definition(store).concurrency_group == "work"


def test_a_limit_may_be_a_million(store: Store) -> None:
    define(store, concurrency={"limit": 1_000_000})

    assert definition(store).concurrency_limit == 1_000_000


@each("priority", [-32_768, 32_767])
def test_a_priority_may_be_anything_sixteen_bits_hold(store: Store, priority: int) -> None:
    define(store, priority=priority)
    id = enqueue(store)

    assert claim_one(store).priority == found(store, id).priority == priority


def test_defining_again_changes_what_comes_after_and_not_what_waits(store: Store) -> None:
    define(store, queue="old", max_attempts=2)
    before = enqueue(store)
    define(store, queue="new", max_attempts=7)
    later = enqueue(store)

    assert (found(store, before).queue, found(store, before).max_attempts) == ("old", 2)
    assert (found(store, later).queue, found(store, later).max_attempts) == ("new", 7)
    assert len(store.definitions()) == 1


def test_defining_the_same_again_changes_nothing(store: Store) -> None:
    options: dict[str, Any] = {"queue": "mailers", "concurrency": {"limit": 2, "key": "k"}}
    define(store, **options)
    before = definition(store)
    define(store, **options)

    assert definition(store) == before


@each(
    ("options", "named"),
    [
        ({"prioritty": 1}, "prioritty"),
        ({"backoff": {"jiter": 0.1}}, "jiter"),
        ({"concurrency": {"limit": 1, "groop": "x"}}, "groop"),
        ({"queue": 1}, "queue"),
        ({"queue": ["a"]}, "queue"),
        ({"priority": "high"}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 32_768}, "priority"),
        ({"priority": -32_769}, "priority"),
        ({"priority": 10**30}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"timeout_ms": "30s"}, "timeout_ms"),
        ({"timeout_ms": 0.5}, "timeout_ms"),
        ({"backoff": 5_000}, "backoff"),
        ({"backoff": {"base_ms": -1}}, "base_ms"),
        ({"backoff": {"max_ms": -1}}, "max_ms"),
        ({"backoff": {"factor": 0.5}}, "factor"),
        ({"backoff": {"factor": "4"}}, "factor"),
        ({"backoff": {"jitter": -0.1}}, "jitter"),
        ({"backoff": {"jitter": 1.1}}, "jitter"),
        ({"concurrency": 3}, "concurrency"),
        ({"concurrency": {"key": "k"}}, "limit"),
        ({"concurrency": {"limit": 0}}, "limit"),
        ({"concurrency": {"limit": -1}}, "limit"),
        ({"concurrency": {"limit": 1_000_001}}, "limit"),
        ({"concurrency": {"limit": 1.5}}, "limit"),
        ({"concurrency": {"limit": "1"}}, "limit"),
        ({"concurrency": {"limit": 1, "key": 5}}, "key"),
        ({"concurrency": {"limit": 1, "group": 5}}, "group"),
        ({"concurrency": {"limit": 1, "group": "a:b"}}, "group"),
        ({"keep_done_ms": -1}, "keep_done_ms"),
        ({"keep_done_ms": "1d"}, "keep_done_ms"),
        ({"keep_dead_ms": -1}, "keep_dead_ms"),
    ],
)
def test_an_option_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
    store: Store, options: dict[str, Any], named: str
) -> None:
    with refused(store, InvalidOption, named):
        define(store, **options)

    assert store.definitions() == []


def test_a_refused_change_leaves_the_definition_as_it_was(store: Store) -> None:
    define(store, queue="mailers")
    before = definition(store)

    with refused(store, InvalidOption, "priority"):
        define(store, queue="other", priority="high")

    assert definition(store) == before


@each("name", ["", "x" * 191])
def test_a_name_is_neither_empty_nor_over_190_characters(store: Store, name: str) -> None:
    with refused(store, BadName):
        define(store, name)


@each("queue", ["", "q" * 191])
def test_a_queue_is_neither_empty_nor_over_190_characters(store: Store, queue: str) -> None:
    with refused(store, BadName, "queue"):
        define(store, queue=queue)


@each("name", ["x" * 190, "ä" * 190, "tenant/rebuild", "an apostrophe's", "🐍", "%s", "a:b"])
def test_a_name_may_hold_any_characters(store: Store, name: str) -> None:
    define(store, name)
    id = enqueue(store, name)

    assert claim_one(store, names=(name,)).id == id


def test_a_name_with_a_colon_needs_a_group_to_be_limited(store: Store) -> None:
    with refused(store, InvalidOption, "group"):
        define(store, "a:b", concurrency={"limit": 1})

    define(store, "a:b", concurrency={"limit": 1, "group": "ab"})


def test_two_definitions_may_share_a_group_and_its_limit(store: Store) -> None:
    define(store, "a", concurrency={"limit": 1, "group": "both"})
    define(store, "b", concurrency={"limit": 1, "group": "both"})
    enqueue(store, "a")
    enqueue(store, "b")

    assert len(claim(store, 10)) == 1


def test_two_definitions_of_one_group_may_not_disagree_on_its_limit(store: Store) -> None:
    define(store, "a", concurrency={"limit": 1, "group": "both"})
    before = store.definitions()

    with refused(store, LimitConflict, "both"):
        define(store, "b", concurrency={"limit": 2, "group": "both"})

    assert store.definitions() == before


def test_a_definition_alone_in_its_group_may_change_the_limit(store: Store) -> None:
    define(store, concurrency={"limit": 1})
    enqueue_all(store, 5)
    define(store, concurrency={"limit": 3})

    assert len(claim(store, 10)) == 3


def test_a_lowered_limit_lets_those_in_hand_finish_and_takes_no_more_until_there_is_room(store: Store) -> None:
    define(store, concurrency={"limit": 3})
    enqueue_all(store, 6)
    first, second, third = claim(store, 3)
    define(store, concurrency={"limit": 1})

    settle(store, first)
    assert claim(store, 10) == []
    settle(store, second)
    assert claim(store, 10) == []
    settle(store, third)
    assert len(claim(store, 10)) == 1


def test_a_limit_given_later_bounds_the_backlog_at_once(store: Store) -> None:
    define(store)
    enqueue_all(store, 5)
    scheduled = enqueue(store, delay_ms=HOUR)
    define(store, concurrency={"limit": 2})

    assert len(claim(store, 10)) == 2
    assert found(store, scheduled).bucket == "work"


def test_a_limit_given_later_leaves_jobs_in_hand_alone(store: Store) -> None:
    define(store)
    enqueue_all(store, 3)
    held = claim_one(store)
    define(store, concurrency={"limit": 1})

    assert len(claim(store, 10)) == 1
    assert settle(store, held).state == "done"


def test_a_limit_given_later_bounds_a_retry_of_what_was_in_hand(store: Store) -> None:
    define(store)
    enqueue_all(store, 2)
    held = claim_one(store)
    define(store, concurrency={"limit": 1})
    settle(store, held, "released")

    assert len(claim(store, 10)) == 1


def test_a_changed_key_sorts_the_backlog_anew(store: Store) -> None:
    define(store, concurrency={"limit": 1, "key": "color"})
    store.enqueue_many([NewJob("work", f'{{"color": "red", "size": {size % 3}}}') for size in range(6)])
    define(store, concurrency={"limit": 1, "key": "size"})

    claimed = claim(store, 10)

    assert Counter(found(store, job.id).bucket for job in claimed) == {"work:0": 1, "work:1": 1, "work:2": 1}


def test_a_changed_group_carries_the_backlog_along(store: Store) -> None:
    define(store, "a", concurrency={"limit": 1, "group": "one"})
    define(store, "b", concurrency={"limit": 1, "group": "two"})
    waiting = [enqueue(store, "a"), enqueue(store, "a"), enqueue(store, "b")]
    define(store, "a", concurrency={"limit": 1, "group": "two"})

    assert {found(store, id).bucket for id in waiting} == {"two"}
    assert len(claim(store, 10)) == 1


def test_a_key_taken_away_leaves_one_bucket(store: Store) -> None:
    define(store, concurrency={"limit": 1, "key": "k"})
    store.enqueue_many([NewJob("work", f'{{"k": {value}}}') for value in range(4)])
    define(store, concurrency={"limit": 1})

    assert len(claim(store, 10)) == 1


def test_a_limit_taken_away_frees_the_backlog(store: Store) -> None:
    define(store, concurrency={"limit": 1})
    ids = enqueue_all(store, 5)
    held = claim_one(store)
    define(store)

    assert sorted(job.id for job in claim(store, 10)) == [id for id in ids if id != held.id]
    assert settle(store, held).state == "done"
    assert store.limits() == [] or all(row.job_id is None for row in store.limits())


def test_the_order_of_the_backlog_survives_a_new_limit(store: Store) -> None:
    define(store)
    late = enqueue(store, priority=5)
    soon = enqueue(store, priority=-5)
    middle = enqueue(store)
    define(store, concurrency={"limit": 1})

    def next_of(store: Store) -> ClaimedJob:
        job = claim_one(store)
        settle(store, job)
        return job

    assert [next_of(store).id for _ in range(3)] == [soon, middle, late]


def test_forgetting_says_whether_there_was_one(store: Store) -> None:
    define(store)

    assert store.forget("work") is True
    assert store.forget("work") is False
    assert store.definitions() == []


def test_the_waiting_jobs_of_a_forgotten_name_stay_and_can_be_performed(store: Store) -> None:
    define(store)
    first, second = enqueue_all(store, 2)
    store.forget("work")

    assert perform(store) == first
    assert perform(store, "failed", message="no") == second
    assert (state(store, first), state(store, second)) == ("done", "scheduled")


def test_the_waiting_jobs_of_a_forgotten_name_stay_bounded(store: Store) -> None:
    define(store, concurrency={"limit": 1})
    enqueue_all(store, 3)
    store.forget("work")

    assert len(claim(store, 10)) == 1
    assert claim(store, 10) == []
