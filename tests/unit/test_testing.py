"""What ``pyjobs.testing`` does for the tests of an application, and that docs/testing.md tells the truth."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pyjobs import Concurrency, JobContext, Jobs, Permanent, Snooze
from pyjobs import tenant as tenants
from pyjobs.errors import InvalidArguments, InvalidOption, PyjobsError
from pyjobs.testing import TestJobs
from servers.databases import Database

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\w+\.\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
SHOP = FILES["shop.py"]


@pytest.fixture
def jobs(database: Database) -> Any:
    app = Jobs(database.url, name="tests")
    yield TestJobs(app)
    app.close()


class TestDraining:
    def test_in_order_in_this_thread_and_what_is_enqueued_meanwhile_too(self, jobs: TestJobs) -> None:
        performed: list[tuple[str, threading.Thread]] = []

        @jobs.app.job
        def first(name: str) -> None:
            performed.append((name, threading.current_thread()))
            if name == "b":
                jobs.app.enqueue("second")

        @jobs.app.job
        async def second() -> None:
            performed.append(("second", threading.current_thread()))

        for name, priority in [("c", 5), ("a", -5), ("b", 0)]:
            jobs.app.enqueue("first", {"name": name}, priority=priority)
        assert jobs.drain() == 4
        assert performed == [(name, threading.current_thread()) for name in ("a", "b", "second", "c")]
        assert jobs.drain() == 0

    def test_a_failure_is_settled_and_then_raised_and_the_rest_waits(self, jobs: TestJobs) -> None:
        @jobs.app.job
        def explode(final: bool) -> None:
            raise Permanent("no") if final else LookupError("gone")

        failing = jobs.app.enqueue("explode", {"final": False})
        jobs.app.enqueue("explode", {"final": True})
        with pytest.raises(LookupError, match="gone"):
            jobs.drain()
        assert [(each.state, each.attempts) for each in jobs.enqueued()] == [("scheduled", 1), ("pending", 0)]
        assert [each.message for each in jobs.app.failures(failing)] == ["gone"]
        with pytest.raises(Permanent):
            jobs.drain()
        assert jobs.drain() == 0
        jobs.clock.advance(60)
        with pytest.raises(LookupError):
            jobs.drain()
        assert [(each.state, each.attempts) for each in jobs.enqueued()] == [("scheduled", 2), ("dead", 1)]

    def test_what_does_not_fit_the_handler_is_raised(self, jobs: TestJobs) -> None:
        jobs.app.define("narrow", lambda a: None)
        jobs.app.enqueue("narrow", {"b": 1})
        with pytest.raises(InvalidArguments):
            jobs.drain()
        jobs.assert_enqueued("narrow", state="dead")

    def test_a_snooze_is_no_failure(self, jobs: TestJobs) -> None:
        def later() -> None:
            raise Snooze("1h")

        jobs.app.define("later", later)
        jobs.app.enqueue("later")
        assert jobs.drain() == 1
        jobs.assert_enqueued("later", state="scheduled")

    def test_an_outcome_that_the_database_refuses(self, jobs: TestJobs) -> None:
        def later() -> None:
            raise Snooze(10**14)

        jobs.app.define("later", later, max_attempts=1)
        jobs.app.enqueue("later")
        with pytest.raises(PyjobsError):
            jobs.drain()
        jobs.assert_enqueued("later", state="dead")

    def test_tenants_are_entered_as_in_a_worker(self, jobs: TestJobs) -> None:
        seen = []

        @jobs.app.job
        def look(fail: bool = False) -> None:
            seen.append(tenants.current())
            if fail:
                raise LookupError

        with jobs.app.tenant("acme"):
            jobs.app.enqueue("look")
            jobs.app.enqueue("look", {"fail": True}, tenant=None)
            with pytest.raises(LookupError):
                jobs.drain()
            assert tenants.current() == "acme"
        assert seen == ["acme", None]
        assert tenants.current() is None

    def test_a_batch_and_its_callback(self, jobs: TestJobs) -> None:
        counts = []
        jobs.app.define("part", lambda n: None, concurrency=Concurrency(limit=1))

        @jobs.app.job
        def finished(context: JobContext) -> None:
            assert context.batch is not None
            counts.append(context.batch.succeeded)

        with jobs.app.batch("finished") as batch:
            for n in range(3):
                batch.add("part", {"n": n})
        assert jobs.drain() == 4
        assert counts == [3]

    def test_jobs_of_others_and_of_paused_queues_are_left(self, jobs: TestJobs) -> None:
        assert jobs.drain() == 0
        other = Jobs(jobs.app.url, name="other")
        other.define("theirs", lambda: None)
        other.enqueue("theirs")
        other.close()
        jobs.app.define("ours", lambda: None, queue="closed")
        jobs.app.enqueue("ours")
        jobs.app.pause_queue("closed")
        assert jobs.drain() == 0
        jobs.app.resume_queue("closed")
        assert jobs.drain() == 1


class TestAsserting:
    @pytest.fixture(autouse=True)
    def _one(self, jobs: TestJobs) -> None:
        jobs.app.define("mail", lambda to: None)
        jobs.app.enqueue("mail", {"to": "Ada"}, delay="5m", unique_key="k", tenant="acme")

    def test_what_fits_is_answered(self, jobs: TestJobs) -> None:
        job = jobs.assert_enqueued("mail", {"to": "Ada"}, delay=300_000, unique_key="k", tenant="acme", priority=0)
        assert jobs.assert_enqueued(jobs.app.definitions["mail"], at=job.at, state="scheduled") == job

    def test_a_moment_counts_to_the_millisecond(self, jobs: TestJobs) -> None:
        moment = datetime(2100, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
        jobs.app.enqueue("mail", {"to": "Bob"}, at=moment)
        assert jobs.assert_enqueued("mail", at=moment).args == {"to": "Bob"}
        with pytest.raises(AssertionError):
            jobs.assert_enqueued("mail", at=moment + timedelta(milliseconds=2))

    @pytest.mark.parametrize(
        "expected", [{"queue": "other"}, {"delay": "6m"}, {"tenant": None}, {"state": "done"}, {"priority": 1}]
    )
    def test_what_does_not_fails_and_shows_what_is_there(self, jobs: TestJobs, expected: Any) -> None:
        with pytest.raises(AssertionError) as failure:
            jobs.assert_enqueued("mail", **expected)
        assert str(failure.value).startswith(f"there is no job mail {next(iter(expected))}=")
        assert 'mail {"to": "Ada"} queue=default priority=0 delay=5m state=scheduled' in str(failure.value)

    @pytest.mark.parametrize("args", [{}, {"to": "Bob"}, {"to": "Ada", "cc": 1}])
    def test_arguments_are_these_and_no_others(self, jobs: TestJobs, args: Any) -> None:
        with pytest.raises(AssertionError, match='"Ada"'):
            jobs.assert_enqueued("mail", args)

    def test_nothing(self, jobs: TestJobs) -> None:
        jobs.assert_nothing_enqueued("other")
        for name in ("mail", None):
            with pytest.raises(AssertionError, match=r'was expected; there are:\n  mail \{"to": "Ada"\}'):
                jobs.assert_nothing_enqueued(name)

    def test_what_cannot_be_expected_is_told(self, jobs: TestJobs) -> None:
        with pytest.raises(InvalidOption, match="'quue'"):
            jobs.assert_enqueued("mail", quue="x")  # type: ignore[call-arg]
        with pytest.raises(InvalidOption, match=r"<lambda> at .* is neither a job nor the name"):
            jobs.assert_enqueued(lambda: None)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="at is not a moment with a time zone"):
            jobs.assert_enqueued("mail", at=datetime(2100, 1, 1))


class TestTheClock:
    @pytest.mark.parametrize("by", [300, 300.0, "5m", timedelta(minutes=5)])
    def test_it_advances_by(self, jobs: TestJobs, by: Any) -> None:
        before = jobs.clock.now()
        assert jobs.clock.advance(by) == jobs.clock.now() == before + timedelta(minutes=5)

    def test_what_is_no_moment_or_length_is_told(self, jobs: TestJobs) -> None:
        with pytest.raises(InvalidOption, match="to advance by is not a duration: 'soon'"):
            jobs.clock.advance("soon")
        with pytest.raises(InvalidOption, match="new present is not a moment with a time zone"):
            jobs.clock.set(datetime(2100, 1, 1))


class TestThePlugin:
    def test_the_page(self, pytester: pytest.Pytester) -> None:
        for name, text in FILES.items():
            pytester.path.joinpath(name).write_text(text)
        pytester.runpytest_subprocess("-q").assert_outcomes(passed=len(re.findall(r"^def test_", PAGE, re.MULTILINE)))

    def test_a_failure_reads_as_the_page_shows(self, pytester: pytest.Pytester) -> None:
        pytester.makeini(FILES["pytest.ini"])
        pytester.makepyfile(shop=SHOP)
        pytester.makepyfile(
            "import shop\ndef test_it(jobs):\n    shop.sign_up(1)\n"
            "    jobs.assert_enqueued('welcome', {'user_id': 2}, queue='mailers')"
        )
        [shown] = re.findall(r"^```text\nAssertionError: (.*?)\n  (.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
        pytester.runpytest_subprocess("-q").stdout.fnmatch_lines([f"*{line.replace('[', '[[]')}*" for line in shown])

    def test_each_test_has_a_database_of_its_own_and_the_application_its_own_afterwards(
        self, pytester: pytest.Pytester
    ) -> None:
        pytester.makeini(FILES["pytest.ini"])
        pytester.makepyfile(shop=SHOP)
        pytester.makepyfile("""
            import pathlib, shop
            seen = []
            def test_one(jobs):
                seen.append(jobs.app.url)
                shop.sign_up(1)
            def test_two(jobs):
                seen.append(jobs.app.url)
                assert jobs.app is shop.jobs
                jobs.assert_nothing_enqueued()
            def test_after():
                assert len(set(seen)) == 2
                assert shop.jobs.url == "postgresql:///shop"
                for url in seen:
                    assert not pathlib.Path(url.removeprefix("sqlite:///")).parent.exists()
        """)
        pytester.runpytest_subprocess("-q").assert_outcomes(passed=3)

    def test_without_an_application(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("""
            def test_it(jobs):
                @jobs.app.job
                def work(): ...
                work.enqueue()
                assert jobs.drain() == 1
        """)
        pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)

    def test_one_that_is_not_there(self, pytester: pytest.Pytester) -> None:
        pytester.makeini("[pytest]\npyjobs_app = nowhere:jobs")
        pytester.makepyfile("def test_it(jobs): ...")
        ran = pytester.runpytest_subprocess("-q")
        ran.assert_outcomes(errors=1)
        ran.stdout.fnmatch_lines(["*there is no module 'nowhere'*"])

    def test_it_imports_no_more_than_it_must_and_an_application_no_pytest(self) -> None:
        program = """if True:
            import sys, pyjobs.pytest_plugin
            assert "pyjobs.testing" not in sys.modules and "yoyo" not in sys.modules
        """
        subprocess.run([sys.executable, "-c", program], check=True)
        program = "import sys, pyjobs, pyjobs.testing, pyjobs.worker; assert 'pytest' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True)
