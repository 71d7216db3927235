"""operate.sql: putting back, cancelling, discarding, pausing, setting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from pyjobs.errors import BadName, InvalidOption, JobRunning, UniqueKeyHeld
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import (
    HOUR,
    MINUTE,
    after,
    bury,
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

ROUTINES = ("retry", "cancel", "discard")


class TestFilters:
    """The three routines choose jobs in the same way."""

    @pytest.fixture(params=ROUTINES)
    def operate(self, request: pytest.FixtureRequest, store: Store) -> Callable[[dict[str, Any]], int]:
        operate: Callable[[dict[str, Any]], int] = getattr(store, request.param)
        return operate

    @pytest.fixture
    def dead_and_waiting(self, store: Store) -> list[UUID]:
        define(store)
        return [bury(store), enqueue(store)]

    def test_none_is_refused(self, store: Store, operate: Callable[[dict[str, Any]], int]) -> None:
        define(store)
        enqueue_all(store, 2)

        with refused(store, InvalidOption):
            operate({})

        assert store.count({"state": "pending"}) == 2

    @each(
        ("filter", "named"),
        [
            ({"stat": "dead"}, "stat"),
            ({"state": "broken"}, "state"),
            ({"state": 5}, "state"),
            ({"id": "not-a-uuid"}, "id"),
            ({"id": 5}, "id"),
            ({"ids": ["not-a-uuid"]}, "ids"),
            ({"ids": "not-a-list"}, "ids"),
            ({"ids": [5]}, "ids"),
            ({"batch_id": "not-a-uuid"}, "batch_id"),
            ({"queue": 5}, "queue"),
            ({"name": 5}, "name"),
            ({"tenant": 5}, "tenant"),
            ({"dead_reason": "bad luck"}, "dead_reason"),
            ({"before": "yesterday"}, "before"),
            ({"before": "2020-01-01T00:00:00"}, "before"),
            ({"before": 5}, "before"),
            ({"state": "dead", "limit": -1}, "limit"),
            ({"state": "dead", "limit": "5"}, "limit"),
            ({"state": "dead", "limit": 1.5}, "limit"),
        ],
    )
    def test_a_key_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
        self,
        store: Store,
        operate: Callable[[dict[str, Any]], int],
        dead_and_waiting: list[UUID],
        filter: dict[str, Any],
        named: str,
    ) -> None:
        with refused(store, InvalidOption, named):
            operate(filter)

        assert [state(store, id) for id in dead_and_waiting] == ["dead", "pending"]

    def test_what_does_not_exist_is_none(self, store: Store, operate: Callable[[dict[str, Any]], int]) -> None:
        define(store)
        enqueue(store)

        assert operate({"id": str(uuid4())}) == 0
        assert operate({"ids": []}) == 0
        assert operate({"ids": [str(uuid4()), str(uuid4())]}) == 0
        assert operate({"batch_id": str(uuid4())}) == 0
        assert operate({"name": "nobody"}) == 0
        assert operate({"tenant": "nobody"}) == 0

    @pytest.mark.parametrize(
        "filter",
        [
            {"state": "dead"},
            {"queue": "a"},
            {"name": "chosen"},
            {"tenant": "acme"},
            {"dead_reason": "permanent"},
            {"state": "dead", "queue": "a", "name": "chosen", "tenant": "acme", "dead_reason": "permanent"},
        ],
    )
    def test_all_keys_narrow_it(self, store: Store, filter: dict[str, Any]) -> None:
        define(store)
        define(store, "chosen", max_attempts=1)
        others = [enqueue(store), enqueue(store, tenant="zeta", queue="b"), enqueue(store, delay_ms=HOUR)]
        chosen = enqueue(store, "chosen", queue="a", tenant="acme", priority=-1)
        assert perform(store, "failed", permanent=True) == chosen

        assert store.count(filter) == 1
        assert [job.id for job in store.jobs(filter)] == [chosen]
        assert store.discard(filter) == 1
        assert state(store, chosen) is None
        assert None not in [state(store, id) for id in others]

    def test_by_id_in_any_case_and_by_ids(self, store: Store) -> None:
        define(store)
        first, second, third, fourth = enqueue_all(store, 4)

        assert store.cancel({"id": str(first).upper()}) == 1
        assert store.cancel({"ids": [str(second).upper(), str(third), str(third)]}) == 2
        assert [state(store, id) for id in (first, second, third, fourth)] == ["cancelled"] * 3 + ["pending"]

    def test_no_tenant_is_not_every_tenant(self, store: Store) -> None:
        define(store)
        theirs, nobodys = enqueue(store, tenant="acme"), enqueue(store)

        assert store.count({"tenant": None}) == 1
        assert store.discard({"tenant": None}) == 1
        assert (state(store, theirs), state(store, nobodys)) == ("pending", None)

    def test_keys_that_exclude_each_other_choose_none(self, store: Store) -> None:
        define(store)
        id = enqueue(store)

        assert store.discard({"id": str(id), "state": "dead"}) == 0
        assert state(store, id) == "pending"

    def test_a_limit_bounds_it(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 5)

        assert store.cancel({"state": "pending", "limit": 2}) == 2
        assert store.count({"state": "cancelled"}) == 2
        assert store.discard({"state": "cancelled", "limit": 1}) == 1

    def test_before_looks_at_when_it_was_enqueued(self, store: Store, clock: TestClock) -> None:
        define(store)
        early = enqueue(store)
        clock.advance(10)
        moment = after(store, 0)
        late = enqueue(store)

        assert store.count({"before": moment}) == 1
        assert store.discard({"before": moment}) == 1
        assert (state(store, early), state(store, late)) == (None, "pending")


class TestRetry:
    def test_a_dead_job_starts_over(self, store: Store, clock: TestClock) -> None:
        define(store, max_attempts=1)
        id = enqueue(store)
        perform(store, "failed")
        clock.advance(10)

        assert store.retry({"id": str(id)}) == 1
        record = found(store, id)
        assert (record.state, record.attempts, record.run_at) == ("pending", 0, clock.now())
        assert (record.dead_reason, record.finished_at, record.cancel_at) == (None, None, None)
        assert claim_one(store).attempt == 1

    def test_its_history_stays(self, store: Store) -> None:
        define(store)
        id = bury(store)
        store.retry({"id": str(id)})
        perform(store, "failed", message="again")

        assert [failure.attempt for failure in store.failures(id)] == [1, 1]

    @pytest.mark.parametrize("outcome", ["done", "cancelled"])
    def test_also_a_done_or_cancelled_one(self, store: Store, outcome: Any) -> None:
        define(store)
        id = enqueue(store)
        perform(store, outcome)

        assert store.retry({"id": str(id)}) == 1
        assert perform(store) == id

    def test_also_one_cancelled_while_it_ran(self, store: Store) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        store.cancel({"id": str(job.id)})
        settle(store, job, "released")
        store.retry({"id": str(job.id)})

        again = claim_one(store)
        assert settle(store, again, "failed").state == "scheduled"

    def test_a_scheduled_job_comes_forward(self, store: Store) -> None:
        define(store)
        id = enqueue(store, delay_ms=HOUR)

        assert store.retry({"id": str(id)}) == 1
        assert claim_one(store).id == id

    def test_a_pending_or_running_job_is_not_put_back(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 2)
        claim_one(store)

        assert store.retry({"name": "work"}) == 0
        assert store.count({"state": "running"}) == 1

    def test_a_running_job_by_id_is_refused(self, store: Store) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)

        with refused(store, JobRunning, str(job.id)):
            store.retry({"id": str(job.id)})

        assert settle(store, job).accepted

    def test_later_on_wish(self, store: Store, clock: TestClock) -> None:
        define(store)
        first, second = bury(store), bury(store)
        store.retry({"id": str(first)}, {"delay_ms": MINUTE})
        store.retry({"id": str(second)}, {"run_at": after(store, HOUR)})

        for id, wait in ((first, timedelta(minutes=1)), (second, timedelta(hours=1))):
            assert (found(store, id).state, found(store, id).run_at) == ("scheduled", clock.now() + wait)

    @each(
        ("options", "named"),
        [({"delay": 5}, "delay"), ({"delay_ms": -1}, "delay_ms"), ({"run_at": "2999-01-01T00:00:00"}, "run_at")],
    )
    def test_bad_options_are_refused_by_name(self, store: Store, options: dict[str, Any], named: str) -> None:
        define(store)
        id = bury(store)

        with refused(store, InvalidOption, named):
            store.retry({"id": str(id)}, options)

        assert state(store, id) == "dead"

    def test_it_takes_its_unique_key_back(self, store: Store) -> None:
        define(store)
        id = bury(store, unique_key="k")
        store.retry({"id": str(id)})

        assert enqueue(store, unique_key="k") == id

    def test_a_key_held_by_another_is_refused_by_id(self, store: Store) -> None:
        define(store)
        id = bury(store, unique_key="k")
        enqueue(store, unique_key="k")

        with refused(store, UniqueKeyHeld, "k"):
            store.retry({"id": str(id)})

        assert state(store, id) == "dead"

    def test_a_key_held_by_another_is_skipped_in_bulk(self, store: Store) -> None:
        define(store)
        blocked = bury(store, unique_key="k")
        free = bury(store)
        enqueue(store, unique_key="k")

        assert store.retry({"state": "dead"}) == 1
        assert (state(store, blocked), state(store, free)) == ("dead", "pending")

    def test_of_two_with_one_key_one_is_put_back(self, store: Store) -> None:
        define(store)
        ids = [bury(store, unique_key="k"), bury(store, unique_key="k")]

        assert store.retry({"state": "dead"}) == 1
        assert sorted(str(state(store, id)) for id in ids) == ["dead", "pending"]

    def test_a_key_kept_for_the_row_is_still_its_own(self, store: Store) -> None:
        define(store)
        id = bury(store, unique_key="k", unique_for="row")

        assert store.retry({"id": str(id)}) == 1

    def test_it_is_bounded_by_a_limit_given_since(self, store: Store) -> None:
        define(store)
        for _ in range(3):
            bury(store)
        define(store, concurrency={"limit": 1})
        store.retry({"state": "dead"})

        assert len(claim(store, 10)) == 1
        assert claim(store, 10) == []

    def test_an_earlier_holder_cannot_settle_it(self, store: Store) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        settle(store, job, "failed", permanent=True)
        store.retry({"id": str(job.id)})

        assert settle(store, job).accepted is False
        assert state(store, job.id) == "pending"


class TestCancel:
    def test_waiting_jobs_are_cancelled(self, store: Store, clock: TestClock) -> None:
        define(store)
        ids = [enqueue(store), enqueue(store, delay_ms=HOUR)]

        assert store.cancel({"name": "work"}) == 2
        assert [state(store, id) for id in ids] == ["cancelled", "cancelled"]
        assert found(store, ids[0]).finished_at == clock.now()
        assert claim(store) == []

    def test_a_running_job_is_flagged_and_goes_on(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)

        assert store.cancel({"id": str(job.id)}) == 1
        record = found(store, job.id)
        assert (record.state, record.cancel_at) == ("running", clock.now())

    def test_the_first_flag_counts(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)
        store.cancel({"id": str(job.id)})
        flagged = found(store, job.id).cancel_at
        clock.advance(5)
        store.cancel({"id": str(job.id)})

        assert found(store, job.id).cancel_at == flagged

    def test_a_limit_goes_on_to_those_that_are_not_flagged_yet(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 3)
        jobs = claim(store, 3)
        filter = {"state": "running", "limit": 1}

        assert [store.cancel(filter) for _ in range(4)] == [1, 1, 1, 0]
        assert all(found(store, job.id).cancel_at for job in jobs)

    def test_ended_jobs_are_left_alone(self, store: Store) -> None:
        define(store)
        dead = bury(store)
        enqueue(store)
        done = perform(store)

        assert store.cancel({"name": "work"}) == 0
        assert (state(store, dead), state(store, done)) == ("dead", "done")


class TestDiscard:
    @pytest.mark.parametrize("becomes", ["scheduled", "pending", "done", "dead", "cancelled"])
    def test_what_does_not_run_is_deleted(self, store: Store, becomes: str) -> None:
        define(store)
        id = enqueue(store, unique_key="k", delay_ms=HOUR if becomes == "scheduled" else 0)
        if becomes == "done":
            perform(store)
        if becomes == "dead":
            perform(store, "failed", permanent=True)
        if becomes == "cancelled":
            store.cancel({"id": str(id)})
        assert state(store, id) == becomes

        assert store.discard({"id": str(id)}) == 1
        assert state(store, id) is None
        assert store.failures(id) == []
        assert enqueue(store, unique_key="k") != id

    def test_a_running_job_by_id_is_refused(self, store: Store) -> None:
        define(store)
        enqueue(store)
        job = claim_one(store)

        with refused(store, JobRunning, str(job.id)):
            store.discard({"id": str(job.id)})

        assert settle(store, job).accepted

    def test_running_jobs_are_skipped_in_bulk(self, store: Store) -> None:
        define(store)
        enqueue_all(store, 3)
        held = claim_one(store)

        assert store.discard({"name": "work"}) == 2
        assert [job.id for job in store.jobs()] == [held.id]


class TestQueues:
    def test_pausing_and_resuming_may_be_repeated(self, store: Store) -> None:
        for _ in range(2):
            store.pause_queue("a")
        store.pause_queue("b")
        assert sorted(store.paused()) == ["a", "b"]

        for _ in range(2):
            store.resume_queue("a")
        assert store.paused() == ["b"]

    @each("queue", ["", "q" * 191])
    def test_a_queue_is_neither_empty_nor_over_190_characters(self, store: Store, queue: str) -> None:
        with refused(store, BadName, "queue"):
            store.pause_queue(queue)


class TestSettings:
    @each(
        ("name", "value"),
        [
            ("max_args_bytes", 1),
            ("max_args_bytes", 104_857_600),
            ("keep_keys_ms", 0),
            ("keep_keys_ms", None),
            ("notify", True),
            ("notify", False),
        ],
    )
    def test_each_takes_its_values(self, store: Store, name: str, value: Any) -> None:
        store.set(name, value)
        store.set(name, value)

    @each(
        ("name", "value"),
        [
            ("max_arg_bytes", 5),
            ("max_args_bytes", 0),
            ("max_args_bytes", 104_857_601),
            ("max_args_bytes", "big"),
            ("max_args_bytes", 1.5),
            ("max_args_bytes", None),
            ("keep_keys_ms", -1),
            ("keep_keys_ms", "1y"),
            ("notify", "yes"),
            ("notify", 1),
        ],
    )
    def test_a_setting_that_is_unknown_or_a_bad_value_is_refused_by_name(
        self, store: Store, name: str, value: Any
    ) -> None:
        with refused(store, InvalidOption, name):
            store.set(name, value)

    def test_keys_may_be_kept_without_end(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=0)
        store.set("keep_keys_ms", None)
        holder = enqueue(store, unique_key="k", unique_for="ever")
        perform(store)
        clock.advance(3 * 365 * 86_400)
        store.sweep()

        assert enqueue(store, unique_key="k") == holder


def test_listing_is_newest_first_and_bounded(store: Store, clock: TestClock) -> None:
    define(store)
    ids: list[UUID] = []
    for _ in range(5):
        ids.append(enqueue(store))
        clock.advance(1)

    assert [job.id for job in store.jobs(limit=3)] == ids[:1:-1]
    assert [job.id for job in store.jobs({"ids": [str(ids[0]), str(ids[3])]})] == [ids[3], ids[0]]
