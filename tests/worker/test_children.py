"""``isolation="process"``: what goes over to another process and comes back, and that it can be killed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.errors import InvalidConfiguration
from pyjobs.store.base import Store
from pyjobs.worker import Report, Worker
from pyjobs.worker.logs import JsonFormatter
from servers.databases import Database
from steps import found, state
from worker import apart
from worker.running import PATIENCE, Work, eventually, is_gone, read


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    """The application of ``apart``, on the database of the test."""
    apart.jobs.use(database.url)
    apart.jobs.sync()
    yield apart.jobs
    apart.jobs.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path


def once(jobs: Jobs, **options: Any) -> Report:
    return Worker(jobs, **options).run(once=True)


class TestPerforming:
    def test_the_context_goes_over(self, jobs: Jobs, store: Store, files: Path) -> None:
        id = jobs.enqueue("tell", {"path": str(files / "told")}, tenant="acme", meta={"trace": "t"})
        worker = Worker(jobs)

        assert worker.run(once=True) == Report(claimed=1, done=1)
        pid, *told = read(files / "told").split("|")
        assert told == [str(id), "tell", "1", worker.id, "acme", "{'trace': 't'}"]
        assert int(pid) != os.getpid()
        assert is_gone(int(pid))

    def test_the_applications_own_scope_of_the_tenant_is_entered_there_too(self, jobs: Jobs, files: Path) -> None:
        jobs.enqueue("scoped", {"path": str(files / "acme")}, tenant="acme")
        jobs.enqueue("scoped", {"path": str(files / "nobody")})

        assert once(jobs, concurrency=1) == Report(claimed=2, done=2)
        assert [read(files / "acme"), read(files / "nobody")] == ["['acme']", "[]"]

    def test_a_scope_that_a_child_would_not_find_is_refused(self, database: Database) -> None:
        hidden = [Jobs(database.url, tenant_scope=apart.tenancy)]
        hidden[0].define("slow", apart.slow, isolation="process")

        with pytest.raises(InvalidConfiguration, match="tenant_scope"):
            once(hidden[0])

    def test_a_child_is_used_again_and_there_are_no_more_than_needed(
        self, jobs: Jobs, work: Work, store: Store, files: Path
    ) -> None:
        work(jobs, concurrency=4, prefetch=0)
        pids = set()
        for number in range(5):
            jobs.enqueue("tell", {"path": str(files / str(number))})
            pids.add(read(files / str(number)).partition("|")[0])
            eventually(lambda number=number: store.count({"state": "done"}) == number + 1)

        assert len(pids) == 1

    def test_there_are_as_many_as_run_at_once_counted_with_threads(
        self, jobs: Jobs, work: Work, store: Store, files: Path
    ) -> None:
        for number in range(3):
            jobs.enqueue("slow", {"pid": str(files / f"{number}"), "late": str(files / "late")})
        work(jobs, concurrency=2, prefetch=0)
        eventually(lambda: len([*files.iterdir()]) == 2)

        assert store.count({"state": "running"}) == 2
        assert len({each.read_text() for each in files.iterdir()}) == 2

    def test_what_it_enqueues_goes_to_the_database_of_the_worker(self, jobs: Jobs, store: Store) -> None:
        jobs.enqueue("enqueues")

        assert once(jobs) == Report(claimed=2, done=2)

    def test_its_log_is_the_workers(self, jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        id = jobs.enqueue("logs", {"times": 1_000})
        once(jobs)

        lines = [each for each in caplog.records if each.name == "pyjobs.job"]
        assert [each.getMessage() for each in lines] == [f"line {number}" for number in range(1_000)]
        assert {each.job_id for each in lines} == {str(id)}  # type: ignore[attr-defined]
        assert lines[0].process != os.getpid()
        [warning] = [each for each in caplog.records if each.name == "apart"]
        assert "ValueError: inside" in (warning.exc_text or "")
        assert "ValueError: inside" in json.loads(JsonFormatter().format(warning))["error"]

    def test_what_it_prints_holds_up_nobody(self, jobs: Jobs, capfd: pytest.CaptureFixture[str]) -> None:
        for _ in range(2):
            jobs.enqueue("shouts", {"megabytes": 20})

        assert once(jobs, concurrency=2) == Report(claimed=2, done=2)
        assert len(capfd.readouterr().out) > 40_000_000

    def test_one_that_forks_harms_nobody(self, jobs: Jobs) -> None:
        for _ in range(2):
            jobs.enqueue("forks")

        assert once(jobs, concurrency=1) == Report(claimed=2, done=2)


class TestRaising:
    @pytest.mark.parametrize(
        ("what", "kind", "message", "became", "reason"),
        [
            ("error", "ValueError", "no such user", "scheduled", None),
            ("permanent", "pyjobs.context.Permanent", "the account is closed", "dead", "permanent"),
            ("retry", "pyjobs.context.RetryAfter", "busy", "scheduled", None),
            ("exit", "SystemExit", "3", "scheduled", None),
            ("unpicklable", "worker.apart.Unpicklable", "made of what cannot go elsewhere", "dead", "permanent"),
        ],
    )
    def test_what_it_raises_comes_back(
        self, jobs: Jobs, store: Store, what: str, kind: str, message: str, became: str, reason: str | None
    ) -> None:
        id = jobs.enqueue("raises", {"what": what})
        once(jobs)

        [failure] = store.failures(id)
        assert (failure.kind, failure.type, failure.message) == ("error", kind, message)
        assert "in raises" in (failure.stack or "")
        assert (found(store, id).state, found(store, id).dead_reason) == (became, reason)
        if what == "retry":
            assert (found(store, id).run_at - failure.failed_at).total_seconds() == 7_200

    def test_snooze_is_not_counted(self, jobs: Jobs, store: Store) -> None:
        id = jobs.enqueue("raises", {"what": "snooze"})

        assert once(jobs) == Report(claimed=1, snoozed=1)
        assert (found(store, id).state, found(store, id).attempts) == ("scheduled", 0)

    def test_what_is_told_of_it_is_bounded(self, jobs: Jobs, store: Store) -> None:
        id = jobs.enqueue("raises", {"what": "long"})
        once(jobs)

        [failure] = store.failures(id)
        assert len(failure.message or "") < 2_100
        assert len(failure.stack or "") < 17_000

    def test_arguments_that_do_not_fit_bury_it(self, jobs: Jobs, store: Store) -> None:
        id = store.enqueue("raises", '{"password": "s3cret-4711"}')

        assert once(jobs) == Report(claimed=1, failed=1, dead=1)
        [failure] = store.failures(id)
        assert failure.kind == "invalid_args"
        assert "s3cret" not in f"{failure.message}{failure.stack}"


class TestKilling:
    def test_on_timeout(self, jobs: Jobs, work: Work, store: Store, files: Path) -> None:
        id = jobs.enqueue("bounded", {"pid": str(files / "pid"), "late": str(files / "late")})
        running = work(jobs, concurrency=1)
        pid = int(read(files / "pid"))
        eventually(lambda: state(store, id) == "dead")
        [failure] = store.failures(id)
        assert (failure.kind, failure.type) == ("timeout", "TimeoutError")
        eventually(lambda: is_gone(pid))
        assert not (files / "late").exists()

        # Another takes its place.
        jobs.enqueue("tell", {"path": str(files / "told")})
        assert int(read(files / "told").partition("|")[0]) != pid
        running.stop()
        assert running.report() == Report(claimed=2, done=1, failed=1, dead=1)

    def test_takes_what_it_has_started_along(self, jobs: Jobs, store: Store, files: Path) -> None:
        jobs.enqueue("family", {"pids": str(files / "pids")})

        assert once(jobs) == Report(claimed=1, failed=1, dead=1)
        pids = [int(each) for each in read(files / "pids").split()]
        eventually(lambda: all(is_gone(pid) for pid in pids))

    def test_on_cancel(self, jobs: Jobs, work: Work, store: Store, files: Path) -> None:
        id = jobs.enqueue("slow", {"pid": str(files / "pid"), "late": str(files / "late")})
        running = work(jobs, lease="800ms")
        pid = int(read(files / "pid"))
        store.cancel({"id": str(id)})
        eventually(lambda: state(store, id) == "cancelled")
        eventually(lambda: is_gone(pid))
        running.stop()
        assert running.report() == Report(claimed=1, cancelled=1)

    def test_when_it_is_lost(self, jobs: Jobs, work: Work, store: Store, files: Path, sql: Any) -> None:
        id = jobs.enqueue("slow", {"pid": str(files / "pid"), "late": str(files / "late")})
        running = work(jobs, lease="800ms")
        pid = int(read(files / "pid"))
        past = "0" if sql.dialect == "sqlite" else "'2000-01-01'"

        def rescued() -> bool:
            sql(f"UPDATE jobs SET lease_until = {past} WHERE state = 'running'")
            store.sweep()
            return state(store, id) == "dead"

        eventually(rescued)
        eventually(lambda: is_gone(pid))
        running.stop()
        assert running.report() == Report(claimed=1)

    @pytest.mark.parametrize("stops", [1, 2])
    def test_when_the_grace_is_over_or_at_once(
        self, jobs: Jobs, work: Work, store: Store, files: Path, stops: int
    ) -> None:
        id = jobs.enqueue("slow", {"pid": str(files / "pid"), "late": str(files / "late")})
        running = work(jobs, grace="100ms" if stops == 1 else "1h")
        pid = int(read(files / "pid"))
        for _ in range(stops):
            running.stop()

        assert running.report() == Report(claimed=1, released=1)
        eventually(lambda: is_gone(pid))
        assert (found(store, id).state, found(store, id).attempts) == ("pending", 0)

    def test_from_outside_fails_the_attempt_and_nothing_else(
        self, jobs: Jobs, work: Work, store: Store, files: Path
    ) -> None:
        id = jobs.enqueue("slow", {"pid": str(files / "pid"), "late": str(files / "late")})
        running = work(jobs)
        os.kill(int(read(files / "pid")), signal.SIGKILL)
        eventually(lambda: state(store, id) == "dead")

        [failure] = store.failures(id)
        assert (failure.kind, failure.type) == ("error", "ChildProcessError")
        assert "was killed" in (failure.message or "")
        jobs.enqueue("tell", {"path": str(files / "told")})
        read(files / "told")
        running.stop()
        assert running.report() == Report(claimed=2, done=1, failed=1, dead=1)

    def test_while_it_waits_harms_no_job(self, jobs: Jobs, work: Work, store: Store, files: Path) -> None:
        running = work(jobs, concurrency=1)
        jobs.enqueue("tell", {"path": str(files / "first")})
        pid = int(read(files / "first").partition("|")[0])
        eventually(lambda: store.count({"state": "done"}) == 1)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{pid}").exists())  # the worker has noticed
        jobs.enqueue("tell", {"path": str(files / "second")})
        assert int(read(files / "second").partition("|")[0]) != pid
        running.stop()
        assert running.report() == Report(claimed=2, done=2)

    @pytest.mark.parametrize(("how", "message"), [("exit", "ended with status 7"), ("kill", "was killed")])
    def test_by_itself_is_retried(self, jobs: Jobs, store: Store, how: str, message: str) -> None:
        id = jobs.enqueue("dies_once", {"how": how})

        assert once(jobs) == Report(claimed=2, done=1, failed=1)
        assert message in (store.failures(id)[0].message or "")


class TestScript:
    """A worker that is started by a script which holds the jobs itself."""

    @pytest.fixture
    def script(self, database: Database) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, apart.__file__, database.url, "30s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        yield process
        process.kill()
        process.communicate(timeout=PATIENCE)

    def test_its_handlers_are_found(self, jobs: Jobs, files: Path, script: subprocess.Popen[str]) -> None:
        jobs.enqueue("tell", {"path": str(files / "told")})
        pid = int(read(files / "told").partition("|")[0])
        script.send_signal(signal.SIGTERM)
        out, err = script.communicate(timeout=PATIENCE)

        assert script.returncode == 0, err
        assert out.strip() == str(Report(claimed=1, done=1))
        assert is_gone(pid)

    def test_signals_that_reach_all_processes_are_the_workers_to_follow(
        self, jobs: Jobs, store: Store, files: Path, script: subprocess.Popen[str]
    ) -> None:
        id = jobs.enqueue("slow", {"pid": str(files / "pid"), "late": str(files / "late")})
        pid = int(read(files / "pid"))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            os.kill(pid, number)
        script.send_signal(signal.SIGTERM)
        script.send_signal(signal.SIGINT)
        _, err = script.communicate(timeout=PATIENCE)

        assert script.returncode == 0, err
        assert state(store, id) == "pending"  # released by the worker, not failed by its child

    def test_children_end_when_it_is_killed(self, jobs: Jobs, files: Path, script: subprocess.Popen[str]) -> None:
        jobs.enqueue("tell", {"path": str(files / "idle")})
        idle = int(read(files / "idle").partition("|")[0])
        for number in range(2):
            jobs.enqueue("slow", {"pid": str(files / f"{number}"), "late": str(files / "late")})
        busy = [int(read(files / f"{number}")) for number in range(2)]
        script.kill()
        eventually(lambda: all(is_gone(pid) for pid in [idle, *busy]))

    def test_the_time_to_import_the_application_does_not_count(self, database: Database, files: Path) -> None:
        ran = run_script(
            files / "heavy.py",
            database.url,
            """
            import time
            time.sleep(1)
            if __name__ == "__main__":
                work.enqueue()
                print(Worker(jobs).run(once=True))
            """,
        )
        assert ran.stdout.strip() == str(Report(claimed=1, done=1)), ran.stderr

    def test_one_that_cannot_be_imported_again_fails_the_job(
        self, database: Database, store: Store, files: Path
    ) -> None:
        ran = run_script(
            files / "fickle.py",
            database.url,
            """
            if __name__ == "__main__":
                work.enqueue()
                print(Worker(jobs).run(once=True))
            else:
                raise RuntimeError("only once")
            """,
        )
        assert ran.stdout.strip() == str(Report(claimed=1, failed=1, dead=1)), ran.stderr
        [job] = store.jobs({})
        [failure] = store.failures(job.id)
        assert (failure.kind, failure.type, failure.message) == ("error", "RuntimeError", "only once")

    def test_one_that_starts_its_worker_when_imported_is_told_so(
        self, database: Database, store: Store, files: Path
    ) -> None:
        ran = run_script(
            files / "careless.py",
            database.url,
            """
            if not jobs.count():
                work.enqueue()
            print(Worker(jobs).run(once=True))
            """,
        )
        assert ran.stdout.strip() == str(Report(claimed=1, failed=1, dead=1)), ran.stderr
        [job] = store.jobs({})
        assert "a worker itself" in (store.failures(job.id)[0].message or "")


def run_script(file: Path, url: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has a job of its own, with a timeout of half a second."""
    beginning = """
        import sys
        from pyjobs import Jobs
        from pyjobs.worker import Worker

        jobs = Jobs(sys.argv[1])

        @jobs.job(isolation="process", max_attempts=1, timeout="500ms")
        def work() -> None: ...
    """
    file.write_text(textwrap.dedent(beginning) + textwrap.dedent(text))
    return subprocess.run([sys.executable, str(file), url], capture_output=True, text=True, timeout=PATIENCE)


class TestRefusing:
    """At the start, before anything is claimed."""

    def refused(self, handler: Any) -> InvalidConfiguration:
        jobs = Jobs("sqlite:////nowhere/at/all.db", name="tests")
        jobs.define("work", handler, isolation="process")
        with pytest.raises(InvalidConfiguration, match=r"'work'.*no other process can find") as caught:
            Worker(jobs).run()
        return caught.value

    def test_a_function_in_a_function(self) -> None:
        def handler() -> None: ...

        assert "top of a module" in self.refused(handler).hint

    def test_a_lambda(self) -> None:
        self.refused(lambda: None)

    def test_an_object_that_can_be_called(self) -> None:
        class Handler:
            def __call__(self) -> None: ...

        self.refused(Handler())

    def test_one_whose_name_is_another_thing(self) -> None:
        def impostor() -> None: ...

        impostor.__module__, impostor.__qualname__ = "worker.apart", "slow"
        self.refused(impostor)
