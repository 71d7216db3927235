"""What a job declares: its handler, and how its attempts are queued, bounded, repeated and kept.

A ``Job`` stands where the handler stood: calling it calls the handler, ``enqueue`` takes the handler's own
arguments. Arguments are bound to the signature twice: when they are enqueued, so that a mistake is found by
who makes it, and before the call, since the row may come from another version or another language.
"""

from __future__ import annotations

import functools
import inspect
import math
import typing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack
from uuid import UUID

from pyjobs import tenant
from pyjobs.arguments import DEEPEST, Codec, codecs_of, decode_all, dumps, encode_all, loads
from pyjobs.context import JobContext
from pyjobs.duration import milliseconds
from pyjobs.errors import InvalidArguments, InvalidConfiguration
from pyjobs.options import Duration, EnqueueOptions, contract_options

P = ParamSpec("P")
R = TypeVar("R")

Isolation = Literal["thread", "process"]

_CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed job waits: base * factor ** (attempt - 1), at most ``max``, give or take ``jitter`` of it."""

    base: Duration = "5s"
    factor: float = 4.0
    max: Duration = "1h"
    jitter: float = 0.15

    def __post_init__(self) -> None:
        self.options()
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise InvalidConfiguration(f"a backoff's factor is {self.factor}", "use a number of at least 1")
        if not 0 <= self.jitter <= 1:
            raise InvalidConfiguration(f"a backoff's jitter is {self.jitter}", "use a number from 0 to 1")

    def options(self) -> dict[str, Any]:
        """The option ``backoff`` of ``jobs_define``."""
        return {
            "base_ms": milliseconds(self.base, "backoff.base"),
            "factor": self.factor,
            "max_ms": milliseconds(self.max, "backoff.max"),
            "jitter": self.jitter,
        }


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many run at once, over all workers: ``limit`` of the job; of each value of the argument ``key`` (a
    dotted path); of all jobs that name the same ``group``."""

    limit: int
    key: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if type(self.limit) is not int or self.limit < 1:
            raise InvalidConfiguration(f"a concurrency limit is {self.limit!r}", "use a whole number of at least 1")

    def options(self) -> dict[str, Any]:
        """The option ``concurrency`` of ``jobs_define``."""
        given = {"limit": self.limit, "key": self.key, "group": self.group}
        return {name: value for name, value in given.items() if value is not None}


class JobOptions(TypedDict, total=False):
    """What a definition may say; the defaults are those of ``jobs_define``."""

    queue: str
    priority: int
    max_attempts: int
    timeout: Duration | None
    """How long one attempt may take; None: as long as it likes."""
    backoff: Backoff
    concurrency: Concurrency | None
    keep_done: Duration
    keep_dead: Duration | None
    """None: for ever."""
    isolation: Isolation
    """Where a plain ``def`` runs: a thread, or a process, which is killed with all that it has started on timeout, when
    the job is cancelled or lost, and when a stopping worker's grace is over. Nothing tells it before, so its
    ``context.cancelled`` is never set. The process imports the application anew and is used for one attempt after
    another; its time runs once it is ready. The handler must stand at the top of a module, under its own name."""


class Sender(Protocol):
    """What a job enqueues itself by: ``Jobs.send``."""

    def __call__(self, name: str, args: str, options: EnqueueOptions, connection: Any) -> UUID: ...


class Job(Generic[P, R]):
    """One defined job. Made by ``Jobs.job`` and ``Jobs.define``. A worker calls its handler within ``entered``, the
    scope of the row's tenant."""

    def __init__(
        self,
        name: str,
        handler: Callable[P, R],
        send: Sender,
        entered: Callable[[str | None], AbstractContextManager[None]] = tenant.entered,
        **options: Unpack[JobOptions],
    ) -> None:
        unknown = options.keys() - JobOptions.__annotations__.keys()
        if unknown:
            raise InvalidConfiguration(
                f"the job {name!r} has no option {min(unknown)!r}", "options: " + ", ".join(JobOptions.__annotations__)
            )
        self.name = name
        self.handler = handler
        self.queue = options.get("queue", "default")
        self.priority = options.get("priority", 0)
        self.max_attempts = options.get("max_attempts", 5)
        self.timeout_ms = _optional_ms(options.get("timeout"), "timeout")
        self.backoff = options.get("backoff", Backoff())
        self.concurrency = options.get("concurrency")
        self.keep_done_ms = milliseconds(options.get("keep_done", "1d"), "keep_done")
        self.keep_dead_ms = _optional_ms(options.get("keep_dead"), "keep_dead")
        self.isolation: Isolation = options.get("isolation", "thread")
        self.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
        self.entered = entered
        self._send = send
        self._signature = _Signature.of(name, handler)
        self._check()
        functools.update_wrapper(self, handler, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The handler itself, called here and now."""
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> UUID:
        """Enqueue the job with the handler's own arguments; its id. Calls ``jobs_enqueue``.

        Raises ``InvalidArguments`` when they do not fit the handler or would not come back the same.
        """
        return self._send(self.name, self._signature.bind(args, kwargs), EnqueueOptions(), None)

    def enqueue_with(self, *, connection: Any = None, **options: Unpack[EnqueueOptions]) -> Callable[P, UUID]:
        """``enqueue`` with options: ``welcome.enqueue_with(delay="5m", unique_key="w:1")(user_id=1)``.

        With ``connection`` it happens in the transaction that is open there. ``InvalidOption`` for an option that is
        none, such as an argument of the job's that was given in the first call instead of the second.
        """
        contract_options(options)

        def enqueue(*args: P.args, **kwargs: P.kwargs) -> UUID:
            return self._send(self.name, self._signature.bind(args, kwargs), options, connection)

        return enqueue

    def encode(self, args: Mapping[str, Any]) -> str:
        """The named arguments as JSON, by the handler's annotations; they need not fit its signature."""
        return self._signature.encode(args)

    def prepare(self, args_json: str, context: Callable[[], JobContext]) -> Callable[[], R]:
        """The handler with its arguments in hand, ``context`` being asked for only if it takes one; calling the result
        calls it (a coroutine for an async one).

        Raises ``InvalidArguments`` when the JSON cannot be read or does not fit the handler.
        """
        return functools.partial(self.handler, **self._signature.fit(args_json, context))

    def options(self) -> dict[str, Any]:
        """The options of ``jobs_define``, all of them: what was taken out of the code goes from the database."""
        return {
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "timeout_ms": self.timeout_ms,
            "backoff": self.backoff.options(),
            "concurrency": self.concurrency.options() if self.concurrency else None,
            "keep_done_ms": self.keep_done_ms,
            "keep_dead_ms": self.keep_dead_ms,
        }

    def _check(self) -> None:
        if not isinstance(self.backoff, Backoff):
            raise InvalidConfiguration(f"the job {self.name!r} has no Backoff as backoff", "write Backoff(base='5s')")
        if not isinstance(self.concurrency, Concurrency | None):
            raise InvalidConfiguration(
                f"the job {self.name!r} has no Concurrency as concurrency", "write Concurrency(limit=3)"
            )
        if self.isolation not in ("thread", "process"):
            raise InvalidConfiguration(
                f"the job {self.name!r} has the isolation {self.isolation!r}", "use 'thread' or 'process'"
            )
        if self.is_async and self.isolation == "process":
            raise InvalidConfiguration(
                f"the job {self.name!r} is async and asks for a process", "a coroutine runs in the worker's event loop"
            )
        if inspect.isgeneratorfunction(self.handler) or inspect.isasyncgenfunction(self.handler):
            raise InvalidConfiguration(
                f"the handler of {self.name!r} is a generator, of which a call does nothing", "write it without yield"
            )
        if self.timeout_ms == 0:
            raise InvalidConfiguration(f"the job {self.name!r} has a timeout of 0", "leave it out for none")


@dataclass(frozen=True, slots=True)
class _Signature:
    """A handler's parameters, without the context, and how each one's value travels."""

    job: str
    parameters: Signature
    names: frozenset[str]
    required: frozenset[str]
    rest: str | None
    """The name of its ``**`` parameter."""
    codecs: Mapping[str, Codec]
    takes_context: bool

    @classmethod
    def of(cls, job: str, handler: Callable[..., Any]) -> _Signature:
        signature = inspect.signature(handler)
        for parameter in signature.parameters.values():
            if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL):
                raise InvalidConfiguration(
                    f"the job {job!r} takes {str(parameter)!r} by position", "arguments are stored by name"
                )
        kept = [each for each in signature.parameters.values() if not _is_context(each)]
        named = [each for each in kept if not _is_rest(each)]
        annotations = _annotations(handler)
        return cls(
            job=job,
            parameters=signature.replace(parameters=kept),
            names=frozenset(each.name for each in named),
            required=frozenset(each.name for each in named if each.default is Parameter.empty),
            rest=next((each.name for each in kept if _is_rest(each)), None),
            codecs=codecs_of({each.name: annotations.get(each.name) for each in named}),
            takes_context=len(kept) < len(signature.parameters),
        )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        return self.encode(self._bound(args, kwargs))

    def encode(self, args: Mapping[str, Any]) -> str:
        if not isinstance(args, Mapping):
            raise InvalidArguments("args is not a mapping of names to values", 'pass them by name: {"user_id": 1}')
        try:
            return dumps(encode_all(args, self.codecs, "args") if self.codecs else dict(args))
        except RecursionError:  # a dataclass that contains itself
            raise _too_deep() from None

    def fit(self, args_json: str, context: Callable[[], JobContext]) -> dict[str, Any]:
        args = loads(args_json)
        if not isinstance(args, dict):
            raise InvalidArguments(f"the arguments of {self.job!r} are not a JSON object", "they are passed by name")
        if not self.required <= args.keys() or (self.rest is None and not args.keys() <= self.names):
            self._bound((), args)  # says what does not fit; binding each time would cost more than the rest of this
        try:
            values = decode_all(args, self.codecs, "args") if self.codecs else args
        except RecursionError:
            raise _too_deep() from None
        return values | {_CONTEXT: context()} if self.takes_context else values

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not args and self.required <= kwargs.keys() <= self.names:
            return kwargs  # all by name, as is usual: binding them would cost more than the rest of an enqueue here
        try:
            bound = self.parameters.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(
                f"the arguments do not fit {self.job!r}: {error}", f"it takes {self.parameters}"
            ) from None
        rest = bound.pop(self.rest, {}) if self.rest else {}
        return bound | rest


def _too_deep() -> InvalidArguments:
    return InvalidArguments(f"args are nested more than {DEEPEST} levels deep, or contain themselves")


def _is_context(parameter: Parameter) -> bool:
    return parameter.name == _CONTEXT and not _is_rest(parameter)


def _is_rest(parameter: Parameter) -> bool:
    return parameter.kind is Parameter.VAR_KEYWORD


def _annotations(handler: Callable[..., Any]) -> dict[str, Any]:
    """The handler's annotations that can be looked up now; one that cannot must not hide the others."""
    function = inspect.unwrap(handler)
    scope = getattr(function, "__globals__", {})
    found = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = type("_", (), {"__annotations__": {name: annotation}})
        try:
            found.update(typing.get_type_hints(holder, globalns=scope, localns={}, include_extras=True))
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return found


def _optional_ms(value: Duration | None, name: str) -> int | None:
    return None if value is None else milliseconds(value, name)
