"""schedule.sql: moments that fire once, however many workers watch the clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg import DatabaseError

from payloads import BROKEN, VERBATIM
from pyjobs.errors import BadName, InvalidArguments, InvalidOption, InvalidSchedule, UnknownJob
from pyjobs.records import ScheduleRecord
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import MINUTE, claim_one, define, each, found, iso, perform, refused

EVERY_MINUTE: dict[str, Any] = {"job": "work", "every_ms": MINUTE}


def put(store: Store, name: str = "tidy", *, in_seconds: float = 60, **options: Any) -> datetime:
    """A schedule of that name; the moment it fires next."""
    define(store)
    moment = store.now() + timedelta(seconds=in_seconds)
    store.put_schedule(name, EVERY_MINUTE | options, moment)
    return moment


def schedule(store: Store, name: str = "tidy") -> ScheduleRecord:
    [record] = [record for record in store.schedules() if record.name == name]
    return record


def tick(store: Store, expected: datetime, *, name: str = "tidy", next_in: float = 60) -> UUID | None:
    return store.tick_schedule(name, expected, store.now() + timedelta(seconds=next_in))


class TestPutting:
    def test_it_is_kept(self, store: Store) -> None:
        moment = put(store, source="app")

        assert schedule(store) == ScheduleRecord(
            name="tidy",
            job="work",
            cron=None,
            every_ms=MINUTE,
            timezone="UTC",
            source="app",
            enabled=True,
            next_run_at=moment,
            last_run_at=None,
            last_job_id=None,
        )

    def test_a_cron_expression_and_its_timezone_too(self, store: Store) -> None:
        put(store, every_ms=None, cron="0 3 * * *", timezone="Europe/Paris")
        record = schedule(store)

        assert (record.cron, record.every_ms, record.timezone) == ("0 3 * * *", None, "Europe/Paris")

    @pytest.mark.parametrize(
        "timing", [{"every_ms": 5 * MINUTE}, {"every_ms": None, "cron": "* * * * *"}, {"timezone": "Europe/Paris"}]
    )
    def test_changing_the_timing_moves_it_without_firing(self, store: Store, timing: dict[str, Any]) -> None:
        put(store)
        moment = put(store, in_seconds=600, **timing)

        assert schedule(store).next_run_at == moment
        assert store.count() == 0

    @pytest.mark.parametrize(
        "change", [{}, {"args": '{"n": 2}'}, {"options": {"priority": 3}}, {"source": "other"}, {"job": "other"}]
    )
    def test_changing_anything_else_leaves_the_moment(self, store: Store, change: dict[str, Any]) -> None:
        define(store, "other")
        moment = put(store)
        put(store, in_seconds=600, **change)

        assert schedule(store).next_run_at == moment

    def test_putting_it_again_keeps_what_fired_last(self, store: Store, clock: TestClock) -> None:
        moment = put(store)
        clock.advance(60)
        fired = tick(store, moment)
        put(store, in_seconds=600)

        assert (schedule(store).last_run_at, schedule(store).last_job_id) == (moment, fired)

    @each(
        ("options", "error", "named"),
        [
            ({"jbo": "work"}, InvalidOption, "jbo"),
            ({"job": None}, InvalidOption, "job"),
            ({"job": 5}, InvalidOption, "job"),
            ({"job": "wrok"}, UnknownJob, "wrok"),
            ({"every_ms": 0}, (InvalidOption, InvalidSchedule), "every_ms"),
            ({"every_ms": -1}, (InvalidOption, InvalidSchedule), "every_ms"),
            ({"every_ms": "1m"}, (InvalidOption, InvalidSchedule), "every_ms"),
            ({"every_ms": None}, InvalidSchedule, "cron"),
            ({"cron": "* * * * *"}, InvalidSchedule, "cron"),
            ({"every_ms": None, "cron": 5}, (InvalidOption, InvalidSchedule), "cron"),
            ({"every_ms": None, "cron": ""}, (InvalidOption, InvalidSchedule), "cron"),
            ({"timezone": 5}, InvalidOption, "timezone"),
            ({"enabled": "yes"}, InvalidOption, "enabled"),
            ({"source": 5}, InvalidOption, "source"),
            ({"options": 5}, InvalidOption, "options"),
            ({"options": {"prioritty": 5}}, InvalidOption, "prioritty"),
            ({"options": {"priority": "high"}}, InvalidOption, "priority"),
            ({"options": {"delay_ms": 5}}, InvalidOption, "delay_ms"),
            ({"options": {"unique_key": "k"}}, InvalidOption, "unique_key"),
            ({"options": {"batch_id": "b"}}, InvalidOption, "batch_id"),
        ],
    )
    def test_an_option_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
        self, store: Store, options: dict[str, Any], error: Any, named: str
    ) -> None:
        with refused(store, error, named):
            put(store, **options)

        assert store.schedules() == []

    @each("name", ["", "x" * 191])
    def test_a_name_is_neither_empty_nor_over_190_characters(self, store: Store, name: str) -> None:
        with refused(store, BadName):
            put(store, name)

    def test_args_that_are_too_large_are_refused(self, store: Store) -> None:
        store.set("max_args_bytes", 20)

        with refused(store, InvalidArguments, "20"):
            put(store, args='"' + "x" * 20 + '"')


class TestPruning:
    def test_a_source_keeps_only_what_it_declares(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            put(store, name, source="app")
        put(store, "theirs", source="other")
        put(store, "nobody's")

        assert store.prune_schedules("app", ["a"]) == 2
        assert sorted(record.name for record in store.schedules()) == ["a", "nobody's", "theirs"]
        assert store.prune_schedules("app", ["a"]) == 0

    def test_a_source_that_declares_none_keeps_none(self, store: Store) -> None:
        put(store, source="app")

        assert store.prune_schedules("app", []) == 1
        assert store.schedules() == []


class TestTicking:
    def test_a_moment_that_has_come_fires_and_moves_on(self, store: Store, clock: TestClock) -> None:
        moment = put(store, args='{"n": 1}', options={"queue": "late", "priority": 4, "meta": {"trace": "t"}})
        clock.advance(61)
        following = clock.now() + timedelta(seconds=59)
        id = store.tick_schedule("tidy", moment, following)
        record = schedule(store)

        assert (record.next_run_at, record.last_run_at, record.last_job_id) == (following, moment, id)
        job = claim_one(store)
        assert (job.id, job.name, job.queue, job.priority) == (id, "work", "late", 4)

    def test_twice_fires_once(self, store: Store, clock: TestClock) -> None:
        moment = put(store)
        clock.advance(60)

        assert tick(store, moment) is not None
        assert tick(store, moment) is None
        assert store.count() == 1

    def test_a_moment_to_come_does_not_fire(self, store: Store, clock: TestClock) -> None:
        moment = put(store)
        clock.advance(59.999)
        assert tick(store, moment) is None

        clock.advance(0.001)
        assert tick(store, moment) is not None

    def test_another_moment_than_the_one_that_stands_does_not_fire(self, store: Store, clock: TestClock) -> None:
        moment = put(store)
        clock.advance(120)

        assert tick(store, moment + timedelta(milliseconds=1)) is None
        assert tick(store, moment - timedelta(seconds=60)) is None
        assert schedule(store).next_run_at == moment

    def test_missed_moments_do_not_pile_up(self, store: Store, clock: TestClock) -> None:
        moment = put(store)
        clock.advance(86_400)
        assert tick(store, moment) is not None

        assert tick(store, schedule(store).next_run_at) is None
        assert store.count() == 1

    @pytest.mark.parametrize("next_in", [0, -1, -86_400])
    def test_the_next_moment_is_to_come(self, store: Store, clock: TestClock, next_in: float) -> None:
        moment = put(store)
        clock.advance(60)

        with refused(store, InvalidSchedule, "next"):
            tick(store, moment, next_in=next_in)

        assert schedule(store).next_run_at == moment

    def test_one_that_is_not_enabled_does_not_fire(self, store: Store, clock: TestClock) -> None:
        moment = put(store, enabled=False)
        clock.advance(60)

        assert tick(store, moment) is None
        assert schedule(store).enabled is False

    def test_an_unknown_one_does_not_fire(self, store: Store) -> None:
        assert tick(store, store.now()) is None

    def test_a_moment_stays_fired_while_its_job_is_there(self, store: Store, clock: TestClock) -> None:
        """Putting the schedule back to a moment that has fired does not fire it twice."""
        moment = put(store)
        clock.advance(60)
        fired = tick(store, moment)
        perform(store)
        store.put_schedule("tidy", EVERY_MINUTE | {"every_ms": 2 * MINUTE}, moment)

        assert tick(store, moment) in (None, fired)
        assert store.count() == 1

    def test_a_schedule_of_the_longest_name_fires(self, store: Store, clock: TestClock) -> None:
        name = "x" * 190
        moment = put(store, name)
        clock.advance(60)

        assert tick(store, moment, name=name) is not None

    def test_a_forgotten_job_is_refused_and_the_moment_stands(self, store: Store, clock: TestClock) -> None:
        moment = put(store)
        store.forget("work")
        clock.advance(60)

        with refused(store, UnknownJob, "work"):
            tick(store, moment)

        assert schedule(store).next_run_at == moment

    def test_options_of_an_enqueue_go_along(self, store: Store, clock: TestClock) -> None:
        moment = put(store, options={"max_attempts": 2, "timeout_ms": 70, "tenant": "acme"})
        clock.advance(60)
        id = tick(store, moment)
        assert id is not None
        record = found(store, id)

        assert (record.max_attempts, record.timeout_ms, record.tenant) == (2, 70, "acme")
        assert record.run_at == clock.now()

    @each("args", VERBATIM)
    def test_args_are_kept_verbatim(self, store: Store, clock: TestClock, args: str) -> None:
        moment = put(store, args=args)
        clock.advance(60)
        tick(store, moment)

        assert claim_one(store).args == args

    @each("args", BROKEN)
    def test_broken_args_are_refused(self, store: Store, args: str) -> None:
        with refused(store, InvalidArguments):
            put(store, args=args)


def test_moments_in_the_past_are_due_at_once(store: Store) -> None:
    """A schedule put with a moment gone by fires at the first tick: it was missed, not lost."""
    moment = put(store, in_seconds=-3_600)

    assert tick(store, moment) is not None
    assert iso(schedule(store).last_run_at or store.now()) == iso(moment)


@pytest.mark.databases("postgresql")
def test_a_moment_that_no_client_can_read_is_refused(store: Store, sql: Any) -> None:
    """One of the year 20000 would keep every worker from reading any schedule, and so from sweeping."""
    put(store, in_seconds=-60)
    options = '{"job": "work", "every_ms": 60000}'

    for moment in ("20000-01-01 00:00+00", "infinity"):
        with pytest.raises(DatabaseError, match="no next moment"):
            sql("SELECT jobs_put_schedule('late', ?, ?::timestamptz)", options, moment)
        with pytest.raises(DatabaseError, match="not after now"):
            sql("SELECT jobs_tick_schedule(name, next_run_at, ?::timestamptz) FROM jobs_schedules", moment)

    assert [record.name for record in store.schedules()] == ["tidy"]
