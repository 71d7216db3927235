"""The job that everybody performs: it does nothing, with some hundred bytes of arguments. host.mjs has the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TypedDict

BUCKETS = 1_000
"""How many different ``to`` there are: W8 limits each to one job at a time."""

CALLBACK = 50_000_000
"""The number of the job that is a batch's callback."""


class Payload(TypedDict):
    id: int
    to: str
    subject: str
    body: str


def payload(number: int) -> Payload:
    """The arguments of job ``number``."""
    return {"id": number, "to": bucket(number), "subject": "Welcome aboard", "body": "x" * 24}


def payload_json(number: int) -> str:
    return json.dumps(payload(number))


def bucket(number: int) -> str:
    return f"user-{number % BUCKETS:03}@example.com"


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)
