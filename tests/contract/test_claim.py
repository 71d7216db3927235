"""claim.sql: who gets which job, in what order, and what stands in nobody's way."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

import pytest

from pyjobs.errors import BadName, InvalidOption
from pyjobs.records import ClaimedJob, NewJob, Outcome
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import (
    HOUR,
    MINUTE,
    claim,
    claim_one,
    define,
    each,
    enqueue,
    enqueue_all,
    found,
    perform,
    refused,
    request,
    settle,
    state,
)


def keyed(store: Store, name: str, values: list[Any], **options: Any) -> list[UUID]:
    """Jobs whose `k` is each of these values."""
    return [job.id for job in store.enqueue_many([NewJob(name, f'{{"k": "{value}"}}', options) for value in values])]


def buckets(store: Store, jobs: list[ClaimedJob]) -> Counter[str | None]:
    return Counter(found(store, job.id).bucket for job in jobs)


class TestWhatIsAnswered:
    def test_everything_the_handler_needs(self, store: Store, clock: TestClock) -> None:
        define(store, queue="mailers", priority=3, max_attempts=4, timeout_ms=500)
        batch_id = store.open_batch({})
        moment = clock.now()
        id = enqueue(
            store, args='{"user_id": 1}', tenant="acme", batch_id=str(batch_id), unique_key="k", meta={"trace": "t"}
        )
        clock.advance(10)
        token = uuid4()

        [job] = claim(store, worker="host-7", token=token, lease_ms=2 * MINUTE)

        assert (job.id, job.name, job.queue, job.args) == (id, "work", "mailers", '{"user_id": 1}')
        assert (job.attempt, job.max_attempts, job.timeout_ms, job.priority) == (1, 4, 500, 3)
        assert (job.tenant, job.batch_id, job.unique_key) == ("acme", batch_id, "k")
        assert (job.enqueued_at, job.run_at) == (moment, moment)
        assert job.token == token
        assert job.lease_until == clock.now() + timedelta(minutes=2)
        assert '"trace"' in (job.meta or "")

    def test_the_row_is_running_and_says_by_whom(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store, worker="host-7")
        record = found(store, job.id)

        assert (record.state, record.worker, record.attempts) == ("running", "host-7", 1)
        assert (record.started_at, record.lease_until) == (clock.now(), clock.now() + timedelta(minutes=5))
        assert (record.finished_at, record.cancel_at, record.dead_reason) == (None, None, None)

    def test_nothing_when_there_is_nothing(self, store: Store) -> None:
        assert claim(store, 10) == []

    def test_nothing_that_is_held_or_has_ended_or_is_to_come(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        perform(store)
        enqueue(store)
        claim_one(store)
        enqueue(store, delay_ms=1)

        assert claim(store, 10) == []

    def test_each_attempt_counts(self, store: Store) -> None:
        define(store, backoff={"base_ms": 0})
        enqueue(store)

        attempts = []
        for _ in range(3):
            job = claim_one(store)
            attempts.append(job.attempt)
            settle(store, job, "failed")

        assert attempts == [1, 2, 3]


class TestHowMany:
    def test_one_unless_it_says_more(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 3)

        assert len(store.claim(request())) == 1

    def test_as_many_as_asked_and_there_are(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 1_500)

        assert len(claim(store, 7)) == 7
        assert len(claim(store, 1_000)) == 1_000
        assert len(claim(store, 1_000)) == 493

    @each("number", [0, -1, 1_001])
    def test_from_one_to_a_thousand(self, store: Store, number: int) -> None:
        with refused(store, InvalidOption, "max_jobs"):
            claim(store, number)

    def test_limited_and_unlimited_together_are_no_more_than_asked(self, store: Store) -> None:
        define(store)
        define(store, "limited", concurrency={"limit": 50})
        enqueue_all(store, 20)
        enqueue_all(store, 20, "limited")

        assert len(claim(store, 25)) == 25
        assert len(claim(store, 25)) == 15


class TestOrder:
    def test_priority_then_run_at_then_id(self, store: Store) -> None:
        define(store)
        moments = ["2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"]
        jobs = [
            NewJob("work", options={"priority": priority, "run_at": moment})
            for moment in reversed(moments)
            for priority in (5, -5, 0)
            for _ in range(3)
        ]
        places = [
            (job.options["priority"], job.options["run_at"], answer.id)
            for job, answer in zip(jobs, store.enqueue_many(jobs), strict=True)
        ]
        expected = [id for _, _, id in sorted(places)]

        assert [job.id for job in claim(store, 4)] == expected[:4]
        assert [job.id for job in claim(store, 100)] == expected[4:]

    def test_limited_and_unlimited_jobs_merge_by_priority(self, store: Store) -> None:
        define(store)
        define(store, "limited", concurrency={"limit": 10})
        ids = [enqueue(store, name, priority=n) for n, name in enumerate(["limited", "work"] * 4)]

        assert [job.id for job in claim(store, 3)] == ids[:3]
        assert [job.id for job in claim(store, 5)] == ids[3:]

    def test_an_urgent_unlimited_job_goes_before_a_limited_backlog_and_the_reverse(self, store: Store) -> None:
        define(store)
        define(store, "limited", concurrency={"limit": 1_000})
        enqueue_all(store, 50, "limited", priority=5)
        enqueue_all(store, 50, priority=5)
        urgent = enqueue(store, priority=-1)
        urgent_limited = enqueue(store, "limited", priority=-2)

        assert [claim_one(store).id, claim_one(store).id] == [urgent_limited, urgent]

    def test_a_retry_waits_its_turn_by_the_moment_it_falls_due(self, store: Store, clock: TestClock) -> None:
        define(store, backoff={"base_ms": 1_000, "jitter": 0})
        retried = enqueue(store)
        perform(store, "failed")
        clock.advance(0.5)
        between = enqueue(store)
        clock.advance(1)
        later = enqueue(store)

        assert [job.id for job in claim(store, 3)] == [between, retried, later]


class TestPromotion:
    def test_a_due_job_is_claimed(self, store: Store, clock: TestClock) -> None:
        define(store)
        id = enqueue(store, delay_ms=MINUTE)
        clock.advance(59.999)
        assert claim(store) == []

        clock.advance(0.001)
        assert claim_one(store).id == id

    def test_the_oldest_go_first_and_a_bounded_number_at_a_time(self, store: Store, clock: TestClock) -> None:
        define(store)
        ids = [
            job.id for job in store.enqueue_many([NewJob("work", options={"delay_ms": 400 - n}) for n in range(400)])
        ]
        clock.advance(1)

        assert claim_one(store).id == ids[-1]
        promoted = store.jobs({"state": "pending"}, limit=400)
        assert 0 < len(promoted) <= 200
        assert {job.id for job in promoted} == set(ids[-1 - len(promoted) : -1])

    def test_a_thousand_due_at_once_are_all_claimed_in_the_end(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue_all(store, 1_000, delay_ms=MINUTE)
        clock.advance(60)

        claimed = [job.id for _ in range(30) for job in claim(store, 50)]

        assert len(set(claimed)) == len(claimed) == 1_000

    def test_a_promoted_job_takes_its_place_by_priority(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store, priority=5)
        urgent = enqueue(store, priority=-5, delay_ms=MINUTE)
        clock.advance(60)

        assert claim_one(store).id == urgent


class TestQueuesAndNames:
    def test_only_the_queues_asked_for(self, store: Store) -> None:
        define(store)
        wanted = {enqueue(store, queue="a"), enqueue(store, queue="b")}
        enqueue(store, queue="c")

        assert {job.id for job in claim(store, 10, queues=("a", "b", "empty"))} == wanted

    def test_only_the_names_asked_for(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            define(store, name)
        wanted = {enqueue(store, "a"), enqueue(store, "b")}
        enqueue(store, "c")

        assert {job.id for job in claim(store, 10, names=("a", "b", "undefined"))} == wanted

    def test_both_together(self, store: Store) -> None:
        define(store)
        define(store, "other")
        wanted = enqueue(store, queue="a")
        enqueue(store, queue="b")
        enqueue(store, "other", queue="a")

        assert [job.id for job in claim(store, 10, queues=("a",), names=("work",))] == [wanted]

    def test_also_of_limited_jobs(self, store: Store) -> None:
        define(store, concurrency={"limit": 10})
        define(store, "other", concurrency={"limit": 10})
        wanted = enqueue(store, queue="a")
        enqueue(store, queue="b")
        enqueue(store, "other", queue="a")

        assert [job.id for job in claim(store, 10, queues=("a",), names=("work",))] == [wanted]

    def test_none_of_them_is_none(self, store: Store) -> None:
        define(store)
        enqueue(store)

        assert claim(store, 10, queues=()) == []
        assert claim(store, 10, names=()) == []

    def test_names_and_queues_are_told_apart_by_case(self, store: Store) -> None:
        define(store, "Work")
        enqueue(store, "Work", queue="Q")

        assert claim(store, names=("work",)) == []
        assert claim(store, queues=("q",)) == []
        assert claim_one(store, names=("Work",), queues=("Q",)).name == "Work"

    def test_they_may_hold_any_characters(self, store: Store) -> None:
        awkward = 'o\'clock, "é" 🐍 %s {x} \\'
        define(store, awkward)
        id = enqueue(store, awkward, queue=awkward)

        assert claim_one(store, names=(awkward,), queues=(awkward,)).id == id

    @pytest.mark.parametrize("concurrency", [None, {"limit": 1_000}])
    def test_order_holds_across_queues(self, store: Store, concurrency: dict[str, Any] | None) -> None:
        define(store, concurrency=concurrency)
        ids = [enqueue(store, queue=queue, priority=n) for n, queue in enumerate("abab")]

        assert [job.id for job in claim(store, 10, queues=("b", "a"))] == ids


class TestForeignWorkAtTheHeadOfTheLine:
    """A backlog that is not for this claim is stepped over, however long it is."""

    @pytest.fixture(params=["unlimited", "limited"])
    def concurrency(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        return {"concurrency": {"limit": 1_000}} if request.param == "limited" else {}

    def test_of_another_name(self, store: Store, concurrency: dict[str, Any]) -> None:
        define(store, "foreign", **concurrency)
        define(store, **concurrency)
        enqueue_all(store, 1_500, "foreign", priority=-1)
        mine = enqueue_all(store, 3)

        assert [job.id for job in claim(store, 2, names=("work",))] == mine[:2]

    def test_of_another_queue(self, store: Store, concurrency: dict[str, Any]) -> None:
        define(store, **concurrency)
        enqueue_all(store, 1_500, queue="foreign", priority=-1)
        mine = enqueue_all(store, 3)

        assert [job.id for job in claim(store, 2, queues=("default",))] == mine[:2]

    def test_of_a_paused_queue(self, store: Store, concurrency: dict[str, Any]) -> None:
        define(store, **concurrency)
        enqueue_all(store, 1_500, queue="foreign", priority=-1)
        mine = enqueue_all(store, 3)
        store.pause_queue("foreign")

        assert [job.id for job in claim(store, 2)] == mine[:2]

    def test_of_many_lanes_the_best_are_taken_in_order(self, store: Store, concurrency: dict[str, Any]) -> None:
        define(store, "foreign", **concurrency)
        enqueue_all(store, 500, "foreign", priority=-1)
        for name in ("a", "b", "c"):
            define(store, name, **concurrency)
        mine = [enqueue(store, name, queue=queue) for _ in range(2) for name in "abc" for queue in ("x", "y")]

        claimed = [job.id for job in claim(store, 7, names=("a", "b", "c"))]

        if concurrency:
            assert set(claimed) <= set(mine)
            assert len(claimed) == 7
        else:
            assert claimed == mine[:7]

    def test_a_full_bucket_with_a_long_backlog(self, store: Store) -> None:
        define(store, "foreign", concurrency={"limit": 1}, priority=-1)
        define(store, concurrency={"limit": 1})
        enqueue_all(store, 1_500, "foreign")
        mine = enqueue(store)
        claim_one(store)

        assert [job.id for job in claim(store, 10)] == [mine]


class TestPausedQueues:
    def test_are_skipped_until_they_are_resumed(self, store: Store) -> None:
        define(store)
        id = enqueue(store)
        store.pause_queue("default")
        assert claim(store) == []

        store.resume_queue("default")
        assert claim_one(store).id == id

    def test_also_for_a_claim_that_names_them(self, store: Store) -> None:
        define(store)
        enqueue(store)
        store.pause_queue("default")

        assert claim(store, queues=("default",)) == []

    def test_let_what_is_in_hand_finish(self, store: Store) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        store.pause_queue("default")

        assert settle(store, job).state == "done"


class TestLimits:
    def test_no_more_than_the_limit_are_in_hand(self, store: Store) -> None:
        define(store, concurrency={"limit": 2})
        enqueue_all(store, 5)
        held = claim(store, 10)
        assert len(held) == 2
        assert claim(store, 10) == []

        settle(store, held[0])
        assert len(claim(store, 10)) == 1

    def test_each_bucket_has_its_own(self, store: Store) -> None:
        define(store, concurrency={"limit": 2, "key": "k"})
        keyed(store, "work", ["a"] * 5 + ["b"] * 5 + ["c"])

        assert buckets(store, claim(store, 100)) == {"work:a": 2, "work:b": 2, "work:c": 1}

    def test_one_group_bounds_several_names(self, store: Store) -> None:
        define(store, "a", concurrency={"limit": 2, "group": "g", "key": "k"})
        define(store, "b", concurrency={"limit": 2, "group": "g", "key": "k"})
        keyed(store, "a", [1, 1, 2])
        keyed(store, "b", [1, 1, 2])

        assert buckets(store, claim(store, 100)) == {"g:1": 2, "g:2": 2}

    def test_a_bucket_is_left_in_the_order_it_was_entered(self, store: Store) -> None:
        define(store, concurrency={"limit": 1})
        ids = enqueue_all(store, 3)
        urgent = enqueue(store, priority=-1)

        assert [perform(store) for _ in range(4)] == [urgent, *ids]

    @pytest.mark.parametrize("end", ["done", "failed", "released", "snoozed", "cancelled"])
    def test_every_outcome_frees_the_slot(self, store: Store, end: Any) -> None:
        define(store, concurrency={"limit": 1})
        enqueue_all(store, 2)
        settle(store, claim_one(store), end, **({"delay_ms": HOUR} if end == "snoozed" else {}))

        assert len(claim(store, 10)) == 1

    def test_raising_the_limit_lets_more_in_and_options_cannot(self, store: Store) -> None:
        define(store, concurrency={"limit": 1})
        enqueue_all(store, 3)
        with refused(store, InvalidOption, "concurrency"):
            enqueue(store, concurrency={"limit": 100})
        assert len(claim(store, 10)) == 1

        define(store, concurrency={"limit": 2})
        assert len(claim(store, 10)) == 1


class TestFairness:
    def test_one_of_each_bucket_before_a_second_of_any(self, store: Store) -> None:
        define(store, concurrency={"limit": 3, "key": "k"})
        keyed(store, "work", ["greedy"] * 100 + [f"b{n}" for n in range(9)])

        assert set(buckets(store, claim(store, 10)).values()) == {1}

    def test_what_is_left_over_goes_to_those_with_room(self, store: Store) -> None:
        define(store, concurrency={"limit": 5, "key": "k"})
        keyed(store, "work", ["a"] * 10 + ["b"] * 2 + ["c"])

        assert buckets(store, claim(store, 8)) == {"work:a": 5, "work:b": 2, "work:c": 1}

    def test_every_bucket_gets_its_turn_from_single_claims(self, store: Store) -> None:
        define(store, concurrency={"limit": 1, "key": "k"})
        keyed(store, "work", ["red"] * 300 + ["north"] * 300 + ["x"] * 300)

        turns: Counter[str] = Counter()
        settled: list[Outcome] = []
        for _ in range(300):
            store.settle_many(settled)
            [job] = store.claim(request())
            settled = [Outcome(job.id, job.token, "done")]
            turns[job.args] += 1

        assert list(turns.values()) == [100, 100, 100]

    def test_many_full_buckets_hide_none_that_has_room_from_what_is_less_urgent(self, store: Store) -> None:
        define(store, concurrency={"limit": 1, "key": "k"})
        for priority in (0, 0, 1):
            keyed(store, "work", [f"b{n}" for n in range(400)], priority=priority)
        define(store, "elsewhere", concurrency={"limit": 100})
        define(store, "unlimited")
        for name in ("elsewhere", "unlimited"):
            enqueue_all(store, 100, name, priority=2)
        rooms = [claim(store, number) for number in (100, 150, 20, 130)]  # as they stand on the ring
        for job in rooms[0] + rooms[2]:
            settle(store, job)
        order: list[int] = []
        while more := claim(store, 200):
            order += sorted(job.priority for job in more)

        assert order == [0] * 120 + [2] * 200

    def test_a_bucket_with_one_job_is_served_beside_a_bucket_that_never_ends(self, store: Store) -> None:
        define(store, concurrency={"limit": 2, "key": "k"})
        keyed(store, "work", ["greedy"] * 1_000)
        [modest] = keyed(store, "work", ["modest"])

        assert modest in {job.id for job in claim(store, 2)}

    def test_a_better_priority_goes_before_fairness(self, store: Store) -> None:
        define(store, concurrency={"limit": 2, "key": "k"})
        keyed(store, "work", ["modest"])
        urgent = keyed(store, "work", ["greedy"] * 2, priority=-1)

        assert [claim_one(store).id for _ in range(2)] == urgent


class TestTheSameTokenAgain:
    """A claim whose reply was lost is repeated, not leaked."""

    @pytest.mark.parametrize("concurrency", [None, {"limit": 5, "key": "k"}])
    def test_answers_the_same_rows_and_takes_no_more(self, store: Store, concurrency: dict[str, Any] | None) -> None:
        define(store, concurrency=concurrency)
        enqueue_all(store, 10)
        token = uuid4()
        first = claim(store, 3, token=token)
        second = claim(store, 3, token=token)

        assert len(first) == 3
        assert sorted(second, key=lambda job: job.id) == sorted(first, key=lambda job: job.id)
        assert [job.attempt for job in second] == [1, 1, 1]
        assert store.count({"state": "running"}) == 3

    def test_takes_no_more_even_when_it_asks_for_more(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 10)
        token = uuid4()
        claim(store, 3, token=token)

        assert len(claim(store, 9, token=token)) == 3

    def test_answers_what_is_still_held(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 10)
        token = uuid4()
        held = claim(store, 3, token=token)
        settle(store, held[0])

        assert [job.id for job in claim(store, 3, token=token)] == [job.id for job in held[1:]]

    def test_another_token_takes_others(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 4)

        assert not {job.id for job in claim(store, 2)} & {job.id for job in claim(store, 2)}


class TestRefusals:
    @each("worker", ["", "w" * 191])
    def test_a_worker_is_neither_empty_nor_over_190_characters(self, store: Store, worker: str) -> None:
        with refused(store, BadName, "worker"):
            claim(store, worker=worker)

    def test_a_lease_is_not_negative(self, store: Store) -> None:
        with refused(store, InvalidOption, "lease_ms"):
            claim(store, lease_ms=-1)

    def test_a_refused_claim_takes_nothing(self, store: Store) -> None:
        define(store)
        id = enqueue(store)
        with refused(store, InvalidOption, "max_jobs"):
            claim(store, 0)

        assert state(store, id) == "pending"


class TestRoutingOfBuckets:
    """What an enqueue that raced a change of its definition left behind is put right when it is met."""

    def test_a_job_without_the_bucket_it_should_have_is_bounded(self, store: Store, sql: Any) -> None:
        define(store, concurrency={"limit": 1, "key": "k"})
        ids = keyed(store, "work", ["a", "a", "b"])
        sql("UPDATE jobs SET bucket = NULL")

        claimed = [job for _ in range(5) for job in claim(store, 10)]

        assert buckets(store, claimed) == {"work:a": 1, "work:b": 1}
        assert {found(store, id).bucket for id in ids} == {"work:a", "work:b"}

    def test_a_job_in_a_bucket_of_another_group_is_moved(self, store: Store, sql: Any) -> None:
        define(store, "old", concurrency={"limit": 5, "group": "old"})
        define(store, concurrency={"limit": 1, "group": "new"})
        enqueue_all(store, 3)
        sql("UPDATE jobs SET bucket = 'old'")

        claimed = [job for _ in range(5) for job in claim(store, 10)]

        assert buckets(store, claimed) == {"new": 1}

    def test_the_others_are_claimed_in_order_all_the_same(self, store: Store, sql: Any) -> None:
        define(store)
        define(store, "bounded", concurrency={"limit": 1})
        for number in range(30):
            enqueue(store, priority=number * 7 % 30)
        enqueue(store, "bounded", priority=-1)
        sql("UPDATE jobs SET bucket = NULL")

        assert [job.priority for job in claim(store, 20)][-19:] == list(range(19))

    def test_a_job_in_hand_while_the_key_changed_is_moved(self, store: Store) -> None:
        define(store, concurrency={"limit": 1, "group": "g"})
        enqueue(store, args='{"k": 7}')
        first = claim_one(store)
        define(store, concurrency={"limit": 1, "group": "g", "key": "k"})
        enqueue(store, args='{"k": 7}')
        settle(store, first, "released")

        claimed = [job for _ in range(5) for job in claim(store, 10)]

        assert buckets(store, claimed) == {"g:7": 1}


@pytest.mark.databases("postgresql")
class TestRowsLockedElsewhere:
    """A transaction that stays open keeps its rows to itself, and nothing else from anybody."""

    @pytest.mark.parametrize("number", [5, 150, 600])
    def test_at_the_head_of_the_line(self, store: Store, database: Any, number: int) -> None:
        define(store, "kept")
        define(store)
        enqueue_all(store, number, "kept", priority=-1)
        mine = enqueue_all(store, 3)

        with database.connect() as elsewhere, elsewhere.transaction():
            elsewhere.execute('SELECT jobs_cancel(\'{"name": "kept"}\')')

            assert [job.id for job in claim(store, 1)] == mine[:1]
            assert [job.id for job in claim(store, 10)] == mine[1:]
            assert claim(store) == []


def test_a_drained_line_is_in_exact_order(store: Store) -> None:
    """Nothing overtakes: a claimer alone gets all by priority, moment and id, however many it takes at once."""
    define(store)
    jobs = [
        NewJob("work", options={"priority": n * 7 % 5 - 2, "run_at": f"2020-01-01T00:00:{n * 13 % 60:02}Z"})
        for n in range(2_000)
    ]
    places = [
        (job.options["priority"], job.options["run_at"], answer.id)
        for job, answer in zip(jobs, store.enqueue_many(jobs), strict=True)
    ]

    sizes = iter([1, 7, 100, 3, 250] * 100)
    claimed: list[UUID] = []
    settled: list[Outcome] = []
    for size in islice(sizes, 50):
        store.settle_many(settled)
        batch = store.claim(request(size))
        claimed += [job.id for job in batch]
        settled = [Outcome(job.id, job.token, "done") for job in batch]

    assert claimed == [id for _, _, id in sorted(places)]
