"""``Jobs`` on a real database."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from pyjobs import Batch, Concurrency, JobContext, Jobs, Permanent
from pyjobs.errors import BatchClosed, InvalidOption, InvalidSchedule, JobRunning, OtherTenant, UnknownJob
from pyjobs.records import ClaimRequest, JobRecord, NewJob
from pyjobs.store.base import Store
from pyjobs.worker import Worker
from servers.databases import Database


def shop(database: Database, name: str = "shop", **settings: Any) -> Jobs:
    """An application on the database, with two jobs."""
    jobs = Jobs(database.url, name=name, **settings)

    @jobs.job(queue="mail", timeout="30s")
    def welcome(user_id: int, at: datetime | None = None) -> None: ...

    @jobs.job
    def bury() -> None:
        raise Permanent("gone")

    return jobs


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    jobs = shop(database)
    yield jobs
    jobs.close()


def found(jobs: Jobs, id: Any) -> JobRecord:
    record = jobs.get(id)
    assert record is not None
    return record


class TestDefining:
    def test_sync_puts_the_definitions_there(self, jobs: Jobs, store: Store) -> None:
        jobs.define("limited", lambda: None, concurrency=Concurrency(2, group="io"), keep_dead="1w")
        jobs.sync()
        there = {each.name: each for each in store.definitions()}
        assert {*there} == {"welcome", "bury", "limited"}
        assert (there["welcome"].queue, there["welcome"].timeout_ms) == ("mail", 30_000)
        assert (there["limited"].concurrency_limit, there["limited"].concurrency_group) == (2, "io")
        assert there["limited"].keep_dead_ms == 604_800_000

    def test_what_was_taken_out_of_the_code_goes_from_the_database(self, database: Database, store: Store) -> None:
        before, after = Jobs(database.url), Jobs(database.url)
        before.define("a", lambda: None, timeout="1m", concurrency=Concurrency(1), keep_dead="1d")
        after.define("a", lambda: None)
        before.sync()
        after.sync()
        [there] = store.definitions()
        assert (there.timeout_ms, there.concurrency_limit, there.keep_dead_ms) == (None, None, None)

    def test_enqueueing_first_defines_what_is_not_known_yet(self, jobs: Jobs, store: Store) -> None:
        id = jobs.enqueue("welcome", {"user_id": 1})
        assert found(jobs, id).queue == "mail"
        assert {each.name for each in store.definitions()} == {"welcome", "bury"}

    def test_a_name_that_nobody_defines_is_refused_with_those_there_are(self, jobs: Jobs) -> None:
        jobs.sync()
        with pytest.raises(UnknownJob) as refusal:
            jobs.enqueue("wellcome", {"user_id": 1})
        assert "wellcome" in refusal.value.message
        assert "welcome" in refusal.value.hint
        assert jobs.count() == 0

    @pytest.mark.databases("postgresql")
    def test_who_may_only_enqueue_is_told_of_the_job_and_not_of_rights(self, database: Database) -> None:
        role = f"pyjobs_producer_{uuid4().hex[:8]}"
        owner = database.connect()
        owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute("SELECT jobs_grant(%s, 'producer')", [role])
        jobs = shop(replace(database, url=database.url.replace("postgres@", f"{role}@")))
        try:
            with pytest.raises(UnknownJob, match="welcome"):
                jobs.enqueue("welcome", {"user_id": 1})
        finally:
            jobs.close()
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")
            owner.close()

    def test_an_application_may_enqueue_what_another_defines(self, jobs: Jobs, database: Database) -> None:
        jobs.sync()
        assert found(jobs, Jobs(database.url).enqueue("welcome", {"anything": [1]})).state == "pending"


class TestEnqueueing:
    def test_by_the_jobs_own_arguments(self, jobs: Jobs) -> None:
        welcome = jobs.definitions["welcome"]
        id = welcome.enqueue(1, at=datetime(2026, 1, 1, tzinfo=UTC))
        assert found(jobs, id).args == '{"user_id":1,"at":"2026-01-01T00:00:00+00:00"}'

    def test_with_options(self, jobs: Jobs) -> None:
        at = datetime(2999, 1, 1, 9, tzinfo=UTC)
        id = jobs.definitions["welcome"].enqueue_with(
            at=at, queue="late", priority=-7, max_attempts=2, timeout="5s", unique_key="w:1", meta={"trace": "t"}
        )(user_id=1)
        job = found(jobs, id)
        assert (job.state, job.run_at, job.queue, job.priority) == ("scheduled", at, "late", -7)
        assert (job.max_attempts, job.timeout_ms, job.unique_key) == (2, 5_000, "w:1")
        assert json.loads(job.meta or "") == {"trace": "t"}

    def test_after_a_delay(self, jobs: Jobs, store: Store) -> None:
        before = store.now()
        job = found(jobs, jobs.enqueue("welcome", {"user_id": 1}, delay="5m"))
        assert before + timedelta(minutes=5) <= job.run_at <= store.now() + timedelta(minutes=5)

    def test_a_held_key_answers_its_holder(self, jobs: Jobs) -> None:
        first = jobs.enqueue("welcome", {"user_id": 1}, unique_key="w")
        assert jobs.enqueue("welcome", {"user_id": 2}, unique_key="w") == first
        assert jobs.count() == 1

    def test_an_id_of_ones_own_makes_it_repeatable(self, jobs: Jobs) -> None:
        id = uuid4()
        assert jobs.enqueue("welcome", {"user_id": 1}, id=id) == id
        assert jobs.enqueue("welcome", {"user_id": 1}, id=id) == id
        assert jobs.count() == 1

    def test_many_at_once_in_order(self, jobs: Jobs) -> None:
        answers = jobs.enqueue_many(
            [
                ("welcome", {"user_id": 1}),
                (jobs.definitions["bury"], {}, {"unique_key": "b"}),
                ("bury", {}, {"unique_key": "b"}),
                jobs.new_job("welcome", {"user_id": 2}, {}),
            ]
        )
        assert [each.inserted for each in answers] == [True, True, False, True]
        assert answers[1].id == answers[2].id
        assert [found(jobs, each.id).name for each in answers] == ["welcome", "bury", "bury", "welcome"]
        assert jobs.enqueue_many([]) == []

    def test_of_many_all_or_none(self, jobs: Jobs) -> None:
        with pytest.raises(UnknownJob):
            jobs.enqueue_many([("welcome", {"user_id": 1}), ("nobody's", {})])
        assert jobs.count() == 0

    def test_from_asyncio(self, jobs: Jobs) -> None:
        async def enqueue() -> list[Any]:
            with jobs.tenant("acme"):
                return await asyncio.gather(*(jobs.aenqueue("welcome", {"user_id": n}) for n in range(20)))

        ids = asyncio.run(enqueue())
        assert len({*ids}) == jobs.count(tenant="acme") == 20

    def test_from_many_threads_over_few_connections(self, database: Database) -> None:
        jobs = shop(database, pool_size=3)
        jobs.sync()
        threads = [
            threading.Thread(target=lambda: [jobs.enqueue("welcome", {"user_id": 1}) for _ in range(10)])
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert jobs.count() == 120
        jobs.close()


class TestTransactions:
    @pytest.mark.parametrize(("end", "count"), [("COMMIT", 1), ("ROLLBACK", 0)])
    def test_a_job_shares_the_fate_of_its_transaction(
        self, jobs: Jobs, database: Database, end: str, count: int
    ) -> None:
        jobs.sync()
        connection = database.connect()
        connection.execute("BEGIN")
        id = jobs.enqueue("welcome", {"user_id": 1}, connection=connection)
        assert jobs.get(id) is None
        connection.execute(end)
        connection.close()
        assert jobs.count() == count
        assert (jobs.get(id) is not None) == bool(count)

    def test_typed_many_and_batch_take_a_connection_too(self, jobs: Jobs, database: Database) -> None:
        jobs.sync()
        connection = database.connect()
        connection.execute("BEGIN")
        jobs.definitions["welcome"].enqueue_with(connection=connection)(user_id=1)
        jobs.enqueue_many([("welcome", {"user_id": 2})], connection=connection)
        with jobs.batch("bury", connection=connection) as batch:
            batch.add("welcome", {"user_id": 3})
        assert jobs.count() == 0
        connection.execute("COMMIT")
        connection.close()
        assert jobs.count() == 3
        assert jobs.count(batch_id=batch.id) == 1


class TestBatches:
    def test_a_clean_block_seals_it(self, jobs: Jobs) -> None:
        with jobs.batch("bury", name="import") as batch:
            ids = [batch.add("welcome", {"user_id": n}, priority=n) for n in range(5)]
            assert batch.record is None
        assert batch.record is not None
        assert (batch.record.total, batch.record.name, batch.record.callback) == (5, "import", "bury")
        assert {job.id for job in jobs.batches.jobs(batch.id)} == {*ids}
        assert jobs.batches.get(batch.id) == batch.record
        assert [each.id for each in jobs.batches.list(finished=False)] == [batch.id]

    def test_it_streams_in_chunks(self, jobs: Jobs) -> None:
        sent = []
        with jobs.batch() as batch:
            for n in range(2_500):
                batch.add("welcome", {"user_id": n})
                if n in (998, 999, 1_000, 2_499):
                    sent.append(jobs.count(batch_id=batch.id))
        assert sent == [0, 1_000, 1_000, 2_000]
        assert batch.record is not None
        assert batch.record.total == jobs.count(batch_id=batch.id) == 2_500

    def test_large_arguments_are_sent_sooner(self, jobs: Jobs) -> None:
        jobs.define("store", lambda text: None)
        with jobs.batch() as batch:
            for _ in range(10):
                batch.add("store", {"text": "x" * 500_000})
            assert jobs.count(batch_id=batch.id) == 8

    def test_a_block_that_raises_leaves_it_open(self, jobs: Jobs) -> None:
        def fill(batch: Batch) -> None:
            for n in range(1_500):
                batch.add("welcome", {"user_id": n})
            raise KeyError

        with pytest.raises(KeyError), jobs.batch("bury") as batch:
            fill(batch)
        record = jobs.batches.get(batch.id)
        assert record is not None
        assert (record.total, record.sealed_at, record.finished_at) == (None, None, None)
        assert jobs.count(batch_id=batch.id) == 1_000
        assert jobs.count(name="bury") == 0

    def test_a_sealed_one_takes_no_more(self, jobs: Jobs) -> None:
        with jobs.batch() as batch:
            batch.seal()
            batch.add("welcome", {"user_id": 1})
            with pytest.raises(BatchClosed):
                batch.seal()
        assert jobs.count() == 0

    def test_an_undefined_callback_is_refused_before_anything_else(self, jobs: Jobs) -> None:
        jobs.sync()
        with pytest.raises(UnknownJob, match="berry"), jobs.batch("berry"):
            pytest.fail("the block was entered")

    def test_a_callback_of_this_application_is_defined_first(self, jobs: Jobs) -> None:
        with jobs.batch("bury") as batch:
            pass
        assert batch.record is not None
        assert batch.record.callback == "bury"

    def test_its_callback_is_told_what_it_came_to(self, database: Database) -> None:
        jobs = Jobs(database.url)
        told = []

        @jobs.job
        def row(n: int) -> None:
            if n == 3:
                raise Permanent("no")

        @jobs.job
        def finished(of: datetime, *, context: JobContext) -> None:
            told.append((of, context.queue, context.tenant, context.batch))

        moment = datetime(2026, 1, 1, tzinfo=UTC)
        with jobs.tenant("acme"), jobs.batch(finished, {"of": moment}, name="b", queue="after") as batch:
            for n in range(5):
                batch.add(row, {"n": n})
        Worker(jobs).run(once=True)
        [(of, queue, tenant, counts)] = told
        assert (of, queue, tenant) == (moment, "after", "acme")
        assert counts is not None
        assert (counts.id, counts.name, counts.total, counts.done, counts.failed, counts.succeeded) == (
            batch.id,
            "b",
            5,
            5,
            1,
            4,
        )
        jobs.close()


class TestTenants:
    def test_jobs_are_stamped_and_found(self, jobs: Jobs) -> None:
        with jobs.tenant("acme"):
            mine = jobs.enqueue("welcome", {"user_id": 1})
            nobodys = jobs.enqueue("welcome", {"user_id": 1}, tenant=None)
            with jobs.batch("bury") as batch:
                batch.add("welcome", {"user_id": 2})
        assert found(jobs, mine).tenant == "acme"
        assert found(jobs, nobodys).tenant is None
        assert batch.record is not None
        assert batch.record.tenant == "acme"
        assert jobs.count(tenant="acme") == 2
        assert jobs.count(tenant=None) == 1


    def test_so_are_jobs_that_were_made_elsewhere(self, jobs: Jobs) -> None:
        with jobs.tenant("acme"):
            [mine, nobodys] = jobs.enqueue_many(
                [NewJob("welcome", '{"user_id": 1}'), NewJob("welcome", '{"user_id": 1}', {"tenant": None})]
            )
            with pytest.raises(OtherTenant):
                jobs.enqueue_many([NewJob("welcome", '{"user_id": 1}', {"tenant": "other"})])
        assert found(jobs, mine.id).tenant == "acme"
        assert found(jobs, nobodys.id).tenant is None


class TestSchedules:
    def test_sync_declares_them(self, jobs: Jobs, store: Store) -> None:
        jobs.recur("hourly", job="bury", every="1h", queue="low", args={})
        jobs.recur("nightly", job="bury", cron="0 3 * * *", timezone="Europe/Paris", enabled=False)
        before = store.now()
        jobs.sync()
        hourly, nightly = sorted(jobs.schedules(), key=lambda each: each.name)
        assert (hourly.job, hourly.every_ms, hourly.source, hourly.enabled) == ("bury", 3_600_000, "shop", True)
        assert before < hourly.next_run_at <= before + timedelta(hours=1)
        assert (hourly.next_run_at.minute, hourly.next_run_at.second) == (0, 0)
        assert (nightly.cron, nightly.timezone, nightly.enabled) == ("0 3 * * *", "Europe/Paris", False)

    def test_sync_forgets_its_own_and_no_others(self, database: Database, store: Store) -> None:
        def deploy(name: str, *schedules: str) -> None:
            jobs = shop(database, name)
            for schedule in schedules:
                jobs.recur(schedule, job="bury", every="1h")
            jobs.sync()
            jobs.close()

        deploy("shop", "a", "b")
        deploy("office", "c")
        deploy("shop", "b")
        assert {each.name for each in store.schedules()} == {"b", "c"}
        deploy("shop")
        assert {each.name for each in store.schedules()} == {"c"}

    def test_syncing_again_moves_nothing(self, jobs: Jobs, store: Store) -> None:
        jobs.recur("hourly", job="bury", every="1h")
        jobs.sync()
        before = store.schedules()
        jobs.sync()
        assert store.schedules() == before

    @pytest.mark.parametrize("every", ["1ms", "20ms"])
    def test_one_that_comes_round_all_the_time_can_be_declared(self, jobs: Jobs, store: Store, every: str) -> None:
        jobs.recur("busy", job="bury", every=every)
        for _ in range(20):
            jobs.sync()
        assert [each.name for each in store.schedules()] == ["busy"]

    def test_one_of_an_undefined_job_is_refused_before_anything_is_changed(self, jobs: Jobs, store: Store) -> None:
        jobs.recur("hourly", job="burry", every="1h")
        with pytest.raises(UnknownJob, match=r"'hourly'.*'burry'"):
            jobs.sync()
        assert store.definitions() == []
        assert store.schedules() == []

    def test_one_may_be_of_a_job_that_another_application_defines(self, database: Database, store: Store) -> None:
        shop(database).sync()
        other = Jobs(database.url, name="other")
        other.recur("hourly", job="bury", every="1h")
        other.sync()
        assert [each.job for each in store.schedules()] == ["bury"]

    def test_one_that_never_comes_round_never_gets_there(self, jobs: Jobs) -> None:
        with pytest.raises(InvalidSchedule):
            jobs.recur("never", job="bury", cron="0 0 31 11 *")


class TestReading:
    def test_list_and_count_take_filters(self, jobs: Jobs) -> None:
        for n in range(3):
            jobs.enqueue("welcome", {"user_id": n}, queue=f"q{n}")
        jobs.enqueue("bury", delay="1h")
        assert jobs.count() == 4
        assert jobs.count(state="scheduled") == 1
        assert [job.queue for job in jobs.list(queue="q1")] == ["q1"]
        assert len(jobs.list(name="welcome")) == 3
        assert len(jobs.list(limit=2)) == 2
        assert jobs.get(uuid4()) is None

    def test_stats_limits_workers(self, jobs: Jobs) -> None:
        jobs.define("limited", lambda: None, concurrency=Concurrency(1))
        jobs.enqueue("limited")
        jobs.enqueue("welcome", {"user_id": 1}, delay="1h")
        Worker(jobs).run(once=True)
        stats = jobs.stats()
        assert stats.totals == {"done": 1, "scheduled": 1}
        assert {(row.queue, row.state, row.count) for row in stats.queues} == {
            ("default", "done", 1),
            ("mail", "scheduled", 1),
        }
        assert [(row.name, row.runs) for row in stats.timings] == [("limited", 1)]
        assert [(row.group, row.slots, row.job_id) for row in jobs.limits()] == [("limited", 1, None)]
        assert [worker for worker in jobs.workers() if worker.live] == []

    def test_the_dead_are_listed_put_back_and_discarded(self, jobs: Jobs) -> None:
        one, other = jobs.enqueue("bury"), jobs.enqueue("bury")
        Worker(jobs).run(once=True)
        assert {job.id for job in jobs.dead.list()} == {one, other}
        assert jobs.dead.count() == 2
        [failure] = jobs.failures(one)
        assert (failure.type, failure.message, failure.attempt) == ("pyjobs.context.Permanent", "gone", 1)
        assert jobs.dead.retry(id=one, delay="1h") == 1
        assert (found(jobs, one).state, found(jobs, one).attempts) == ("scheduled", 0)
        assert jobs.dead.discard() == 1
        assert jobs.get(other) is None
        assert jobs.dead.count() == 0


class TestOperating:
    def test_cancelling(self, jobs: Jobs) -> None:
        id = jobs.enqueue("bury")
        assert jobs.cancel(id) == 1
        assert found(jobs, id).state == "cancelled"
        assert jobs.cancel(id) == 0

    def test_by_id_or_by_what_they_have_in_common(self, jobs: Jobs) -> None:
        first, *others = (jobs.enqueue("bury", tenant="acme") for _ in range(4))
        assert jobs.cancel(name="bury", limit=1) == 1
        assert found(jobs, first).state == "cancelled"
        assert jobs.cancel(ids=others[:2]) == 2
        assert jobs.retry(first, delay="1h") == 1
        assert (found(jobs, first).state, jobs.count(state="cancelled")) == ("scheduled", 2)
        moment = datetime(2999, 1, 1, tzinfo=UTC)
        assert jobs.retry(state="cancelled", tenant="acme", at=moment) == 2
        assert jobs.count(state="cancelled") == 0
        assert {job.run_at for job in jobs.list(ids=others[:2])} == {moment}
        assert jobs.discard(first) == 1
        assert jobs.discard(tenant="other") == 0
        assert jobs.discard(tenant="acme") == 3

    def test_a_job_that_runs_is_neither_put_back_nor_deleted(self, jobs: Jobs, store: Store) -> None:
        id = jobs.enqueue("bury")
        store.claim(ClaimRequest("w", uuid4()))
        for refused in (jobs.retry, jobs.discard):
            with pytest.raises(JobRunning):
                refused(id)
        assert jobs.cancel(id) == 1
        assert found(jobs, id).cancel_at is not None

    def test_all_jobs_are_never_meant_by_saying_nothing(self, jobs: Jobs) -> None:
        jobs.enqueue("bury")
        for refused in (jobs.retry, jobs.cancel, jobs.discard):
            with pytest.raises(InvalidOption):
                refused()
            with pytest.raises(InvalidOption):
                refused(limit=1)
        with pytest.raises(InvalidOption):
            jobs.retry(name="bury", delay="1h", at=datetime(2999, 1, 1, tzinfo=UTC))
        assert jobs.count(state="pending") == 1

    def test_a_paused_queue_waits(self, jobs: Jobs, store: Store) -> None:
        jobs.enqueue("bury")
        jobs.pause_queue("default")
        assert store.paused() == ["default"]
        assert Worker(jobs).run(once=True).claimed == 0
        jobs.resume_queue("default")
        assert Worker(jobs).run(once=True).claimed == 1

    def test_a_name_can_be_forgotten(self, jobs: Jobs, store: Store) -> None:
        jobs.enqueue("bury")
        assert jobs.forget("bury")
        assert not jobs.forget("bury")
        assert "bury" not in {each.name for each in store.definitions()}
        assert jobs.count(name="bury") == 1
