"""views.sql: what people and the command line look at; one view shows arguments, and no other."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from pyjobs.records import StatusRow
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import HOUR, bury, claim, claim_one, define, each, enqueue, enqueue_all, perform, settle

VIEWS = (
    "jobs_status",
    "jobs_backlog",
    "jobs_active",
    "jobs_dead",
    "jobs_timings",
    "jobs_limits",
    "jobs_batch_status",
    "jobs_schedule_status",
    "jobs_worker_status",
    "jobs_orphans",
    "jobs_list",
    "jobs_errors",
)


@pytest.fixture
def busy(store: Store, clock: TestClock) -> Store:
    """A store with something in every view."""
    secret = '{"secret": "hunter2", "k": 1}'
    define(store, concurrency={"limit": 2, "key": "k"})
    define(store, "after")
    batch_id = store.open_batch({"name": "import", "callback": {"name": "after"}})
    enqueue(store, args=secret, batch_id=str(batch_id), meta={"hidden": "hunter2"}, unique_key="u", tenant="acme")
    perform(store)
    enqueue(store, args=secret)
    perform(store, "failed", message="no", permanent=True)
    enqueue(store, args=secret)
    claim_one(store)
    enqueue(store, args=secret)
    enqueue(store, args=secret, delay_ms=HOUR)
    store.put_schedule("tidy", {"job": "work", "cron": "0 3 * * *", "args": '{"secret": "hunter2"}'}, clock.now())
    store.heartbeat("worker-1", [], info={"host": "h", "names": ["after"]})
    store.pause_queue("default")
    return store


class TestAsPlainSql:
    @pytest.mark.sql
    @each("view", VIEWS)
    def test_each_can_be_read_and_shows_no_arguments(self, busy: Store, sql: Any, view: str) -> None:
        rows = sql(f"SELECT * FROM {view}")

        assert rows
        for row in rows:
            assert not {"args", "meta"} & set(row)
            assert "hunter2" not in str(row)

    @pytest.mark.sql
    @each("view", VIEWS)
    def test_each_is_empty_when_there_is_nothing(self, store: Store, sql: Any, view: str) -> None:
        assert sql(f"SELECT * FROM {view}") == []

    @pytest.mark.sql
    def test_payloads_are_apart(self, busy: Store, sql: Any) -> None:
        rows = sql("SELECT * FROM jobs_payloads")

        assert set(rows[0]) == {"id", "args", "meta"}
        assert sum("hunter2" in row["args"] for row in rows) == 5

    @pytest.mark.sql
    @each("view", VIEWS)
    def test_moments_are_the_engines_own_timestamps(self, busy: Store, sql: Any, view: str) -> None:
        moments = [
            value
            for row in sql(f"SELECT * FROM {view}")
            for column, value in row.items()
            if column.endswith(("_at", "_until")) and value is not None
        ]

        for moment in moments:
            if sql.dialect == "sqlite":
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
            else:
                assert isinstance(moment, datetime)
                assert (moment.tzinfo is None) is (sql.dialect == "mysql")  # whose type has no zone: it is UTC

    @pytest.mark.sql
    def test_the_contract_tells_its_version(self, store: Store, sql: Any) -> None:
        if sql.dialect == "sqlite":
            assert list(sql("SELECT * FROM jobs_contract")[0].values()) == [1]
        else:
            assert sql.value(f"{'CALL' if sql.dialect == 'mysql' else 'SELECT'} jobs_contract()") == 1
        assert store.contract() == 1


class TestStatus:
    def test_jobs_are_counted_by_queue_and_state(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue_all(store, 2, queue="a")
        enqueue(store, queue="b", delay_ms=HOUR)
        clock.advance(5)
        enqueue(store, queue="a")
        claim_one(store)
        store.pause_queue("b")

        assert sorted(store.status(), key=lambda row: (row.queue, row.state)) == [
            StatusRow("a", "pending", 2, 5_000, paused=False),
            StatusRow("a", "running", 1, None, paused=False),
            StatusRow("b", "scheduled", 1, None, paused=True),
        ]

    @pytest.mark.sql
    def test_the_backlog_tells_scheduled_and_due_apart(self, store: Store, clock: TestClock, sql: Any) -> None:
        define(store)
        define(store, "other")
        enqueue_all(store, 3)
        enqueue(store, delay_ms=HOUR)
        enqueue(store, "other", delay_ms=1_000)
        clock.advance(2)
        store.sweep()
        rows = {(row["queue"], row["name"]): row for row in sql("SELECT * FROM jobs_backlog")}

        assert (rows["default", "work"]["scheduled"], rows["default", "work"]["due"]) == (1, 3)
        assert (rows["default", "other"]["scheduled"], rows["default", "other"]["due"]) == (0, 1)

    @pytest.mark.sql
    def test_the_active_ones_are_told_with_their_holders(self, store: Store, clock: TestClock, sql: Any) -> None:
        define(store)
        id = enqueue(store)
        claim_one(store, worker="worker-7")
        [row] = sql("SELECT * FROM jobs_active")

        assert (str(row["id"]), row["name"], row["worker"], row["attempt"]) == (str(id), "work", "worker-7", 1)

    @pytest.mark.sql
    def test_the_dead_are_told_with_reason_and_last_failure(self, store: Store, sql: Any) -> None:
        define(store, max_attempts=2, backoff={"base_ms": 0})
        id = enqueue(store)
        perform(store, "failed", message="first")
        perform(store, "failed", message="last", type="ValueError")
        [row] = sql("SELECT * FROM jobs_dead")

        assert (str(row["id"]), row["dead_reason"]) == (str(id), "exhausted")
        assert "last" in row.values()
        assert "first" not in row.values()


class TestTheDead:
    def test_the_last_to_die_come_first_each_with_its_last_failure(self, store: Store, clock: TestClock) -> None:
        define(store, max_attempts=2)
        define(store, "other", queue="apart")
        twice = enqueue(store)
        perform(store, "failed", type="First", message="once", retry_in_ms=0)
        clock.advance(1)
        perform(store, "failed", type="Last", message="twice")
        clock.advance(1)
        once = bury(store, name="other", tenant="acme")
        bury(store)
        store.retry({"name": "work", "limit": 100, "dead_reason": "permanent"})

        first, second = store.dead()
        assert (first.id, first.dead_reason, first.kind, first.tenant) == (once, "permanent", "error", "acme")
        assert (second.id, second.dead_reason, second.attempts) == (twice, "exhausted", 2)
        assert (second.type, second.message, second.failed_at) == ("Last", "twice", second.finished_at)
        assert store.dead(limit=1) == [first]
        for filter in ({"queue": "apart"}, {"name": "other"}, {"tenant": "acme"}, {"dead_reason": "permanent"}):
            assert store.dead(filter) == [first]
        assert store.dead({"tenant": None, "ids": [once, twice]}) == [second]
        assert store.dead({"before": second.finished_at}) == [second]


class TestTimings:
    def test_runs_are_timed_by_queue_and_name(self, store: Store, clock: TestClock) -> None:
        define(store)
        for seconds in (1, 2, 6):
            enqueue(store)
            job = claim_one(store)
            clock.advance(seconds)
            settle(store, job)
        [timing] = store.timings()

        assert (timing.queue, timing.name, timing.runs) == ("default", "work", 3)
        assert (timing.min_ms, timing.average_ms, timing.max_ms) == (1_000, 3_000, 6_000)
        assert timing.p95_ms is None or 2_000 <= timing.p95_ms <= 6_000

    def test_what_never_ran_is_not_timed(self, store: Store) -> None:
        define(store)
        id = enqueue(store)
        store.cancel({"id": str(id)})

        assert store.timings() == []


class TestLimits:
    def test_a_group_without_holders_is_declared(self, store: Store) -> None:
        define(store, concurrency={"limit": 2})
        [row] = store.limits()

        assert (row.group, row.slots, row.bucket, row.job_id) == ("work", 2, None, None)

    def test_each_holder_is_told(self, store: Store) -> None:
        define(store, concurrency={"limit": 2, "key": "k"})
        for value in (1, 1, 1, 2):
            enqueue(store, args=f'{{"k": {value}}}')
        jobs = claim(store, 10)
        rows = store.limits()

        assert {row.job_id for row in rows} == {job.id for job in jobs}
        assert sorted(str(row.bucket) for row in rows) == ["work:1", "work:1", "work:2"]
        assert {(row.group, row.slots, row.name, row.worker) for row in rows} == {("work", 2, "work", "worker-1")}
        assert all(row.taken_at is not None for row in rows)


class TestOrphans:
    def test_waiting_work_that_no_live_worker_performs_is_told(self, store: Store, clock: TestClock) -> None:
        define(store)
        define(store, "known")
        due = clock.now()
        enqueue_all(store, 2)
        enqueue(store, "known")
        store.heartbeat("worker-1", [], info={"names": ["known"]})
        [orphan] = store.orphans()

        assert (orphan.name, orphan.waiting, orphan.oldest_run_at) == ("work", 2, due)

    def test_a_worker_that_performs_all_leaves_none(self, store: Store) -> None:
        define(store)
        enqueue(store)
        store.heartbeat("worker-1", [], info={"names": None})

        assert store.orphans() == []

    def test_a_worker_that_is_gone_performs_none(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        store.heartbeat("worker-1", [], info={"names": ["work"]})
        assert store.orphans() == []

        clock.advance(301)
        assert [orphan.name for orphan in store.orphans()] == ["work"]

    def test_work_in_hand_or_ended_is_none(self, store: Store) -> None:
        define(store)
        bury(store)
        enqueue(store)
        claim_one(store)

        assert store.orphans() == []


class TestOneJob:
    def test_an_unknown_one_is_none(self, store: Store) -> None:
        assert store.job(uuid4()) is None
        assert store.failures(uuid4()) == []

    def test_it_is_shown_with_its_payload_and_listed_without(self, store: Store) -> None:
        define(store)
        id = enqueue(store, args='{"k": 1}', meta={"trace": "t"})
        record = store.job(id)
        [listed] = store.jobs()

        assert record is not None
        assert record.args == '{"k": 1}'
        assert '"trace"' in (record.meta or "")
        assert (listed.id, listed.args, listed.meta) == (id, None, None)

    def test_moments_are_in_utc(self, store: Store, clock: TestClock) -> None:
        define(store)
        enqueue(store)
        [record] = store.jobs()

        assert record.enqueued_at == clock.now()
        assert record.enqueued_at.utcoffset() == store.now().utcoffset() == clock.now().utcoffset()
