"""``Jobs`` as far as it needs no database; with one: test_app_database.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pyjobs import JobContext, Jobs, PyjobsError
from pyjobs import tenant as tenants
from pyjobs.errors import (
    InvalidArguments,
    InvalidConfiguration,
    InvalidOption,
    InvalidSchedule,
    OtherTenant,
    UnknownJob,
)
from pyjobs.options import EnqueueOptions


@pytest.fixture
def jobs() -> Jobs:
    return Jobs("sqlite:////nowhere/at/all.db")


def nothing() -> None: ...


class TestDefining:
    def test_a_job_has_its_handlers_name_unless_it_is_given_one(self, jobs: Jobs) -> None:
        @jobs.job
        def plain() -> None: ...

        @jobs.job()
        def called() -> None: ...

        @jobs.job(queue="mail")
        def optioned() -> None: ...

        @jobs.job("mail/named", queue="mail")
        def anything() -> None: ...

        jobs.define("by/call", nothing, priority=3)
        assert [*jobs.definitions] == ["plain", "called", "optioned", "mail/named", "by/call"]
        assert jobs.definitions["optioned"] is optioned
        assert jobs.definitions["mail/named"].queue == "mail"
        assert jobs.definitions["by/call"].priority == 3

    def test_a_name_is_defined_once(self, jobs: Jobs) -> None:
        jobs.define("a", nothing)
        with pytest.raises(InvalidConfiguration, match="'a' is defined twice"):
            jobs.define("a", nothing)

    def test_a_job_is_no_handler(self, jobs: Jobs) -> None:
        job = jobs.define("a", nothing)
        with pytest.raises(InvalidConfiguration, match="a job already"):
            jobs.define("b", job)

    def test_definitions_are_read_only(self, jobs: Jobs) -> None:
        with pytest.raises(TypeError):
            jobs.definitions["a"] = jobs.define("a", nothing)  # type: ignore[index]


class TestScheduling:
    def test_a_schedule_has_its_jobs_name_unless_it_is_given_one(self, jobs: Jobs) -> None:
        @jobs.schedule(every="15m", name="often", queue="low", args={"deep": False})
        @jobs.schedule(cron="0 3 * * *", timezone="Europe/Paris")
        @jobs.job
        def tidy(deep: bool = True) -> None: ...

        assert {*jobs.schedules} == {"tidy", "often"}
        nightly, often = jobs.schedules["tidy"], jobs.schedules["often"]
        assert (nightly.job, nightly.cron, nightly.every_ms, nightly.timezone) == (
            "tidy",
            "0 3 * * *",
            None,
            "Europe/Paris",
        )
        assert (often.job, often.every_ms, often.options, often.args) == (
            "tidy",
            900_000,
            {"queue": "low"},
            '{"deep":false}',
        )
        after = datetime(2026, 1, 1, tzinfo=UTC)
        assert nightly.next_moment(after) == datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert often.next_moment(after) == after + timedelta(minutes=15)

    def test_by_call_the_job_may_be_defined_later(self, jobs: Jobs) -> None:
        jobs.recur("nightly", job="tidy", cron="@daily", enabled=False)
        jobs.recur("tidy", every="1h")
        assert (jobs.schedules["nightly"].job, jobs.schedules["nightly"].enabled) == ("tidy", False)
        assert jobs.schedules["tidy"].job == "tidy"

    @pytest.mark.parametrize(
        "timing",
        [
            {},
            {"cron": "@daily", "every": "1h"},
            {"cron": "0 0 30 2 *"},
            {"cron": "* * * * * *"},
            {"cron": "@daily", "timezone": "Mars/Base"},
            {"every": "0s"},
        ],
    )
    def test_one_that_cannot_come_round_is_refused_where_it_is_declared(
        self, jobs: Jobs, timing: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidSchedule):
            jobs.recur("broken", **timing)
        assert not jobs.schedules

    def test_an_option_that_only_a_call_takes_is_refused(self, jobs: Jobs) -> None:
        with pytest.raises(InvalidOption, match="a schedule has no option 'delay'"):
            jobs.recur("a", every="1h", delay="5m")  # type: ignore[call-arg]

    def test_a_name_is_declared_once(self, jobs: Jobs) -> None:
        jobs.recur("a", every="1h")
        with pytest.raises(InvalidConfiguration, match="'a' is declared twice"):
            jobs.recur("a", every="2h")

    def test_the_decorators_have_an_order(self, jobs: Jobs) -> None:
        with pytest.raises(InvalidConfiguration, match="given a function"):
            jobs.schedule(every="1h")(nothing)  # type: ignore[arg-type]

    def test_its_arguments_must_survive_json(self, jobs: Jobs) -> None:
        with pytest.raises(InvalidArguments, match=r"args\.when"):
            jobs.recur("a", every="1h", args={"when": datetime.now(UTC)})


class TestMakingJobs:
    def test_a_function_is_not_a_job(self, jobs: Jobs) -> None:
        with pytest.raises(UnknownJob, match="a function is not a job"):
            jobs.new_job(nothing, {}, {})  # type: ignore[arg-type]

    def test_an_id_is_made_before_the_call(self, jobs: Jobs) -> None:
        one, other = jobs.new_job("a", {}, {}), jobs.new_job("a", {}, {})
        assert one.id is not None
        assert one.id != other.id

    def test_the_handlers_annotations_count_by_name_too(self, jobs: Jobs) -> None:
        @jobs.job
        def remind(at: datetime) -> None: ...

        moment = datetime(2026, 1, 1, tzinfo=UTC)
        assert jobs.new_job("remind", {"at": moment}, {}).args == '{"at":"2026-01-01T00:00:00+00:00"}'
        assert jobs.new_job(remind, {"at": moment}, {}).name == "remind"
        with pytest.raises(InvalidArguments):
            jobs.new_job("defined elsewhere", {"at": moment}, {})

    @pytest.mark.parametrize("args", [[1], [], "a", "", 5, [("a", 1)]])
    def test_arguments_are_named(self, jobs: Jobs, args: Any) -> None:
        jobs.define("here", nothing)
        for name in ("here", "elsewhere"):
            with pytest.raises(InvalidArguments, match="not a mapping"):
                jobs.new_job(name, args, {})

    def test_text_is_kept_verbatim(self, jobs: Jobs) -> None:
        assert jobs.new_job_of_text("a", '{ "n": 1e22 }', {}).args == '{ "n": 1e22 }'

    def test_nothing_reaches_the_database_that_is_wrong_already(self, jobs: Jobs) -> None:
        for wrong in (
            lambda: jobs.enqueue("a", {"x": object()}),
            lambda: jobs.enqueue("a", dealy="5m"),  # type: ignore[call-arg]
            lambda: jobs.enqueue_many([("a", {}), ("b", {"x": float("nan")})]),
            lambda: jobs.batch("a", {"x": {1}}),
        ):
            with pytest.raises((InvalidArguments, InvalidOption)):
                wrong()


class TestTenants:
    @pytest.mark.parametrize(
        ("scope", "named", "stamped"),
        [
            (None, {}, {}),
            (None, {"tenant": "acme"}, {"tenant": "acme"}),
            ("acme", {}, {"tenant": "acme"}),
            ("acme", {"tenant": "acme"}, {"tenant": "acme"}),
            ("acme", {"tenant": None}, {"tenant": None}),
        ],
    )
    def test_the_one_in_scope_is_stamped(
        self, jobs: Jobs, scope: str | None, named: EnqueueOptions, stamped: dict[str, Any]
    ) -> None:
        with jobs.tenant(scope):
            assert jobs.new_job("a", {}, named).options == stamped

    def test_naming_another_is_refused(self, jobs: Jobs) -> None:
        with jobs.tenant("acme"), pytest.raises(OtherTenant, match=r"'other'.*'acme'"):
            jobs.enqueue("a", tenant="other")


class TestPerformingNow:
    def test_it_answers_what_the_handler_answers(self, jobs: Jobs) -> None:
        @jobs.job
        def add(a: int, b: int = 1) -> int:
            return a + b

        assert jobs.perform_now("add", {"a": 2}) == 3
        assert jobs.perform_now(add, {"a": 2, "b": 3}) == 5

    def test_arguments_make_the_same_way_as_any(self, jobs: Jobs) -> None:
        @jobs.job
        def kinds(pair: list[int], at: datetime) -> tuple[type, type]:
            return type(pair), type(at)

        assert jobs.perform_now("kinds", {"pair": (1, 2), "at": datetime.now(UTC)}) == (list, datetime)
        with pytest.raises(InvalidArguments):
            jobs.perform_now("kinds", {"pair": {1}, "at": datetime.now(UTC)})
        with pytest.raises(InvalidArguments, match="do not fit"):
            jobs.perform_now("kinds", {"pair": []})

    def test_it_has_a_context(self, jobs: Jobs) -> None:
        @jobs.job(queue="mail", max_attempts=2)
        def look(context: JobContext) -> JobContext:
            return context

        with jobs.tenant("acme"):
            context = jobs.perform_now("look")
        assert (context.name, context.queue, context.attempt, context.max_attempts) == ("look", "mail", 1, 2)
        assert (context.tenant, context.worker) == ("acme", "inline")

    def test_what_the_handler_raises_comes_out(self, jobs: Jobs) -> None:
        @jobs.job
        def fail() -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            jobs.perform_now("fail")

    def test_an_async_handler_is_awaited(self, jobs: Jobs) -> None:
        @jobs.job
        async def later(a: int) -> int:
            await asyncio.sleep(0)
            return a

        assert jobs.perform_now("later", {"a": 3}) == 3

    def test_an_unknown_name_is_told_with_those_there_are(self, jobs: Jobs) -> None:
        jobs.define("tidy", nothing)
        with pytest.raises(UnknownJob) as refusal:
            jobs.perform_now("tydi")
        assert "tydi" in refusal.value.message
        assert "tidy" in refusal.value.hint


class TestNaming:
    def test_an_application_is_called_as_the_module_that_makes_it(self) -> None:
        assert Jobs().name == __name__
        assert Jobs(name="shop").name == "shop"

    @pytest.mark.parametrize("command", [["shop.py"], ["-m", "shop"], ["-c", "import shop"]])
    def test_as_a_program_it_has_the_name_it_has_when_imported(self, tmp_path: Path, command: list[str]) -> None:
        tmp_path.joinpath("shop.py").write_text("from pyjobs import Jobs\nprint(Jobs().name)\n")
        ran = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "shop"

    def test_no_database_is_needed_to_declare(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("PYJOBS_DATABASE_URL", raising=False)
        monkeypatch.chdir(tmp_path)
        jobs = Jobs()
        jobs.define("a", nothing)
        with pytest.raises(InvalidConfiguration, match="no database"):
            jobs.enqueue("a")
        monkeypatch.setenv("PYJOBS_DATABASE_URL", "sqlite:///late.db")
        assert jobs.url == "sqlite:///late.db"


def test_every_error_of_ours_can_be_caught_as_one(jobs: Jobs) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: jobs.perform_now("unknown"),
        lambda: jobs.recur("x", cron="nonsense"),
        lambda: jobs.new_job("x", {}, {"delay": "nonsense"}),
    ]
    for attempt in attempts:
        with pytest.raises(PyjobsError) as refusal:
            attempt()
        assert refusal.value.code.startswith("PYJOBS_")
        assert refusal.value.hint


def test_a_traceback_ends_with_the_hint() -> None:
    error = InvalidOption("there is no option 'dely'", "options: delay")
    assert str(error) == "there is no option 'dely'"
    assert traceback.format_exception_only(error)[-1] == "hint: options: delay\n"
    assert len(traceback.format_exception_only(PyjobsError("no hint"))) == 1


def test_no_tenant_is_left_in_scope() -> None:
    assert tenants.current() is None
