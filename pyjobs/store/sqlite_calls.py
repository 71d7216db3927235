"""Calls of SQLite's routines, and what their refusals mean.

What a trigger of SQLite raises is a literal: "PJ… what was wrong; what to do about it". It cannot name the offending
job, key or id, so that is added here, from the arguments of the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Ask = Callable[..., list[tuple[Any, ...]]]

NO_SUCH = re.compile(r"there is no such (\w+)(?: (?:in|of) (\S+))?")


@dataclass(frozen=True, slots=True)
class Call:
    """A routine with its arguments. The answer is what ``returning`` selects, or the rows of the query ``then``.
    ``lasting``: what it did must be there still after the power has gone."""

    routine: str
    arguments: dict[str, Any]
    returning: str = ""
    then: str = ""
    then_values: tuple[Any, ...] = ()
    lasting: bool = True

    @property
    def statement(self) -> str:
        """The insert that calls it."""
        names, marks = ", ".join(self.arguments), ", ".join("?" * len(self.arguments))
        returning = f" RETURNING {self.returning}" if self.returning else ""
        return f"INSERT INTO {self.routine} ({names}) VALUES ({marks}){returning}"

    def document(self, argument: str) -> dict[str, Any]:
        """An argument that is a JSON object, as such; empty where it is none."""
        try:
            document = json.loads(self.arguments.get(argument) or "{}")
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


def explained(code: str, said: str, call: Call, ask: Ask) -> tuple[str, str]:
    """The message and hint of a refusal, with the name that ``said`` leaves open. ``ask`` queries the database."""
    message, _, hint = said.partition("; ")
    match code:
        case "PJ001":
            return f"no job named {json.dumps(_job_name(call, ask), ensure_ascii=False)} is defined", _defined(ask)
        case "PJ002" if "too large" in message:
            [(limit,)] = ask("SELECT value FROM jobs_settings WHERE name = 'max_args_bytes'")
            return f"{message}: more than {limit} bytes", hint
        case "PJ003" if found := NO_SUCH.fullmatch(message):
            return _unknown(call, found[1], found[2], hint), hint
        case "PJ004" | "PJ005":
            return f"{message}: {_batch_id(call)}", hint
        case "PJ006":
            return f"{message}: {call.document('filter').get('id')}", hint
        case "PJ007":
            [(key,)] = ask("SELECT unique_key FROM jobs WHERE id = lower(?)", call.document("filter").get("id"))
            return f"{message}: {key}", hint
        case "PJ008":
            group = (call.document("options").get("concurrency") or {}).get("group") or call.arguments["name"]
            return f"{message}: {group}", hint
    return message, hint


def _job_name(call: Call, ask: Ask) -> Any:
    match call.routine:
        case "jobs_tick_schedule":
            [(name,)] = ask("SELECT job FROM jobs_schedules WHERE name = ?", call.arguments["name"])
            return name
        case "jobs_open_batch":
            return call.document("options")["callback"]["name"]
        case "jobs_put_schedule":
            return call.document("options")["job"]
    return call.arguments.get("name")


def _defined(ask: Ask) -> str:
    names = [name for (name,) in ask("SELECT name FROM jobs_definitions ORDER BY name LIMIT 100")]
    if not names:
        return "nothing is defined yet: call jobs_define, or run pyjobs sync"
    return "defined are " + ", ".join(names)


def _batch_id(call: Call) -> Any:
    return call.arguments.get("batch_id") or call.document("options").get("batch_id")


def _unknown(call: Call, kind: str, place: str | None, hint: str) -> str:
    """Which option, filter, detail, outcome or setting it is that is not among those the hint lists."""
    if kind in ("outcome", "setting"):
        return f"there is no {kind} {call.arguments['outcome' if kind == 'outcome' else 'name']!r}"
    known = hint.partition(": ")[2].split(", ")
    given: Any = call.document("options" if kind == "option" else kind)
    for step in place.split(".") if place and kind == "option" else ():
        given = given.get(step) or {}
    unknown = next((key for key in given if key not in known), "")
    return f"there is no {kind} {unknown!r}" + (f" in {place}" if place else "")
