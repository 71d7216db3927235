from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from pyjobs import Backoff, Concurrency, JobContext, PyjobsError
from pyjobs.definition import Job
from pyjobs.errors import InvalidArguments, InvalidConfiguration, InvalidOption
from pyjobs.ids import new_id
from pyjobs.options import EnqueueOptions

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = JobContext(new_id(), "work", "default", 1, 5, NOW, NOW, "worker-1")


@dataclass
class Node:
    following: Node | None = None


class Sent(list[tuple[str, str, EnqueueOptions, Any]]):
    """What jobs sent, in place of a database."""

    def __call__(self, name: str, args: str, options: EnqueueOptions, connection: Any) -> UUID:
        self.append((name, args, options, connection))
        return new_id()


def job(handler: Callable[..., Any], **options: Any) -> Job[..., Any]:
    return Job("work", handler, Sent(), **options)


def sent(job: Job[..., Any]) -> Any:
    """The arguments of the only job that was sent."""
    [(_, args, _, _)] = job._send  # type: ignore[misc, attr-defined]
    return json.loads(args)


def performed(job: Job[..., Any], args: str) -> Any:
    return job.prepare(args, lambda: CONTEXT)()


def add(a: int, b: int = 10) -> int:
    """Adds."""
    return a + b


class TestDeclaring:
    def test_the_defaults_are_those_of_the_contract(self) -> None:
        assert job(add).options() == {
            "queue": "default",
            "priority": 0,
            "max_attempts": 5,
            "timeout_ms": None,
            "backoff": {"base_ms": 5_000, "factor": 4.0, "max_ms": 3_600_000, "jitter": 0.15},
            "concurrency": None,
            "keep_done_ms": 86_400_000,
            "keep_dead_ms": None,
        }

    def test_every_option_is_kept(self) -> None:
        declared = job(
            add,
            queue="mail",
            priority=-5,
            max_attempts=2,
            timeout="30s",
            backoff=Backoff("1s", 2, "1m", 0),
            concurrency=Concurrency(3, key="a.b", group="io"),
            keep_done=0,
            keep_dead="1w",
            isolation="process",
        )
        assert declared.options() == {
            "queue": "mail",
            "priority": -5,
            "max_attempts": 2,
            "timeout_ms": 30_000,
            "backoff": {"base_ms": 1_000, "factor": 2, "max_ms": 60_000, "jitter": 0},
            "concurrency": {"limit": 3, "key": "a.b", "group": "io"},
            "keep_done_ms": 0,
            "keep_dead_ms": 604_800_000,
        }
        assert declared.isolation == "process"

    @pytest.mark.parametrize(
        "options",
        [
            {"retries": 3},
            {"timeout": "soon"},
            {"timeout": 0},
            {"keep_done": -1},
            {"isolation": "greenlet"},
        ],
    )
    def test_an_option_that_means_nothing_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises((InvalidConfiguration, InvalidOption)) as refusal:
            job(add, **options)
        assert next(iter(options)) in refusal.value.message
        assert refusal.value.hint

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Backoff(base="x"),
            lambda: Backoff(max=-1),
            lambda: Backoff(factor=0.5),
            lambda: Backoff(factor=float("nan")),
            lambda: Backoff(factor=float("inf")),
            lambda: Backoff(jitter=1.5),
            lambda: Backoff(jitter=float("nan")),
            lambda: Concurrency(0),
            lambda: Concurrency(True),
            lambda: Concurrency("3"),  # type: ignore[arg-type]
        ],
    )
    def test_an_impossible_policy_is_refused(self, make: Callable[[], object]) -> None:
        with pytest.raises(PyjobsError):
            make()

    def test_parameters_that_have_no_name_to_store_are_refused(self) -> None:
        def by_position(a: int, /) -> None: ...
        def by_count(*numbers: int) -> None: ...

        for handler in (by_position, by_count):
            with pytest.raises(InvalidConfiguration, match="by position"):
                job(handler)

    def test_what_has_a_class_of_its_own_is_not_taken_bare(self) -> None:
        with pytest.raises(InvalidConfiguration, match="'work' has no Backoff"):
            job(add, backoff="5s")
        with pytest.raises(InvalidConfiguration, match="'work' has no Concurrency"):
            job(add, concurrency=3)

    def test_a_coroutine_cannot_ask_for_a_process(self) -> None:
        async def handler() -> None: ...

        with pytest.raises(InvalidConfiguration, match="async"):
            job(handler, isolation="process")

    def test_a_generator_which_a_call_does_not_run_is_refused(self) -> None:
        def plain() -> Any:
            yield

        async def coroutine() -> Any:
            yield

        for handler in (plain, coroutine):
            with pytest.raises(InvalidConfiguration, match="is a generator"):
                job(handler)

    def test_a_dataclass_that_contains_itself_or_is_nested_without_end_is_refused(self) -> None:
        def handler(node: Node) -> None: ...

        node = Node()
        node.following = node
        stranger = '{"node":' + '{"following":' * 400 + "null" + "}" * 401

        for refused in (
            lambda: job(handler).encode({"node": node}),
            lambda: job(handler).prepare(stranger, lambda: CONTEXT),
        ):
            with pytest.raises(InvalidArguments, match="contain themselves"):
                refused()

    def test_it_stands_where_the_handler_stood(self) -> None:
        declared = job(add)
        assert declared(1, b=2) == 3
        assert declared.__doc__ == "Adds."
        assert declared.__name__ == "add"  # type: ignore[attr-defined]
        assert repr(declared) == "<Job 'work'>"


class TestEnqueueing:
    def test_arguments_are_given_as_to_the_handler(self) -> None:
        for enqueue in (
            lambda declared: declared.enqueue(1, 2),
            lambda declared: declared.enqueue(1, b=2),
            lambda declared: declared.enqueue(b=2, a=1),
        ):
            declared = job(add)
            enqueue(declared)
            assert sent(declared) == {"a": 1, "b": 2}

    def test_defaults_are_left_to_the_handler(self) -> None:
        declared = job(add)
        declared.enqueue(1)
        assert sent(declared) == {"a": 1}

    @pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((), {"a": 1, "c": 1})])
    def test_arguments_that_do_not_fit_are_refused_at_once(self, args: tuple[int, ...], kwargs: dict[str, int]) -> None:
        declared = job(add)
        with pytest.raises(InvalidArguments, match="do not fit 'work'"):
            declared.enqueue(*args, **kwargs)
        assert declared._send == []

    def test_options_go_along(self) -> None:
        declared, connection = job(add), object()
        declared.enqueue_with(delay="5m", unique_key="k", connection=connection)(a=1)
        assert declared._send == [("work", '{"a":1}', {"delay": "5m", "unique_key": "k"}, connection)]

    def test_an_option_that_is_none_is_refused_before_the_arguments_are_asked_for(self) -> None:
        with pytest.raises(InvalidOption, match="no option 'a'"):
            job(add).enqueue_with(a=1)  # type: ignore[call-arg]

    def test_the_context_is_no_argument(self) -> None:
        def handler(user: int, *, context: JobContext) -> None: ...

        declared = job(handler)
        declared.enqueue(user=1)
        assert sent(declared) == {"user": 1}
        with pytest.raises(InvalidArguments):
            declared.enqueue(user=1, context=CONTEXT)


class TestPreparing:
    def test_arguments_are_bound_by_name(self) -> None:
        assert performed(job(add), '{"b": 2, "a": 1}') == 3
        assert performed(job(add), '{"a": 1}') == 11

    @pytest.mark.parametrize("args", ['{"b": 1}', '{"a": 1, "c": 1}', "[1]", "null", "5", '"a"', "{", '{"a": NaN}'])
    def test_arguments_that_do_not_fit_are_refused_before_the_call(self, args: str) -> None:
        with pytest.raises(InvalidArguments):
            job(add).prepare(args, lambda: CONTEXT)

    def test_a_handlers_own_type_error_is_its_own(self) -> None:
        def handler() -> None:
            raise TypeError("mine")

        call = job(handler).prepare("{}", lambda: CONTEXT)
        with pytest.raises(TypeError, match="mine"):
            call()

    def test_the_context_is_injected_by_name_wherever_it_stands(self) -> None:
        def first(context: JobContext, a: int) -> tuple[JobContext, int]:
            return context, a

        def last(a: int, *, context: JobContext) -> tuple[JobContext, int]:
            return context, a

        for handler in (first, last):
            assert performed(job(handler), '{"a": 1}') == (CONTEXT, 1)
            with pytest.raises(InvalidArguments):
                job(handler).prepare('{"a": 1, "context": 2}', lambda: CONTEXT)

    def test_further_arguments_go_to_a_handler_that_takes_any(self) -> None:
        def handler(a: int, **rest: Any) -> dict[str, Any]:
            return rest

        assert performed(job(handler), '{"a": 1, "b": 2, "rest": 3}') == {"b": 2, "rest": 3}
        declared = job(handler)
        declared.enqueue(1, b=2, rest=3)
        assert sent(declared) == {"a": 1, "b": 2, "rest": 3}

    def test_annotated_values_come_back_as_what_they_were(self) -> None:
        def handler(at: datetime, ids: list[UUID] | None = None) -> tuple[datetime, list[UUID] | None]:
            return at, ids

        id = new_id()
        declared = job(handler)
        declared.enqueue(at=NOW, ids=[id])
        assert sent(declared) == {"at": "2026-01-01T00:00:00+00:00", "ids": [str(id)]}
        assert performed(declared, json.dumps(sent(declared))) == (NOW, [id])
        assert performed(declared, declared.encode({"at": NOW})) == (NOW, None)

    def test_an_annotation_that_cannot_be_looked_up_hides_no_other(self) -> None:
        def handler(price: OnlyForTypes, at: datetime) -> tuple[Any, datetime]:
            return price, at

        assert performed(job(handler), '{"price": "1.5", "at": "2026-01-01T00:00:00+00:00"}') == ("1.5", NOW)

    def test_decorated_handlers_keep_their_signature(self) -> None:
        @functools.wraps(add)
        def wrapped(*args: Any, **kwargs: Any) -> int:
            return -add(*args, **kwargs)

        assert performed(job(wrapped), '{"a": 1}') == -11
        assert performed(job(functools.partial(add, b=1)), '{"a": 1}') == 2

    def test_methods_and_callable_objects_are_handlers_too(self) -> None:
        class Mailer:
            def send(self, to: str) -> str:
                return to

            def __call__(self, to: str) -> str:
                return to * 2

        assert performed(job(Mailer().send), '{"to": "a"}') == "a"
        assert performed(job(Mailer()), '{"to": "a"}') == "aa"

    def test_an_async_handler_gives_a_coroutine(self) -> None:
        async def handler(a: int) -> int:
            return a

        class Later:
            async def __call__(self, a: int) -> int:
                return a

        for each in (handler, Later()):
            declared = job(each)
            assert declared.is_async
            assert asyncio.run(performed(declared, '{"a": 4}')) == 4
        assert not job(add).is_async

    def test_no_refusal_shows_an_argument(self) -> None:
        for args in ('{"a": "hunter2", "c": "hunter2"}', '{"hunter2', '["hunter2"]'):
            with pytest.raises(InvalidArguments) as refusal:
                job(add).prepare(args, lambda: CONTEXT)
            assert "hunter2" not in refusal.value.message + refusal.value.hint
