"""enqueue.sql: what is accepted, what is refused, and what a repeat answers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pymysql
import pytest

from payloads import BROKEN, VERBATIM
from pyjobs.errors import (
    FROM_CONTRACT,
    BadName,
    InvalidArguments,
    InvalidOption,
    OtherTenant,
    PyjobsError,
    UnknownBatch,
    UnknownJob,
)
from pyjobs.records import Enqueued, NewJob
from pyjobs.store import open_store
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from steps import (
    DAY,
    HOUR,
    SECOND,
    after,
    call,
    claim,
    claim_one,
    define,
    each,
    enqueue,
    enqueue_all,
    found,
    iso,
    perform,
    refused,
    settle,
    state,
)

DATABASE_ERRORS = (sqlite3.Error, psycopg.Error, pymysql.Error)


def ways(store: Store, name: str, args: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The two ways in: a job by itself, and one among others."""
    return (
        lambda: store.enqueue(name, args, options),
        lambda: store.enqueue_many([NewJob("work"), NewJob(name, args, options), NewJob("work")]),
    )


class TestWhatAJobIs:
    def test_it_has_what_its_definition_says(self, store: Store) -> None:
        define(store, queue="mailers", priority=7, max_attempts=3, timeout_ms=9_000)
        now = store.now()
        record = found(store, enqueue(store))

        assert (record.name, record.queue, record.priority) == ("work", "mailers", 7)
        assert (record.max_attempts, record.timeout_ms, record.attempts) == (3, 9_000, 0)
        assert record.state == "pending"
        assert now <= record.enqueued_at == record.run_at <= store.now()
        assert (record.tenant, record.batch_id, record.unique_key, record.bucket) == (None, None, None, None)
        assert (record.worker, record.lease_until, record.finished_at, record.started_at) == (None, None, None, None)

    def test_its_options_go_before_its_definition(self, store: Store) -> None:
        define(store, queue="mailers", priority=7, max_attempts=3, timeout_ms=9_000)
        id = enqueue(store, queue="other", priority=-7, max_attempts=1, timeout_ms=5, tenant="acme", unique_key="k")
        record = found(store, id)

        assert (record.queue, record.priority, record.max_attempts, record.timeout_ms) == ("other", -7, 1, 5)
        assert (record.tenant, record.unique_key) == ("acme", "k")

    def test_its_args_are_an_empty_object_unless_given(self, store: Store) -> None:
        define(store)

        assert found(store, enqueue(store)).args == "{}"

    def test_ids_are_ordered_in_time(self, store: Store) -> None:
        define(store)

        assert [UUID(str(enqueue(store))).version for _ in range(3)] == [7, 7, 7]

    def test_an_id_may_be_brought_along(self, store: Store) -> None:
        define(store)
        mine = uuid4()

        assert enqueue(store, id=mine) == mine
        assert claim_one(store).id == mine


class TestWhenItRuns:
    def test_a_delay_schedules_it(self, store: Store, clock: TestClock) -> None:
        define(store)
        now = clock.now()
        record = found(store, enqueue(store, delay_ms=300_000))

        assert (record.state, record.run_at) == ("scheduled", now + timedelta(minutes=5))

    def test_no_delay_is_now(self, store: Store) -> None:
        define(store)

        assert state(store, enqueue(store, delay_ms=0)) == "pending"

    def test_a_moment_to_come_schedules_it(self, store: Store) -> None:
        define(store)
        record = found(store, enqueue(store, run_at="2999-12-31T23:59:59.123+00:00"))

        assert record.state == "scheduled"
        assert record.run_at == datetime(2999, 12, 31, 23, 59, 59, 123_000, tzinfo=UTC)

    @each(
        "moment",
        [
            "2020-02-29T12:00:00Z",
            "2020-02-29T12:00:00+00:00",
            "2020-02-29T17:30:00+05:30",
            "2020-02-29T04:00:00.000-08:00",
            "2020-02-29T12:00Z",
            "2020-02-29T12:00-00:00",
            "2020-02-29T12:00:00.0Z",
            "2020-02-29T12:00:00.000000000Z",
            "2020-03-01T03:59+15:59",
            "2020-02-28T20:01-15:59",
        ],
    )
    def test_a_moment_gone_by_is_due_and_keeps_its_place(self, store: Store, moment: str) -> None:
        define(store)
        record = found(store, enqueue(store, run_at=moment))

        assert record.state == "pending"
        assert record.run_at == datetime(2020, 2, 29, 12, tzinfo=UTC)

    @each(
        "moment",
        [
            "2999-01-01T00:00:00",
            "2999-01-01",
            "2999-01-01 noon",
            "2999-13-01T00:00:00Z",
            "2999-02-30T00:00:00Z",
            "2999-01-01T25:00:00Z",
            "2999-01-01T24:00:00Z",
            "2999-01-01T09:60:00Z",
            "2999-01-01T09:00:60Z",
            "2999-02-29T09:00:00Z",
            "2999-00-01T09:00:00Z",
            "2999-01-00T09:00:00Z",
            "2999-01-01 09:00:00Z",
            "2999-01-01t09:00:00Z",
            "2999-01-01T09:00:00z",
            "2999-01-01T09Z",
            "2999-01-01T090000Z",
            "29990101T09:00:00Z",
            "2999-1-1T09:00:00Z",
            "2999-01-01T9:00:00Z",
            "2999-001T09:00:00Z",
            "2999-W01-1T09:00:00Z",
            "2999-01-01T09:00:00.Z",
            "2999-01-01T09:00:00,5Z",
            "2999-01-01T09:00:00.1234567890Z",
            "2999-01-01T09:00.5Z",
            "2999-01-01T09:00:00+1",
            "2999-01-01T09:00:00+01",
            "2999-01-01T09:00:00+0100",
            "2999-01-01T09:00:00+01:60",
            "2999-01-01T09:00:00+01:00:00",
            "2999-01-01T09:00:00+16:00",
            "2999-01-01T09:00:00-16:00",
            "2999-01-01T09:00:00 +01:00",
            "2999-01-01T09:00:00Z+01:00",
            "2999-01-01T09:00:00ZZ",
            "2999-01-01T09:00:00UTC",
            "2999-01-01T09:00:00 Europe/Berlin",
            " 2999-01-01T09:00:00Z",
            "2999-01-01T09:00:00Z ",
            "2999-01-01T09:00:00Z\n",
            "+2999-01-01T09:00:00Z",
            "-2999-01-01T09:00:00Z",
            "12999-01-01T09:00:00Z",
            "\u0662\u0669\u0669\u0669-01-01T09:00:00Z",
            "2999-01-01T09:00:00Z BC",
            "0000-06-01T00:00:00Z",
            "0001-01-01T23:59:59.999Z",
            "0001-01-02T00:00:00+00:01",
            "9999-12-30T00:00:00.001Z",
            "9999-12-30T00:00:00-00:01",
            "9999-12-31T00:00:00Z",
            "tomorrow",
            "now",
            "infinity",
            "",
            32_472_144_000,
            True,
        ],
    )
    def test_a_moment_without_an_offset_or_any_sense_is_refused(self, store: Store, moment: object) -> None:
        define(store)

        for way in ways(store, "work", "{}", {"run_at": moment}):
            with refused(store, InvalidOption, "run_at"):
                way()

    @each(
        ("moment", "read"),
        [
            ("0001-01-02T00:00Z", datetime(1, 1, 2, tzinfo=UTC)),
            ("0001-01-01T23:59:00-00:01", datetime(1, 1, 2, tzinfo=UTC)),
            ("0001-01-01T08:01:00-15:59", datetime(1, 1, 2, tzinfo=UTC)),
            ("9999-12-30T00:00:00Z", datetime(9999, 12, 30, tzinfo=UTC)),
            ("9999-12-30T15:59:00+15:59", datetime(9999, 12, 30, tzinfo=UTC)),
            ("9999-12-29T23:59:59.999Z", datetime(9999, 12, 29, 23, 59, 59, 999_000, tzinfo=UTC)),
        ],
    )
    def test_the_first_and_the_last_moment(self, store: Store, moment: str, read: datetime) -> None:
        define(store)

        assert found(store, enqueue(store, run_at=moment)).run_at == read

    @each("delay", [-1, 1.5, "5m", True, 10**30])
    def test_a_delay_that_is_not_a_number_of_milliseconds_is_refused(self, store: Store, delay: object) -> None:
        define(store)

        for way in ways(store, "work", "{}", {"delay_ms": delay}):
            with refused(store, InvalidOption, "delay_ms"):
                way()

    def test_a_moment_and_a_delay_together_are_refused(self, store: Store) -> None:
        define(store)

        for way in ways(store, "work", "{}", {"delay_ms": 1, "run_at": after(store, HOUR)}):
            with refused(store, InvalidOption, "delay_ms"):
                way()


class TestRefusals:
    def test_an_undefined_name_is_refused_and_the_defined_ones_are_told(self, store: Store) -> None:
        define(store)
        define(store, "wake")

        for way in ways(store, "wrok", "{}", {}):
            with refused(store, UnknownJob, "wrok", "work", "wake"):
                way()

    @each(
        ("options", "named"),
        [
            ({"prioritty": 1}, "prioritty"),
            ({"limit": 1}, "limit"),
            ({"concurrency": {"limit": 9}}, "concurrency"),
            ({"bucket": "other"}, "bucket"),
            ({"queue": 5}, "queue"),
            ({"priority": "high"}, "priority"),
            ({"priority": 40_000}, "priority"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"max_attempts": 1.5}, "max_attempts"),
            ({"timeout_ms": -5}, "timeout_ms"),
            ({"timeout_ms": "5s"}, "timeout_ms"),
            ({"unique_key": 5}, "unique_key"),
            ({"unique_key": "k", "unique_for": "always"}, "unique_for"),
            ({"unique_key": "k", "unique_for": 5}, "unique_for"),
            ({"tenant": 5}, "tenant"),
            ({"batch_id": "not-a-uuid"}, "batch_id"),
            ({"batch_id": 5}, "batch_id"),
            ({"meta": "text"}, "meta"),
            ({"meta": [1]}, "meta"),
            ({"meta": {"too": "x" * 16_384}}, "meta"),
        ],
    )
    def test_an_option_that_is_unknown_or_has_a_bad_value_is_refused_by_name(
        self, store: Store, options: dict[str, Any], named: str
    ) -> None:
        define(store)

        for way in ways(store, "work", "{}", options):
            with refused(store, InvalidOption, named):
                way()

    @pytest.mark.parametrize("option", ["queue", "tenant", "unique_key"])
    @each("value", ["", "x" * 191])
    def test_a_queue_tenant_or_key_is_neither_empty_nor_over_190_characters(
        self, store: Store, option: str, value: str
    ) -> None:
        define(store)

        for way in ways(store, "work", "{}", {option: value}):
            with refused(store, BadName, option):
                way()

    @each("value", ["x" * 190, "ä" * 190, "🐍" * 190])
    def test_190_characters_are_kept_whole(self, store: Store, value: str) -> None:
        define(store)
        record = found(store, enqueue(store, queue=value, tenant=value, unique_key=value))

        assert (record.queue, record.tenant, record.unique_key) == (value, value, value)

    def test_an_unknown_batch_is_refused(self, store: Store) -> None:
        define(store)
        nowhere = uuid4()

        for way in ways(store, "work", "{}", {"batch_id": str(nowhere)}):
            with refused(store, UnknownBatch, str(nowhere)):
                way()

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (NewJob("nobody"), UnknownJob),
            (NewJob("work", "{"), InvalidArguments),
            (NewJob("work", "{}", {"delay": 1}), InvalidOption),
            (NewJob("work", "{}", {"queue": ""}), BadName),
            (NewJob("work", "{}", {"batch_id": str(uuid4())}), UnknownBatch),
        ],
    )
    def test_of_many_all_go_in_or_none(self, store: Store, bad: NewJob, error: type[PyjobsError]) -> None:
        define(store)

        with refused(store, error):
            store.enqueue_many([*[NewJob("work", options={"unique_key": f"k{n}"}) for n in range(20)], bad])

        assert enqueue(store, unique_key="k0") == claim_one(store).id  # the key was not kept either

    @each("args", BROKEN)
    def test_args_that_are_not_json_are_refused(self, store: Store, args: str) -> None:
        define(store)

        for way in ways(store, "work", args, {}):
            with refused(store, InvalidArguments, "args"):
                way()

    def test_args_are_never_in_an_error(self, store: Store) -> None:
        define(store)

        for way in ways(store, "work", '{"password": "hunter2"', {}):
            with pytest.raises(InvalidArguments) as caught:
                way()
            assert "hunter2" not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"


class TestArgumentsAreKeptVerbatim:
    @each("args", VERBATIM)
    def test_by_itself(self, store: Store, args: str) -> None:
        define(store)
        id = enqueue(store, args=args)

        assert claim_one(store).args == args
        assert found(store, id).args == args

    def test_among_others(self, store: Store) -> None:
        define(store)
        payloads = list(VERBATIM.values())
        answers = store.enqueue_many([NewJob("work", args) for args in payloads])

        claimed = {job.id: job.args for job in claim(store, len(payloads))}

        assert [claimed[answer.id] for answer in answers] == payloads

    @each("text", ['{"trace": "\\u00e9\\ud83d\\udc0d"}', "{}", '{"a": {"b": [1, 2.50, null]}}'])
    def test_meta_comes_back_as_it_went_in(self, store: Store, text: str) -> None:
        define(store)
        meta = json.loads(text)
        enqueue(store, meta=meta)
        store.enqueue_many([NewJob("work", options={"meta": meta})])

        assert [json.loads(job.meta or "null") for job in claim(store, 2)] == [meta, meta]

    @pytest.mark.sql
    @each(
        "meta",
        [
            '{"k":"a\\u0000b"}',
            '{"k":"\\ud800"}',
            '{"k":1000000000000000000000000000000}',
            '{"k":[1e22,-0.0,1.50]}',
            '{"k":1,"k":2}',
            '{"":{"":""},"z":1,"a":2}',
            '{"k":"é\\u00e9🐍"}',
        ],
    )
    def test_meta_too(self, store: Store, sql: Any, meta: str) -> None:
        define(store)
        call(sql, "jobs_enqueue", "work", "{}", f'{{"meta": {meta}}}')

        assert claim_one(store).meta == meta

    def test_no_meta_is_none(self, store: Store) -> None:
        define(store)
        enqueue(store)

        assert claim_one(store).meta is None

    @pytest.mark.parametrize("key", ["k", "a.b"])
    @each("args", VERBATIM)
    def test_also_when_a_limit_looks_into_them(self, store: Store, args: str, key: str) -> None:
        define(store, concurrency={"limit": 1_000, "key": key})
        enqueue(store, args=args)

        assert claim_one(store).args == args


class TestTheSizeLimit:
    def test_half_a_megabyte_less_one_kilobyte_goes_in(self, store: Store) -> None:
        define(store)
        args = '"' + "x" * (511 * 1024) + '"'
        enqueue(store, args=args)
        store.enqueue_many([NewJob("work", args)])

        assert [job.args == args for job in claim(store, 2)] == [True, True]

    def test_it_is_half_a_megabyte_to_the_byte(self, store: Store) -> None:
        define(store)
        enqueue(store, args='"' + "x" * (524_288 - 2) + '"')

        for args in ('"' + "x" * (524_288 - 1) + '"', '{"far": "' + "x" * 800_000 + '"}'):
            for way in ways(store, "work", args, {}):
                with refused(store, InvalidArguments, "524288"):
                    way()

    def test_it_counts_bytes_not_characters(self, store: Store) -> None:
        define(store)
        store.set("max_args_bytes", 10)
        enqueue(store, args='"éééé"')

        with refused(store, InvalidArguments, "10"):
            enqueue(store, args='"ééééé"')

    def test_it_is_a_setting(self, store: Store) -> None:
        define(store)
        store.set("max_args_bytes", 20)
        with refused(store, InvalidArguments, "20"):
            enqueue(store, args='"' + "x" * 19 + '"')

        store.set("max_args_bytes", 2_000_000)
        args = '"' + "x" * 1_000_000 + '"'
        enqueue(store, args=args)
        assert claim_one(store).args == args


class TestMany:
    def test_answers_stand_in_the_order_of_the_jobs(self, store: Store) -> None:
        define(store)
        define(store, "other")
        mine = uuid4()
        answers = store.enqueue_many([NewJob("work", "1"), NewJob("other", "2"), NewJob("work", "3", id=mine)])

        assert [answer.inserted for answer in answers] == [True, True, True]
        assert [found(store, answer.id).args for answer in answers] == ["1", "2", "3"]
        assert answers[2].id == mine

    def test_each_has_its_own_options(self, store: Store) -> None:
        define(store)
        moment = "2999-01-01T00:00:00+00:00"
        soon, late, plain = store.enqueue_many(
            [
                NewJob("work", options={"queue": "a", "priority": -1, "unique_key": "k", "tenant": "acme"}),
                NewJob("work", options={"run_at": moment, "max_attempts": 1, "timeout_ms": 77, "meta": {"a": 1}}),
                NewJob("work"),
            ]
        )

        first, second, third = (found(store, job.id) for job in (soon, late, plain))
        assert (first.queue, first.priority, first.unique_key, first.tenant) == ("a", -1, "k", "acme")
        assert (second.state, second.max_attempts, second.timeout_ms) == ("scheduled", 1, 77)
        assert second.run_at == datetime(2999, 1, 1, tzinfo=UTC)
        assert (third.queue, third.priority, third.unique_key, third.tenant) == ("default", 0, None, None)

    def test_none_is_nothing(self, store: Store) -> None:
        assert store.enqueue_many([]) == []

    def test_ten_thousand_in_one_call(self, store: Store) -> None:
        define(store, concurrency={"limit": 1, "key": "k"})
        answers = store.enqueue_many([NewJob("work", f'{{"k": {number % 100}}}') for number in range(10_000)])

        assert len({answer.id for answer in answers}) == 10_000
        assert store.count({"state": "pending"}) == 10_000

    def test_ten_thousand_with_moments_and_meta_in_one_call(self, store: Store) -> None:
        define(store)
        metas = [{"b": number, "a": {"q": 'x"}{', "n": 1.5}} for number in range(10_000)]
        answers = store.enqueue_many(
            [
                NewJob("work", options={"run_at": f"2040-02-28T{number % 24:02}:00:00.25+05:30", "meta": meta})
                for number, meta in enumerate(metas)
            ]
        )

        some = [found(store, answers[number].id) for number in (0, 4_567, 9_999)]
        assert [job.run_at for job in some] == [
            datetime(2040, 2, 27, 18, 30, 0, 250_000, UTC),
            datetime(2040, 2, 28, 1, 30, 0, 250_000, UTC),
            datetime(2040, 2, 28, 9, 30, 0, 250_000, UTC),
        ]
        assert [json.loads(job.meta or "") for job in some] == [metas[number] for number in (0, 4_567, 9_999)]

    def test_one_of_ten_thousand_that_is_refused_is_named(self, store: Store) -> None:
        define(store)
        jobs = [NewJob("work", f'{{"k": {number}}}') for number in range(9_999)]
        with pytest.raises(InvalidOption, match="nonsense"):
            store.enqueue_many([*jobs, NewJob("work", options={"nonsense": 1})])

        assert store.count() == 0

    @each(
        ("document", "error"),
        {
            "a key twice": ('[{"name": "work", "name": "work"}]', InvalidOption),
            "a key that is unknown": ('[{"name": "work", "argz": "{}"}]', InvalidOption),
            "a key spelt otherwise": ('[{"name": "work", "\\u006fptions": {"prioritty": 1}}]', InvalidOption),
            "an escape that there is not": ('[{"name": "work", "args": "{\\x}"}]', InvalidArguments),
            "a control character": ('[{"name": "work", "args": "\t[]"}]', InvalidArguments),
            "args that only look like JSON": ('[{"name": "work", "args": "[1.]"}]', InvalidArguments),
            "no object": ('[{"name": "work"}, 5]', InvalidOption),
            "no name": ('[{"name": "work"}, {}]', PyjobsError),
            "another name": ('[{"name": "work"}, {"name": "wrok"}]', UnknownJob),
        },
    )
    def test_what_has_no_options_is_looked_at_as_closely(
        self, store: Store, sql: Any, document: str, error: type[PyjobsError]
    ) -> None:
        define(store)
        with pytest.raises(DATABASE_ERRORS) as told:
            call(sql, "jobs_enqueue_many", document)
        code = getattr(told.value, "sqlstate", None) or str(told.value)[:5]
        assert issubclass(FROM_CONTRACT[code], error)
        assert store.count() == 0

    def test_those_of_one_name_without_options(self, store: Store) -> None:
        """Most are that: with ids or without, and again when the reply was lost."""
        define(store, queue="mailers", priority=7, max_attempts=2, timeout_ms=9)
        jobs = [NewJob("work", args, id=uuid4() if n % 2 else None) for n, args in enumerate(VERBATIM.values())]
        answers = store.enqueue_many(jobs)
        assert [answer.inserted for answer in answers] == [True] * len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            assert answer.id == job.id or job.id is None
            there = found(store, answer.id)
            assert (there.args, there.queue, there.priority) == (job.args, "mailers", 7)
            assert (there.max_attempts, there.timeout_ms, there.state) == (2, 9, "pending")
        again = store.enqueue_many([NewJob("work", id=answer.id) for answer in answers] + [NewJob("work")])
        assert [answer.inserted for answer in again] == [False] * len(jobs) + [True]
        define(store, concurrency={"limit": 1})
        [limited] = store.enqueue_many([NewJob("work")])
        assert found(store, limited.id).bucket == "work"

    def test_long_args_among_others(self, store: Store) -> None:
        define(store)
        long = json.dumps({"k": ['a"b', {"d": 1.5}] * 8_000})
        answers = store.enqueue_many([NewJob("work", long), NewJob("work", long), NewJob("work", "[]")])

        assert [found(store, answer.id).args for answer in answers] == [long, long, "[]"]


class TestTheSameIdAgain:
    def test_answers_the_id_and_inserts_nothing(self, store: Store) -> None:
        define(store)
        mine = uuid4()
        enqueue(store, args="1", id=mine)

        assert enqueue(store, args="2", id=mine) == mine
        assert store.enqueue_many([NewJob("work", "3", id=mine)]) == [Enqueued(mine, inserted=False)]
        assert [job.args for job in claim(store, 10)] == ["1"]

    def test_whatever_has_become_of_the_job(self, store: Store) -> None:
        define(store)
        mine = enqueue(store, id=uuid4(), unique_key="k")
        perform(store)

        assert store.enqueue_many([NewJob("work", options={"unique_key": "k"}, id=mine)]) == [
            Enqueued(mine, inserted=False)
        ]
        assert state(store, mine) == "done"

    def test_within_one_call_the_first_counts(self, store: Store) -> None:
        define(store)
        mine = uuid4()

        assert store.enqueue_many([NewJob("work", "1", id=mine), NewJob("work", "2", id=mine)]) == [
            Enqueued(mine, inserted=True),
            Enqueued(mine, inserted=False),
        ]
        assert [job.args for job in claim(store, 10)] == ["1"]

    def test_the_id_is_looked_at_before_the_key(self, store: Store) -> None:
        define(store)
        holder = enqueue(store, unique_key="k")
        mine = enqueue(store, id=uuid4())

        assert store.enqueue_many([NewJob("work", options={"unique_key": "k"}, id=mine)]) == [
            Enqueued(mine, inserted=False)
        ]
        assert holder != mine

    def test_a_whole_call_can_be_sent_again(self, store: Store) -> None:
        define(store)
        jobs = [NewJob("work", options={"unique_key": f"k{n}"} if n % 2 else {}, id=uuid4()) for n in range(10)]
        first = store.enqueue_many(jobs)
        second = store.enqueue_many(jobs)

        assert [job.id for job in second] == [job.id for job in first] == [job.id for job in jobs]
        assert not any(job.inserted for job in second)
        assert store.count() == 10


class TestUniqueKeys:
    def test_a_key_that_is_held_answers_the_holder_and_inserts_nothing(self, store: Store) -> None:
        define(store)
        holder = enqueue(store, unique_key="k", args="1")

        assert enqueue(store, unique_key="k", args="2") == holder
        assert store.enqueue_many([NewJob("work", "3", {"unique_key": "k"}, uuid4())]) == [
            Enqueued(holder, inserted=False)
        ]
        assert [job.args for job in claim(store, 10)] == ["1"]

    @each("key", ["schedule:nightly:2031-01-01T00:00:00.000000Z", "schedule:", "batch:1"])
    def test_the_queues_own_keys_are_not_for_producers(self, store: Store, key: str) -> None:
        define(store)

        for way in ways(store, "work", "{}", {"unique_key": key}):
            with refused(store, InvalidOption, "unique_key", "schedule:"):
                way()

    @each("key", ["schedule", "schedules:a", "Schedule:a", "my schedule:a", "batches:1", " batch:1"])
    def test_a_key_that_only_looks_like_one_is_taken(self, store: Store, key: str) -> None:
        define(store)

        assert found(store, enqueue(store, unique_key=key)).unique_key == key

    def test_the_holder_may_stand_in_the_same_call(self, store: Store) -> None:
        define(store)
        first, other, again = store.enqueue_many(
            [NewJob("work", options={"unique_key": key}) for key in ("k", "other", "k")]
        )

        assert (first.inserted, other.inserted, again.inserted) == (True, True, False)
        assert again.id == first.id

    @pytest.mark.databases("postgresql")
    def test_a_key_let_go_while_the_call_waits_is_taken(self, store: Store, database: Any) -> None:
        define(store)
        enqueue(store, unique_key="k")
        holder = claim_one(store)
        batch_id = store.open_batch({})
        jobs = [NewJob("work", options={"unique_key": "k"}), NewJob("work", options={"batch_id": str(batch_id)})]

        with (
            database.connect() as elsewhere,
            ThreadPoolExecutor(1) as thread,
            closing(open_store(database.url)) as other,
            elsewhere.transaction(force_rollback=True),
        ):
            elsewhere.execute("SELECT id FROM jobs_seal_batch(%s)", [batch_id])
            answers = thread.submit(other.enqueue_many, jobs)
            while not elsewhere.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
                pass
            settle(store, holder)

        assert [answer.inserted for answer in answers.result()] == [True, True]
        assert store.count({"state": "pending"}) == 2

    def test_an_id_twice_in_a_call_goes_in_if_one_of_them_can(self, store: Store) -> None:
        define(store)
        holder = enqueue(store, unique_key="k")
        id = uuid4()

        answers = store.enqueue_many([NewJob("work", options={"unique_key": "k"}, id=id), NewJob("work", id=id)])

        assert answers == [Enqueued(holder, False), Enqueued(id, True)]

    def test_a_key_is_one_for_all_names_queues_and_tenants(self, store: Store) -> None:
        define(store)
        define(store, "other")
        holder = enqueue(store, unique_key="k", tenant="acme")

        assert enqueue(store, "other", unique_key="k", queue="elsewhere", tenant="zeta") == holder

    def test_keys_differ_by_case_and_by_spaces(self, store: Store) -> None:
        define(store)

        assert len({enqueue(store, unique_key=key) for key in ("k", "K", "k ", " k", "ķ")}) == 5

    def test_it_is_held_while_scheduled_pending_and_running(self, store: Store, clock: TestClock) -> None:
        define(store)
        holder = enqueue(store, unique_key="k", delay_ms=HOUR)
        assert enqueue(store, unique_key="k") == holder

        clock.advance(3_600)
        store.sweep()
        assert state(store, holder) == "pending"
        assert enqueue(store, unique_key="k") == holder

        running = claim_one(store)
        assert enqueue(store, unique_key="k") == holder

        settle(store, running, "failed")
        assert enqueue(store, unique_key="k") == holder

    @pytest.mark.parametrize(
        ("outcome", "detail"), [("done", {}), ("failed", {"permanent": True}), ("cancelled", {"message": "no"})]
    )
    def test_it_is_let_go_by_every_end(self, store: Store, outcome: Any, detail: dict[str, Any]) -> None:
        define(store)
        first = enqueue(store, unique_key="k")
        perform(store, outcome, **detail)

        second = enqueue(store, unique_key="k")

        assert second != first
        assert state(store, second) == "pending"

    def test_it_is_let_go_by_cancelling_and_discarding_waiting_work(self, store: Store) -> None:
        define(store)
        first = enqueue(store, unique_key="k")
        store.cancel({"id": str(first)})
        second = enqueue(store, unique_key="k")
        store.discard({"id": str(second)})
        third = enqueue(store, unique_key="k")

        assert len({first, second, third}) == 3

    def test_for_the_row_it_is_held_until_the_row_goes(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=HOUR)
        holder = enqueue(store, unique_key="k", unique_for="row")
        perform(store)
        assert enqueue(store, unique_key="k", unique_for="row") == holder
        assert enqueue(store, unique_key="k") == holder

        clock.advance(3_601)
        store.sweep()
        assert enqueue(store, unique_key="k") != holder

    def test_for_the_row_it_is_let_go_by_a_discard(self, store: Store) -> None:
        define(store)
        holder = enqueue(store, unique_key="k", unique_for="row")
        perform(store)
        store.discard({"id": str(holder)})

        assert enqueue(store, unique_key="k") != holder

    def test_for_the_row_it_is_let_go_at_once_where_done_rows_are_not_kept(self, store: Store) -> None:
        define(store, keep_done_ms=0)
        holder = enqueue(store, unique_key="k", unique_for="row")
        perform(store)

        assert enqueue(store, unique_key="k") != holder

    def test_for_ever_it_outlives_the_row(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=0)
        holder = enqueue(store, unique_key="k", unique_for="ever")
        perform(store)
        assert state(store, holder) is None

        clock.advance(30 * 86_400)
        store.sweep()
        assert store.enqueue_many([NewJob("work", options={"unique_key": "k"})]) == [Enqueued(holder, inserted=False)]
        assert store.count() == 0

    def test_for_ever_is_as_long_as_the_setting_says(self, store: Store, clock: TestClock) -> None:
        define(store, keep_done_ms=0)
        store.set("keep_keys_ms", DAY)
        holder = enqueue(store, unique_key="k", unique_for="ever")
        perform(store)

        clock.advance(86_400 - 1)
        store.sweep()
        assert enqueue(store, unique_key="k") == holder

        clock.advance(2)
        assert store.sweep().pruned == 1
        assert enqueue(store, unique_key="k") != holder

    def test_a_job_still_there_keeps_its_key_past_the_setting(self, store: Store, clock: TestClock) -> None:
        define(store)
        store.set("keep_keys_ms", SECOND)
        holder = enqueue(store, unique_key="k", unique_for="ever", delay_ms=DAY)

        clock.advance(3_600)
        store.sweep()

        assert enqueue(store, unique_key="k") == holder

    def test_unique_for_needs_a_key(self, store: Store) -> None:
        define(store)

        with refused(store, InvalidOption, "unique_for"):
            enqueue(store, unique_for="row")


class TestBuckets:
    @each(
        ("args", "bucket"),
        [
            ('{"account": {"id": "acme"}}', "work:acme"),
            ('{"account": {"id": 17}}', "work:17"),
            ('{"account": {"id": 1e22}}', "work:1e22"),
            ('{"account": {"id": 10000000000000000000000000000000}}', "work:10000000000000000000000000000000"),
            ('{"account": {"id": 1.50}}', "work:1.50"),
            ('{"account": {"id": -0.0}}', "work:-0.0"),
            ('{"account": {"id": true}}', "work:true"),
            ('{"account": {"id": false}}', "work:false"),
            ('{"account": {"id": null}}', "work:null"),
            ('{"account": {"id": {"x": 1}}}', "work:null"),
            ('{"account": {"id": ["acme"]}}', "work:null"),
            ('{"account": {"id": ""}}', "work:"),
            ('{"account": {"id": "a:b"}}', "work:a:b"),
            ('{"account": {"id": "\\u00e9\\ud83d\\udc0d"}}', "work:é🐍"),
            ('{"account": {"id": "a\\"b\\\\c\\/d\\te"}}', 'work:a"b\\c/d\te'),
            ('{"account": {"id": "first"}, "account": {"id": "last"}}', "work:last"),
            ('{"account": {"id": "first", "id": "last"}}', "work:last"),
            ('{"account": {"id": "acme"}, "x": "\\u0000", "x": "\\ud800", "": 1e999}', "work:acme"),
            ('{"\\u0061ccount": {"\\u0069d": "acme"}}', "work:acme"),
            ('{"account": {}}', "work:null"),
            ('{"account": "acme"}', "work:null"),
            ('{"account": [{"id": "acme"}]}', "work:null"),
            ('{"account.id": "acme"}', "work:null"),
            ("{}", "work:null"),
            ('"account"', "work:null"),
            ("[]", "work:null"),
            ("null", "work:null"),
        ],
    )
    def test_the_value_at_the_path_says_the_bucket(self, store: Store, args: str, bucket: str) -> None:
        define(store, concurrency={"limit": 1, "key": "account.id"})
        one = enqueue(store, args=args)
        many = store.enqueue_many([NewJob("work", args)])[0].id

        assert (found(store, one).bucket, found(store, many).bucket) == (bucket, bucket)

    def test_a_key_is_of_object_keys_and_looks_into_no_list(self, store: Store) -> None:
        define(store, concurrency={"limit": 1, "key": "list.0"})

        assert found(store, enqueue(store, args='{"list": ["acme"]}')).bucket == "work:null"
        assert found(store, enqueue(store, args='{"list": {"0": "acme"}}')).bucket == "work:acme"

    @each("key", ["it's", "a b", "$", "[0]", 'say "hi"', "é", "a-b", "#", "*", "0"])
    def test_a_key_may_hold_any_characters(self, store: Store, key: str) -> None:
        define(store, concurrency={"limit": 1, "key": key})

        assert found(store, enqueue(store, args=json.dumps({key: "acme"}))).bucket == "work:acme"

    def test_a_long_value_is_cut_and_shares_a_bucket(self, store: Store) -> None:
        define(store, concurrency={"limit": 1, "key": "k"})
        ids = [enqueue(store, args=f'{{"k": "{"x" * 1_000}{number}"}}') for number in range(3)]

        assert len({found(store, id).bucket for id in ids}) == 1
        assert len(claim(store, 10)) == 1

    @pytest.mark.parametrize(
        "args", ['{"k": "\\u0000"}', '{"k": "a\\u0000b"}', '{"k": "\\ud800"}', '{"\\u0000": 1, "k": "\\udc00x"}']
    )
    def test_a_value_no_text_column_can_hold_is_bounded_all_the_same(self, store: Store, args: str) -> None:
        define(store, concurrency={"limit": 1, "key": "k"})
        enqueue_all(store, 3, args=args)

        assert [job.args for job in claim(store, 10)] == [args]

    def test_no_key_is_one_bucket(self, store: Store) -> None:
        define(store, concurrency={"limit": 1})

        assert found(store, enqueue(store, args='{"k": 1}')).bucket == "work"


class TestTheCallersTransaction:
    """An enqueue joins the transaction it is called in: it is committed or rolled back with the caller's own writes."""

    @pytest.fixture
    def connection(self, store: Store, database: Any) -> Iterator[Any]:
        define(store)
        define(store, "after")
        connection = database.connect()
        connection.execute("CREATE TABLE orders (id integer)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO orders VALUES (1)")
        yield connection
        connection.close()

    def produce(self, store: Store, connection: Any) -> list[UUID]:
        """Jobs by each of the producer's routines."""
        joined = store.join(connection)
        batch_id = joined.open_batch({"callback": {"name": "after"}})
        ids = [
            joined.enqueue("work", "1", {"unique_key": "k", "batch_id": str(batch_id)}),
            *(job.id for job in joined.enqueue_many([NewJob("work", "2"), NewJob("work", "3")])),
        ]
        joined.seal_batch(batch_id)
        joined.close()
        return ids

    def test_is_committed_with_it(self, store: Store, connection: Any) -> None:
        ids = self.produce(store, connection)
        connection.execute("COMMIT")

        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]
        assert [job.id for job in claim(store, 10)] == sorted(ids)
        assert len(store.batches()) == 1

    def test_is_rolled_back_with_it(self, store: Store, connection: Any) -> None:
        self.produce(store, connection)
        connection.execute("ROLLBACK")

        assert connection.execute("SELECT id FROM orders").fetchall() == []
        assert (claim(store, 10), store.count(), store.batches()) == ([], 0, [])
        assert store.enqueue_many([NewJob("work", options={"unique_key": "k"})])[0].inserted

    def test_cannot_be_seen_before_it_is_committed(self, store: Store, database: Any, connection: Any) -> None:
        ids = self.produce(store, connection)
        assert store.count() == 0
        if database.dialect != "sqlite":  # where a claim would wait for the writer
            assert claim(store, 10) == []

        connection.execute("COMMIT")
        assert [job.id for job in claim(store, 10)] == sorted(ids)

    def test_reads_its_own_jobs(self, store: Store, connection: Any) -> None:
        ids = self.produce(store, connection)
        joined = store.join(connection)

        assert joined.count() == 3
        assert joined.job(ids[0]) is not None
        connection.execute("ROLLBACK")


SCOPE = {
    "postgresql": ("SET pyjobs.tenant = 'acme'", "RESET pyjobs.tenant"),
    "mysql": ("SET @pyjobs_tenant = 'acme'", "SET @pyjobs_tenant = NULL"),
}


class TestTenantsInScope:
    """A session that has a tenant, where there are sessions, stamps it on what it enqueues, and takes no other."""

    pytestmark = pytest.mark.databases("postgresql", "mysql")

    @pytest.fixture
    def scoped(self, store: Store, database: Any) -> Iterator[Store]:
        define(store)
        connection = database.connect()
        connection.execute(SCOPE[database.dialect][0])
        yield store.join(connection)
        connection.close()

    def test_it_is_stamped(self, scoped: Store) -> None:
        one = enqueue(scoped)
        many = scoped.enqueue_many([NewJob("work"), NewJob("work", options={"tenant": "acme"})])
        batch = scoped.batch(scoped.open_batch({}))

        assert {found(scoped, id).tenant for id in (one, *(job.id for job in many))} == {"acme"}
        assert batch is not None
        assert batch.tenant == "acme"

    def test_another_is_refused(self, scoped: Store) -> None:
        for way in ways(scoped, "work", "{}", {"tenant": "zeta"}):
            with refused(scoped, OtherTenant, "zeta"):
                way()
        with refused(scoped, OtherTenant, "zeta"):
            scoped.open_batch({"tenant": "zeta"})

    def test_none_is_none_when_it_is_said(self, scoped: Store) -> None:
        assert found(scoped, enqueue(scoped, tenant=None)).tenant is None

    @pytest.mark.databases("mysql")
    @each("given", ["X'61FF'", "CAST(X'E9' AS BINARY)", "X'6100'", "REPEAT('x', 191)"])
    def test_what_is_no_text_is_refused_not_taken_for_none(self, store: Store, database: Any, given: str) -> None:
        define(store)
        connection = database.connect()
        joined = store.join(connection)
        enqueue(joined)  # (MySQL remembers of what kind a variable was when a routine first met it)
        connection.execute(f"SET @pyjobs_tenant = {given}")
        for way in ways(joined, "work", "{}", {}):
            with refused(store, BadName, "the tenant in scope"):
                way()
        with refused(store, BadName, "the tenant in scope"):
            joined.open_batch({})
        connection.close()

    @pytest.mark.databases("mysql")
    def test_bytes_that_are_a_text_are_taken(self, store: Store, database: Any) -> None:
        define(store)
        connection = database.connect()
        connection.execute("SET @pyjobs_tenant = CAST('akmé' AS BINARY)")
        assert found(store, enqueue(store.join(connection))).tenant == "akmé"
        connection.close()

    def test_no_scope_is_no_tenant(self, store: Store, database: Any) -> None:
        define(store)
        connection = database.connect()
        for statement in SCOPE[database.dialect]:
            connection.execute(statement)

        assert found(store, enqueue(store.join(connection))).tenant is None
        connection.close()


@pytest.mark.databases("mysql")
class TestAnXaTransaction:
    @pytest.fixture
    def joined(self, store: Store, database: Any) -> Iterator[Store]:
        define(store)
        connection = database.connect()
        connection.execute("XA START 'theirs'")
        yield store.join(connection)
        for statement in ("XA END 'theirs'", "XA PREPARE 'theirs'", "XA COMMIT 'theirs'"):
            connection.execute(statement)
        connection.close()

    def test_producers_are_part_of_it(self, store: Store, joined: Store) -> None:
        batch_id = joined.open_batch({})
        enqueue(joined, unique_key="k", batch_id=str(batch_id))
        enqueue(joined)
        joined.seal_batch(batch_id)
        assert (store.count(), joined.count()) == (0, 2)

    def test_many_go_in_or_are_refused_whole(self, joined: Store, database_name: str) -> None:
        """MySQL lets nobody use a temporary table there."""
        first = enqueue(joined)
        many = [NewJob("work", options={"unique_key": "k"}), NewJob("work")]
        if database_name == "mysql":
            for _ in range(2):
                with refused(joined, InvalidOption, "XA", "one by one"):
                    joined.enqueue_many(many)
            assert [job.id for job in joined.jobs()] == [first]
            assert enqueue(joined, unique_key="k") != first
        else:
            assert [answer.inserted for answer in joined.enqueue_many(many)] == [True, True]


@pytest.mark.databases("mysql")
class TestAnOldSnapshot:
    """A caller at REPEATABLE READ sees what was there when its transaction first read, while keys come and go."""

    @pytest.fixture
    def job(self, store: Store) -> UUID:
        define(store)
        return enqueue(store, unique_key="k")

    @pytest.fixture
    def old(self, store: Store, database: Any, job: UUID) -> Iterator[Store]:
        """A caller whose transaction has not read yet."""
        connection = database.connect()
        connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("BEGIN")
        yield store.join(connection)
        connection.close()

    @pytest.fixture
    def producer(self, store: Store, database: Any, job: UUID) -> Iterator[Any]:
        """Another one, who has met the key held, so that it can only be passed by when it is let go."""
        connection = database.connect()
        connection.execute("BEGIN")
        assert store.join(connection).enqueue("work", "{}", {"unique_key": "k"}) == job
        yield connection
        connection.close()

    def test_a_key_let_go_since_is_taken(self, store: Store, old: Store, job: UUID) -> None:
        assert old.count() == 1
        assert perform(store) == job
        assert enqueue(old, unique_key="k") != job
        assert state(old, job) == "pending"

    def test_one_passed_by_since_is_answered_as_it_was_seen(
        self, store: Store, old: Store, producer: Any, job: UUID, sql: Any
    ) -> None:
        """As if the job had ended just after the call; to lock what says so would keep others from settling."""
        assert old.count() == 1
        assert perform(store) == job
        assert sql.value("SELECT COUNT(*) FROM jobs__loose_keys") == 1

        assert enqueue(old, unique_key="k") == job
        assert state(old, job) == "pending"

    def test_one_passed_by_before_is_taken(self, store: Store, old: Store, producer: Any, job: UUID) -> None:
        assert perform(store) == job
        assert old.count() == 1
        producer.execute("COMMIT")
        assert enqueue(old, unique_key="k") != job

    def test_one_that_its_job_has_got_back_since_is_not_taken(
        self, store: Store, old: Store, producer: Any, job: UUID, sql: Any
    ) -> None:
        assert perform(store, "failed", permanent=True) == job
        assert sql.value("SELECT COUNT(*) FROM jobs__loose_keys") == 1
        assert old.count() == 1
        producer.execute("COMMIT")
        assert store.retry({"id": str(job)}) == 1

        assert enqueue(old, unique_key="k") == job
        assert state(store, job) == "pending"


def test_args_that_are_objects_are_enqueued_at_the_same_moment_as_the_rest(store: Store, sql: Any) -> None:
    """Each is due at once, though it takes a while to read them."""
    define(store)
    call(sql, "jobs_enqueue_many", json.dumps([{"name": "work", "args": {"n": [n]}} for n in range(300)]))
    jobs = store.jobs(limit=300)
    assert {job.state for job in jobs} == {"pending"}
    assert len({job.enqueued_at for job in jobs} | {job.run_at for job in jobs}) == 1


@pytest.mark.databases("mysql")
@each("given", ["1000", "UNIX_TIMESTAMP() - 5", "UNIX_TIMESTAMP() + 86400 * 200", "UNIX_TIMESTAMP() + 31"])
def test_no_session_tells_the_time(store: Store, database: Any, given: str) -> None:
    """Whoever sets the clock of his session, as MySQL allows, changes none of what the routines do."""
    define(store)
    later = enqueue(store, delay_ms=30_000)
    connection = database.connect()
    for zone in ("+00:00", "-11:00", "+05:45"):
        connection.execute(f"SET time_zone = '{zone}'")
        connection.execute("SET timestamp = DEFAULT")
        connection.execute(f"SET timestamp = {given}")
        joined = store.join(connection)

        before, said, after = store.now(), joined.now(), store.now()
        assert before <= said <= after
        due = found(store, enqueue(joined))
        [many] = joined.enqueue_many([NewJob("work", options={"delay_ms": 1_000})])
        assert after <= due.run_at <= store.now()
        assert after < found(store, many.id).run_at <= store.now() + timedelta(seconds=1)
        assert joined.sweep().promoted == 0
        assert [job.id for job in claim(joined, 5)] == [due.id]
        assert state(store, later) == "scheduled"
        store.discard({"id": str(many.id)})
    connection.close()


def test_moments_are_kept_to_the_millisecond(store: Store) -> None:
    define(store)
    moment = datetime(2031, 7, 9, 1, 2, 3, 45_000, tzinfo=UTC)

    assert found(store, enqueue(store, run_at=iso(moment))).run_at == moment
