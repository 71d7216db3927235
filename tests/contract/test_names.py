"""Names, queues, keys, tenants and the like are compared exactly, in every database: a space at the end, or in front,
makes another one of them. (MySQL and MariaDB pad with spaces what they compare, unless a column is told not to.)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyjobs.errors import InvalidOption, OtherTenant, UnknownJob
from pyjobs.records import NewJob
from pyjobs.store.base import Store
from steps import MINUTE, call, claim, define, each, enqueue, enqueue_all, found, perform, refused, settle, state

SIBLINGS = ("a", "a ", " a", "a  ")


def each_sibling() -> Any:
    return each("sibling", {repr(name): name for name in SIBLINGS[1:]})


class TestJobs:
    @each_sibling()
    def test_a_sibling_is_not_defined(self, store: Store, sibling: str) -> None:
        define(store, "a")
        with refused(store, UnknownJob, sibling):
            store.enqueue(sibling, "{}")
        with refused(store, UnknownJob, sibling):
            store.enqueue_many([NewJob("a"), NewJob(sibling)])
        with refused(store, UnknownJob, sibling):
            store.open_batch({"callback": {"name": sibling}})
        assert not store.forget(sibling)

    def test_each_has_its_own_definition(self, store: Store) -> None:
        for limit, name in enumerate(SIBLINGS, start=1):
            define(store, name, queue=name, concurrency={"limit": limit})
        assert {each.name: (each.queue, each.concurrency_limit) for each in store.definitions()} == {
            name: (name, limit) for limit, name in enumerate(SIBLINGS, start=1)
        }

    def test_each_is_claimed_within_its_own_limit(self, store: Store) -> None:
        for limit, name in enumerate(SIBLINGS, start=1):
            define(store, name, concurrency={"limit": limit})
            enqueue_all(store, 6, name)
        for limit, name in enumerate(SIBLINGS, start=1):
            jobs = claim(store, 6, names=[name])
            assert [job.name for job in jobs] == [name] * limit
            for job in jobs:
                settle(store, job)

    def test_unlimited_ones_are_told_apart_by_a_claim(self, store: Store) -> None:
        for name in SIBLINGS:
            define(store, name)
            enqueue(store, name)
        for name in SIBLINGS:
            assert [job.name for job in claim(store, 6, names=[name])] == [name]

    def test_a_group_is_another_one(self, store: Store) -> None:
        for limit, group in enumerate(SIBLINGS, start=1):
            define(store, f"in {group!r}", concurrency={"limit": limit, "group": group})
        assert {row.group: row.slots for row in store.limits()} == dict(zip(SIBLINGS, range(1, 5), strict=True))

    def test_values_of_a_key_are_told_apart(self, store: Store) -> None:
        define(store, "a", concurrency={"limit": 1, "key": "of"})
        for value in SIBLINGS:
            enqueue(store, "a", f'{{"of": "{value}"}}')
        assert len(claim(store, 6)) == len(SIBLINGS)


class TestQueues:
    @each_sibling()
    def test_a_pause_is_for_one(self, store: Store, sibling: str) -> None:
        define(store)
        store.pause_queue("a")
        id = enqueue(store, queue=sibling)
        enqueue(store, queue="a")

        assert [job.id for job in claim(store, 5)] == [id]
        store.resume_queue(sibling)
        assert store.paused() == ["a"]
        assert {row.queue: row.paused for row in store.status() if row.queue in ("a", sibling)} == {
            "a": True,
            sibling: False,
        }
        store.discard({"queue": "a"})

    def test_each_can_be_paused(self, store: Store) -> None:
        for queue in SIBLINGS:
            store.pause_queue(queue)
        assert sorted(store.paused()) == sorted(SIBLINGS)

    @each_sibling()
    def test_a_claim_takes_from_those_it_names(self, store: Store, sibling: str) -> None:
        define(store)
        enqueue(store, queue="a")
        assert claim(store, 5, queues=[sibling]) == []
        store.discard({"queue": "a"})


class TestFilters:
    @each_sibling()
    def test_they_match_exactly(self, store: Store, sibling: str) -> None:
        define(store, "a")
        id = enqueue(store, "a", queue="a", tenant="a")
        for filter in ({"queue": sibling}, {"name": sibling}, {"tenant": sibling}):
            assert store.cancel(filter) == store.discard(filter) == store.count(filter) == 0
            assert store.jobs(filter) == []
        assert state(store, id) == "pending"
        store.discard({"id": str(id)})


class TestTenantsAndKeys:
    def test_a_sibling_of_the_tenant_in_scope_is_another(self, store: Store, database: Any) -> None:
        scope = {"postgresql": "SET pyjobs.tenant = 'a'", "mysql": "SET @pyjobs_tenant = 'a'"}
        if database.dialect not in scope:  # where the scope is the driver's: tests/unit/test_tenant.py
            return
        define(store)
        connection = database.connect()
        connection.execute(scope[database.dialect])
        joined = store.join(connection)
        for sibling in SIBLINGS[1:]:
            with refused(store, OtherTenant, sibling):
                joined.enqueue("work", "{}", {"tenant": sibling})
            with refused(store, OtherTenant, sibling):
                joined.enqueue_many([NewJob("work", options={"tenant": sibling})])
            with refused(store, OtherTenant, sibling):
                joined.open_batch({"tenant": sibling})
        connection.close()

    def test_what_is_given_is_kept(self, store: Store) -> None:
        define(store)
        for name in SIBLINGS:
            job = found(store, enqueue(store, queue=name, tenant=name, unique_key=name))
            assert (job.queue, job.tenant, job.unique_key) == (name, name, name)
            batch = store.batch(store.open_batch({"name": name, "tenant": name}))
            assert batch
            assert (batch.name, batch.tenant) == (name, name)

    def test_each_key_is_held_by_its_own_job(self, store: Store) -> None:
        define(store)
        answers = store.enqueue_many([NewJob("work", options={"unique_key": key}) for key in SIBLINGS * 2])
        assert [answer.inserted for answer in answers] == [True] * len(SIBLINGS) + [False] * len(SIBLINGS)
        assert len({answer.id for answer in answers}) == len(SIBLINGS)
        done = perform(store)
        [key] = [key for key in SIBLINGS if enqueue(store, unique_key=key) not in {answer.id for answer in answers}]
        assert found(store, done).unique_key == key


class TestSchedulesAndWorkers:
    def test_schedules_and_their_sources(self, store: Store) -> None:
        define(store)
        moment = store.now() + timedelta(minutes=1)
        for name in SIBLINGS:
            store.put_schedule(name, {"job": "work", "every_ms": MINUTE, "source": name}, moment)
        assert store.prune_schedules("a", ["a "]) == 1
        assert store.prune_schedules("a ", ["a "]) == 0
        assert sorted(each.name for each in store.schedules()) == sorted(SIBLINGS[1:])
        assert store.tick_schedule("a", moment, moment + timedelta(minutes=1)) is None

    @each_sibling()
    def test_a_schedule_of_a_sibling_of_a_job(self, store: Store, sibling: str) -> None:
        define(store, "a")
        with refused(store, UnknownJob, sibling):
            store.put_schedule("s", {"job": sibling, "every_ms": MINUTE}, store.now())

    def test_workers_and_what_they_perform(self, store: Store) -> None:
        for name in SIBLINGS:
            define(store, name)
            enqueue(store, name)
        for name in SIBLINGS[:2]:
            store.heartbeat(name, [], info={"names": [name]})
        assert [each.id for each in store.workers()] == ["a", "a "]
        assert sorted(each.name for each in store.orphans()) == sorted(SIBLINGS[2:])
        store.leave("a ")
        assert [each.id for each in store.workers()] == ["a"]


class TestWords:
    """What must be one of a few words is not taken for one of them with a space behind it."""

    def test_of_options_filters_and_settings(self, store: Store, sql: Any) -> None:
        define(store)
        enqueue(store)
        [job] = claim(store)
        with refused(store, InvalidOption):
            enqueue(store, unique_key="k", unique_for="row ")
        with refused(store, InvalidOption):
            store.enqueue_many([NewJob("work", options={"unique_key": "k", "unique_for": "row "})])
        with refused(store, InvalidOption):
            store.cancel({"state": "pending "})
        with refused(store, InvalidOption):
            store.retry({"dead_reason": "lost "})
        with refused(store, InvalidOption):
            store.set("notify ", "true")
        with refused(store, InvalidOption):
            store.settle(job.id, job.token, "done ", {})  # type: ignore[arg-type]
        with refused(store, InvalidOption):
            store.settle(job.id, job.token, "failed", {"kind": "error "})
        with refused(store, InvalidOption):
            store.cancel({"queue ": "default"})
        call(sql, "jobs_settle", str(job.id), str(job.token), "done", "{}")
