"""Performing a handler, and what came of it: the one place that turns exceptions into outcomes.

Whatever a handler raises, ``SystemExit`` and ``KeyboardInterrupt`` included, is the failure of its attempt
and of nothing else. What is told of it is cut to a bounded length and made of characters every database
takes. A stack holds source lines, never the values of variables, so no arguments get into it.
"""

from __future__ import annotations

import contextvars
import time
import traceback
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pyjobs import duration
from pyjobs.context import Permanent, RetryAfter, Snooze
from pyjobs.errors import InvalidArguments, PyjobsError
from pyjobs.records import ClaimedJob, Outcome, OutcomeKind
from pyjobs.tenant import current
from pyjobs.worker.attempt import Attempt, Ending

_LONGEST_TYPE = 190
_LONGEST_MESSAGE = 2_000
_LONGEST_STACK = 16_000
_FRAMES = 60
_NOBODYS = nullcontext()


@dataclass(slots=True)
class Result:
    """What a handler came to, before anybody asked whether that still matters."""

    outcome: Outcome
    error: BaseException | None = None


def perform(attempt: Attempt) -> Result:
    """Call the handler on this thread, in a context of its own: what it sets there is gone afterwards."""
    return contextvars.copy_context().run(_perform, attempt)


def _perform(attempt: Attempt) -> Result:
    claimed = attempt.claimed
    if attempt.halted is not None:
        return not_performed(claimed)
    try:
        call = attempt.job.prepare(claimed.args, attempt.context)
    except BaseException as error:
        return _unprepared(claimed, error)
    try:
        with _scope(attempt):
            _refuse_unperformed(call())
    except BaseException as error:
        return raised(claimed, error)
    return Result(_outcome(claimed, "done"))


def _scope(attempt: Attempt) -> AbstractContextManager[None]:
    """Its tenant's. Threads and tasks begin in nobody's as a rule, and then a job of no tenant has nothing to enter."""
    tenant = attempt.claimed.tenant
    return _NOBODYS if tenant is None and current() is None else attempt.job.entered(tenant)


def _refuse_unperformed(answer: object) -> None:
    """A handler that hides an ``async def`` or a generator behind a plain function has done nothing yet: that is no
    success, and the next attempt would do no more."""
    if isinstance(answer, Coroutine | Generator):
        answer.close()
    elif not isinstance(answer, AsyncGenerator):
        return
    raise Permanent(
        f"the handler did nothing: it answered a {type(answer).__name__}, which nobody runs;"
        " make it, and what decorates it, async def, or a plain def without yield"
    )


async def perform_async(attempt: Attempt) -> Result:
    """Await the handler; a task has a context of its own already."""
    claimed = attempt.claimed
    if attempt.halted is not None:
        return not_performed(claimed)
    try:
        call = attempt.job.prepare(claimed.args, attempt.context)
    except BaseException as error:
        return _unprepared(claimed, error)
    try:
        with _scope(attempt):
            await call()
    except BaseException as error:
        return raised(claimed, error)
    return Result(_outcome(claimed, "done"))


def raised(claimed: ClaimedJob, error: BaseException) -> Result:
    """The outcome of an exception out of the handler (or out of what should have called it)."""
    if isinstance(error, Snooze):
        return Result(_outcome(claimed, "snoozed", {"delay_ms": error.delay_ms}))
    detail = told(error)
    if isinstance(error, RetryAfter):
        detail["retry_in_ms"] = error.delay_ms
    elif isinstance(error, Permanent) or _is_final(error):
        detail["permanent"] = True
    return Result(_outcome(claimed, "failed", detail), error)


def told(error: BaseException) -> dict[str, Any]:
    """What is told of an exception that fails an attempt."""
    return _failure("error", error)


def failed(claimed: ClaimedJob, detail: Mapping[str, Any]) -> Result:
    """The outcome of a failure that was told of elsewhere."""
    return Result(_outcome(claimed, "failed", detail))


def timed_out(claimed: ClaimedJob) -> Result:
    limit = duration.text(claimed.timeout_ms or 0)
    error = TimeoutError(f"the attempt took longer than its timeout of {limit}")
    return Result(_outcome(claimed, "failed", _failure("timeout", error)), error)


def unknown_name(claimed: ClaimedJob) -> Ending:
    message = f"this worker has no job called {claimed.name!r}"
    detail = {"kind": "unknown_name", "type": "UnknownJob", "message": message}
    return Ending(claimed, _outcome(claimed, "failed", detail))


def refused(claimed: ClaimedJob, refusal: PyjobsError) -> Outcome:
    """Instead of an outcome that the database does not take: why it does not."""
    detail = {"kind": "error", "type": type(refusal).__name__, "message": _bounded(str(refusal), _LONGEST_MESSAGE)}
    return _outcome(claimed, "failed", detail)


def not_performed(claimed: ClaimedJob) -> Result:
    """Back to where it stood, uncounted."""
    return Result(_outcome(claimed, "released"))


def ending(attempt: Attempt, result: Result) -> Ending:
    """What the dispatcher hears of an attempt: the result, unless it was halted for a reason that counts more."""
    claimed = attempt.claimed
    ran = None if attempt.began is None else time.monotonic() - attempt.began
    match attempt.halted:
        case "lost":
            return Ending(claimed, None, ran=ran)
        case "cancel":
            message = "cancelled before it began" if ran is None else "cancelled while it ran"
            return Ending(claimed, _outcome(claimed, "cancelled", {"message": message}), ran=ran)
        case "stop":
            return Ending(claimed, not_performed(claimed).outcome, ran=ran)
        case _:
            return Ending(claimed, result.outcome, result.error, ran)


def _outcome(claimed: ClaimedJob, kind: OutcomeKind, detail: Mapping[str, Any] | None = None) -> Outcome:
    return Outcome(claimed.id, claimed.token, kind, detail or {})


def _unprepared(claimed: ClaimedJob, error: BaseException) -> Result:
    if isinstance(error, InvalidArguments):
        return Result(_outcome(claimed, "failed", _failure("invalid_args", error)), error)
    return raised(claimed, error)


def _failure(kind: str, error: BaseException) -> dict[str, Any]:
    return {
        "kind": kind,
        "type": _bounded(_name(type(error)), _LONGEST_TYPE),
        "message": _bounded(_message(error), _LONGEST_MESSAGE),
        "stack": _stack(error),
    }


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as unprintable:
        return f"its message cannot be shown: {type(unprintable).__name__}"


def _is_final(error: BaseException) -> bool:
    """An exception that says ``retryable = False`` of itself; one that cannot even be asked is retried."""
    try:
        return getattr(error, "retryable", None) is False
    except Exception:
        return False


def _stack(error: BaseException) -> str:
    """The traceback from the handler on; of one that is too long, the end, where the cause is."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _from_handler(error), limit=-_FRAMES))
    except Exception as unprintable:
        return f"the stack cannot be shown: {type(unprintable).__name__}"
    return _clean(text if len(text) <= _LONGEST_STACK else "…" + text[-_LONGEST_STACK + 1 :])


def _from_handler(error: BaseException) -> TracebackType | None:
    first = error.__traceback__
    return first.tb_next if first is not None else None


def _bounded(text: str, longest: int) -> str:
    return _clean(text if len(text) <= longest else text[: longest - 1] + "…")


def _clean(text: str) -> str:
    """No NUL and no lone surrogate: there are databases that take neither."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
