"""What a handler returns or raises, and what its attempt comes to."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from pyjobs import tenant
from pyjobs.app import Jobs
from pyjobs.context import JobContext, Permanent, RetryAfter, Snooze
from pyjobs.definition import Backoff
from pyjobs.errors import InvalidArguments
from pyjobs.records import Failure, NewJob
from pyjobs.store.base import Store
from pyjobs.worker import Report, Worker
from servers.databases import Database
from steps import found

SECRET = "s3cret-4711"

NEVER_ENDS = "ALTER TABLE jobs ADD CONSTRAINT never CHECK (id <> '{id}' OR state IN ('pending', 'running'))"
REFUSE_TO_END = {
    "postgresql": [NEVER_ENDS],
    "mysql": [NEVER_ENDS],
    "sqlite": [
        "CREATE TRIGGER never BEFORE UPDATE ON jobs WHEN old.id = '{id}' AND new.state NOT IN ('pending', 'running')"
        " BEGIN SELECT RAISE(ABORT, 'never'); END"
    ],
}


def once(jobs: Jobs, **options: Any) -> Report:
    return Worker(jobs, **options).run(once=True)


def only_failure(store: Store, id: UUID) -> Failure:
    [failure] = store.failures(id)
    return failure


class TestReturning:
    def test_a_function_and_a_coroutine_are_performed_with_their_arguments(self, jobs: Jobs, store: Store) -> None:
        seen = []

        @jobs.job
        def plain(user_id: int, tags: list[str]) -> None:
            seen.append((user_id, tags))

        @jobs.job
        async def coroutine(user_id: int) -> None:
            seen.append((user_id, []))

        ids = [plain.enqueue(1, tags=["a"]), coroutine.enqueue(2)]

        assert once(jobs) == Report(claimed=2, done=2)
        assert sorted(seen) == [(1, ["a"]), (2, [])]
        assert [found(store, id).state for id in ids] == ["done", "done"]

    def test_a_coroutine_or_generator_that_nobody_runs_is_no_success(self, jobs: Jobs, store: Store) -> None:
        async def coroutine() -> None: ...

        def generator() -> Iterator[int]:
            yield 1

        def hidden(handler: Callable[[], Any]) -> Callable[[], Any]:
            return functools.wraps(handler)(lambda: handler())

        jobs.define("coroutine", lambda: coroutine())
        jobs.define("generator", lambda: generator())
        jobs.define("decorated", hidden(coroutine))
        ids = [jobs.enqueue(name) for name in ("coroutine", "generator", "decorated")]

        assert once(jobs) == Report(claimed=3, failed=3, dead=3)
        for id in ids:
            assert "did nothing" in str(only_failure(store, id).message)

    def test_the_context_tells_about_the_attempt(self, jobs: Jobs, store: Store) -> None:
        contexts: list[JobContext] = []

        @jobs.job(queue="mailers", max_attempts=7)
        def welcome(*, context: JobContext) -> None:
            contexts.append(context)

        id = welcome.enqueue()
        worker = Worker(jobs)
        worker.run(once=True)

        [context] = contexts
        assert (context.id, context.name, context.queue) == (id, "welcome", "mailers")
        assert (context.attempt, context.max_attempts, context.worker) == (1, 7, worker.id)
        assert not context.cancelled.is_set()

    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_tenant_of_the_job_is_in_scope(self, jobs: Jobs, is_async: bool) -> None:
        seen = []

        def plain() -> None:
            seen.append(tenant.current())

        async def coroutine() -> None:
            seen.append(tenant.current())

        jobs.define("work", coroutine if is_async else plain)
        jobs.enqueue("work", tenant="acme")
        jobs.enqueue("work")
        once(jobs, concurrency=1)

        assert set(seen) == {"acme", None}

    def test_the_applications_own_scope_of_the_tenant_is_entered_too(self, database: Database) -> None:
        scope: list[str] = []
        seen: list[list[str]] = []

        @contextlib.contextmanager
        def entered(name: str) -> Iterator[None]:
            if name == "gone":
                raise LookupError("there is no such customer")
            scope.append(name)
            yield
            scope.remove(name)

        jobs = Jobs(database.url, tenant_scope=entered)

        @jobs.job
        def plain() -> None:
            seen.append([*scope])

        @jobs.job
        async def coroutine() -> None:
            seen.append([*scope])

        for job in (plain, coroutine):
            job.enqueue_with(tenant="acme")()
        plain.enqueue()
        plain.enqueue_with(tenant="gone")()

        assert once(jobs, concurrency=1) == Report(claimed=4, done=3, failed=1)
        assert sorted(seen) == [[], ["acme"], ["acme"]]
        jobs.close()

    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_a_handler_sets_in_its_context_is_gone_for_the_next_one(self, jobs: Jobs, is_async: bool) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
        seen = []

        def plain() -> None:
            seen.append(variable.get())
            variable.set("set")

        async def coroutine() -> None:
            plain()

        jobs.define("work", coroutine if is_async else plain)
        for _ in range(3):
            jobs.enqueue("work")
        once(jobs, concurrency=1)

        assert seen == ["unset"] * 3


class TestRaising:
    def test_it_fails_and_is_put_off_by_the_backoff(self, jobs: Jobs, store: Store) -> None:
        @jobs.job(backoff=Backoff(base="1h", max="1h", jitter=0))
        def work(password: str) -> None:
            raise ValueError("no such user")

        id = work.enqueue(SECRET)

        assert once(jobs) == Report(claimed=1, failed=1)
        record, failure = found(store, id), only_failure(store, id)
        assert (record.state, record.attempts) == ("scheduled", 1)
        assert record.run_at == failure.failed_at + timedelta(hours=1)
        assert (failure.kind, failure.type, failure.message) == ("error", "ValueError", "no such user")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_stack_begins_at_the_handler_and_holds_no_arguments(
        self, jobs: Jobs, store: Store, is_async: bool
    ) -> None:
        def plain(password: str) -> None:
            raise RuntimeError("broken")

        async def coroutine(password: str) -> None:
            raise RuntimeError("broken")

        jobs.define("work", coroutine if is_async else plain)
        id = jobs.enqueue("work", {"password": SECRET})
        once(jobs)

        stack = only_failure(store, id).stack
        assert stack is not None
        assert 'raise RuntimeError("broken")' in stack
        assert 'outcomes.py", line' not in stack.replace("test_outcomes.py", "")
        assert SECRET not in stack

    def test_the_last_attempt_leaves_it_dead(self, jobs: Jobs, store: Store) -> None:
        @jobs.job(max_attempts=2, backoff=Backoff(base=0))
        def work() -> None:
            raise ValueError

        id = work.enqueue()

        assert once(jobs) == Report(claimed=2, failed=2, dead=1)
        assert (found(store, id).state, found(store, id).dead_reason) == ("dead", "exhausted")

    def test_permanent_buries_it_now(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work() -> None:
            raise Permanent("the account is closed")

        id = work.enqueue()

        assert once(jobs) == Report(claimed=1, failed=1, dead=1)
        assert found(store, id).dead_reason == "permanent"
        assert only_failure(store, id).message == "the account is closed"

    def test_so_does_an_exception_that_says_it_is_not_retryable(self, jobs: Jobs, store: Store) -> None:
        class Rejected(Exception):
            retryable = False

        @jobs.job
        def work() -> None:
            raise Rejected

        id = work.enqueue()
        once(jobs)

        assert found(store, id).dead_reason == "permanent"

    def test_snooze_puts_it_off_uncounted(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work() -> None:
            raise Snooze("10m")

        id = work.enqueue()

        assert once(jobs) == Report(claimed=1, snoozed=1)
        assert (found(store, id).state, found(store, id).attempts) == ("scheduled", 0)
        assert store.failures(id) == []

    def test_retry_after_sets_the_delay(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work() -> None:
            raise RetryAfter("2h", "busy")

        id = work.enqueue()

        assert once(jobs) == Report(claimed=1, failed=1)
        failure = only_failure(store, id)
        assert found(store, id).run_at == failure.failed_at + timedelta(hours=2)
        assert failure.message == "busy"

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
    def test_what_would_end_a_program_ends_the_attempt_only(
        self, jobs: Jobs, store: Store, error: BaseException, is_async: bool
    ) -> None:
        def plain(fail: bool) -> None:
            if fail:
                raise error

        async def coroutine(fail: bool) -> None:
            if fail:
                raise error

        jobs.define("work", coroutine if is_async else plain)
        bad = jobs.enqueue("work", {"fail": True})
        good = jobs.enqueue("work", {"fail": False})

        assert once(jobs, concurrency=1) == Report(claimed=2, done=1, failed=1)
        assert only_failure(store, bad).type == type(error).__name__
        assert found(store, good).state == "done"

    def test_what_a_coroutine_leaves_behind_cannot_end_the_event_loop(self, jobs: Jobs, store: Store) -> None:
        async def exit() -> None:
            raise SystemExit(3)

        @jobs.job
        async def work(leave_behind: bool) -> None:
            if leave_behind:
                asyncio.get_running_loop().create_task(exit())
            await asyncio.sleep(0)

        work.enqueue(True)
        work.enqueue(False)
        work.enqueue(False)

        assert once(jobs, concurrency=1) == Report(claimed=3, done=3)

    def test_what_is_told_of_it_is_bounded_and_takes_any_database(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work() -> None:
            raise ValueError("\0 \ud800 " + "x" * 100_000)

        id = work.enqueue()
        once(jobs)

        failure = only_failure(store, id)
        assert failure.message is not None
        assert failure.stack is not None
        assert failure.message.startswith("\\0 \\ud800 xxx")
        assert len(failure.message) < 2_100
        assert len(failure.stack) < 17_000

    def test_an_exception_that_cannot_be_shown_is_a_failure_like_others(self, jobs: Jobs, store: Store) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError

            @property
            def retryable(self) -> bool:
                raise RuntimeError

        @jobs.job
        def work() -> None:
            raise Odd

        id = work.enqueue()

        assert once(jobs) == Report(claimed=1, failed=1)
        assert "cannot be shown" in (only_failure(store, id).message or "")

    def test_an_outcome_that_the_database_refuses_is_a_failure_and_holds_up_nothing(
        self, jobs: Jobs, store: Store
    ) -> None:
        @jobs.job
        def work(delay: int) -> None:
            if delay:
                snooze = Snooze("1s")
                snooze.delay_ms = delay
                raise snooze

        bad = work.enqueue(-5)
        good = [work.enqueue(0) for _ in range(5)]

        assert once(jobs) == Report(claimed=6, done=5, failed=1)
        assert only_failure(store, bad).type == "InvalidOption"
        assert {found(store, id).state for id in good} == {"done"}

    def test_a_job_that_cannot_be_settled_at_all_holds_up_no_other(
        self, jobs: Jobs, store: Store, sql: Callable[..., Any]
    ) -> None:
        @jobs.job
        def work() -> None: ...

        jobs.sync()
        stuck = work.enqueue()
        others = [work.enqueue() for _ in range(5)]
        for statement in REFUSE_TO_END[store.dialect]:
            sql(statement.format(id=stuck))

        assert once(jobs) == Report(claimed=6, done=5)
        assert found(store, stuck).state == "running"
        assert {found(store, id).state for id in others} == {"done"}


class TestArguments:
    def test_those_that_do_not_fit_bury_it(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work(user_id: int) -> None: ...

        jobs.sync(store)
        id = store.enqueue("work", json.dumps({"password": SECRET}))

        assert once(jobs) == Report(claimed=1, failed=1, dead=1)
        failure = only_failure(store, id)
        assert (found(store, id).dead_reason, failure.kind) == ("invalid_args", "invalid_args")
        assert SECRET not in f"{failure.message}{failure.stack}"

    def test_the_same_exception_out_of_the_handler_is_an_error(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work() -> None:
            raise InvalidArguments("of something else")

        id = work.enqueue()

        assert once(jobs) == Report(claimed=1, failed=1)
        assert only_failure(store, id).kind == "error"


class TestUnknownNames:
    def test_they_are_left_to_workers_that_know_them(self, jobs: Jobs, store: Store) -> None:
        @jobs.job
        def work() -> None: ...

        store.define("newer", {})
        id = store.enqueue("newer", "{}")
        work.enqueue()

        assert once(jobs) == Report(claimed=1, done=1)
        assert (found(store, id).state, found(store, id).attempts) == ("pending", 0)

    def test_on_demand_they_are_claimed_and_fail(self, jobs: Jobs, store: Store) -> None:
        store.define("newer", {"max_attempts": 1})
        id = store.enqueue_many([NewJob("newer")])[0].id

        assert once(jobs, unknown="fail") == Report(claimed=1, failed=1, dead=1)
        assert found(store, id).dead_reason == "unknown_name"
        assert "newer" in (only_failure(store, id).message or "")
