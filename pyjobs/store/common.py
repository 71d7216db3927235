"""What all stores share: the JSON their routines take, the exceptions for PJ codes, and how long to keep trying.

Options travel as JSON objects. Arguments of a job inside a JSON document (one of many jobs, a callback, a schedule)
travel as a JSON *string* that holds their text: so they arrive character for character, and whatever a caller
passes for JSON cannot become part of the document around it.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from pyjobs.errors import FROM_CONTRACT, InvalidArguments, InvalidConfiguration, InvalidOption, PyjobsError
from pyjobs.ids import new_ids
from pyjobs.records import ClaimRequest, Held, NewJob, Options, Outcome

UNSENDABLE = re.compile("[\0\ud800-\udfff]")
_quoted = json.encoder.encode_basestring_ascii  # json.dumps of a text, at a third of the time
PATIENCE_SECONDS = 5.0  # how long a call goes on when the engine aborts it or the connection is lost


def refusal(code: str, message: str, hint: str = "") -> PyjobsError:
    """The exception that stands for a PJ code."""
    return FROM_CONTRACT.get(code, PyjobsError)(message, hint)


def too_old(server: str, version: str, oldest: tuple[int, ...]) -> InvalidConfiguration:
    """The refusal of a server that lacks what the routines need."""
    return InvalidConfiguration(f"{server} {version} is too old", f"pyjobs needs {'.'.join(map(str, oldest))} or later")


def pauses(seconds: float = PATIENCE_SECONDS) -> Iterator[float]:
    """The pauses between tries: short ones first, each of a random length so that many callers do not come back at
    the same moment, and none once the time is up."""
    deadline = time.monotonic() + seconds
    longest = 0.02
    while time.monotonic() < deadline:
        yield random.uniform(longest / 4, longest)
        longest = min(longest * 2, 1.0)


def encoded(value: Any) -> str:
    """A value as JSON; moments and UUIDs as the contract writes them."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        hint = "pass text, numbers, true, false, None, lists, dicts, UUIDs and datetimes with a time zone"
        raise InvalidOption(f"an option cannot be sent: {error}", hint) from None


def check_args(args: str) -> None:
    """Refuse what no database can be sent: a NUL, or half a surrogate pair. JSON writes both as escapes."""
    if UNSENDABLE.search(args):
        raise InvalidArguments("args are not JSON", "a character that no JSON may hold unescaped stands in them")


def job_document(jobs: Sequence[NewJob]) -> str:
    """What ``jobs_enqueue_many`` takes. A job without an id gets one here, so that the call can be repeated."""
    ids = iter(new_ids(sum(job.id is None for job in jobs)))
    return f"[{','.join(_job(job, job.id or next(ids)) for job in jobs)}]"


def _job(job: NewJob, id: UUID) -> str:
    options = f',"options":{encoded(job.options)}' if job.options else ""
    return f'{{"name":{_quoted(job.name)},"args":{_quoted(job.args)},"id":"{id}"{options}}}'


def outcome_document(outcomes: Sequence[Outcome]) -> str:
    """What ``jobs_settle_many`` takes."""
    return f"[{','.join(map(_outcome, outcomes))}]"


def _outcome(outcome: Outcome) -> str:
    detail = f',"detail":{encoded(outcome.detail)}' if outcome.detail else ""
    return f'{{"id":"{outcome.id}","token":"{outcome.token}","outcome":"{outcome.outcome}"{detail}}}'


def held_document(held: Sequence[Held]) -> str:
    """What ``jobs_heartbeat`` takes."""
    return json.dumps([{"id": str(each.id), "token": str(each.token)} for each in held])


def claim_options(request: ClaimRequest) -> str:
    """What ``jobs_claim`` takes."""
    options: dict[str, Any] = {"max_jobs": request.max_jobs, "lease_ms": request.lease_ms}
    if request.queues is not None:
        options["queues"] = request.queues
    if request.names is not None:
        options["names"] = request.names
    return encoded(options)


def columns(record: type[Any], without: Collection[str] = ()) -> str:
    """The columns a record is read from, in the order of its fields."""
    return ", ".join(f'"{field.name}"' for field in fields(record) if field.name not in without)


@dataclass(frozen=True, slots=True)
class Condition:
    """One key of a filter: ``column`` stands in ``operator`` (=, IN, <) to ``value``; ``= None`` is IS NULL."""

    column: str
    operator: str
    value: Any


def conditions(filter: Options | None) -> list[Condition]:
    """The keys of a filter for reading ``jobs_list``. ``InvalidOption`` names one that is unknown or unreadable."""
    return [_condition(key, value) for key, value in (filter or {}).items()]


def _condition(key: str, value: Any) -> Condition:
    match key:
        case "id" | "batch_id":
            return Condition(key, "=", _uuid(key, value))
        case "ids":
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise InvalidOption(f"the filter {key} is not a list", "pass a list of ids")
            return Condition("id", "IN", [_uuid(key, each) for each in value])
        case "before":
            return Condition("enqueued_at", "<", _moment(key, value))
        case "state" | "queue" | "name" | "tenant" | "dead_reason":
            if not isinstance(value, str) and not (key == "tenant" and value is None):
                raise InvalidOption(f"the filter {key} is not a text", "pass a string")
            return Condition(key, "=", value)
        case _:
            raise InvalidOption(
                f"there is no filter {key!r}",
                "filters: id, ids, state, queue, name, tenant, batch_id, dead_reason, before",
            )


def _uuid(key: str, value: Any) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(f"the filter {key} holds {value!r}, which is not a UUID", "pass ids of jobs") from None


def _moment(key: str, value: Any) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (ValueError, TypeError):
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise InvalidOption(f"the filter {key} is not a moment", "pass an ISO 8601 text with an offset")
    return moment


def _plain(value: Any) -> str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} is not JSON")
