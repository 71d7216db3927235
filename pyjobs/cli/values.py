"""Values on a command line that click does not know: arguments of jobs, durations and moments."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from pyjobs.arguments import loads
from pyjobs.duration import milliseconds
from pyjobs.errors import InvalidArguments, InvalidOption


def arguments(written: str) -> str:
    """The text of a JSON object, which ``-`` reads from standard input."""
    text = sys.stdin.read() if written == "-" else written
    if not _is_object(text):
        raise InvalidArguments("the arguments are not a JSON object", """write them as '{"user_id": 1}'""")
    return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(loads(text), dict)
    except InvalidArguments:
        return False


def duration(written: str) -> int:
    """A duration such as ``5m``, in ms."""
    try:
        return milliseconds(written, "it")
    except InvalidOption as error:
        raise click.BadParameter(f"{error.message}: write one like 250ms, 30s, 5m, 1.5h, 1d") from None


def moment(written: str) -> datetime:
    """A moment in ISO 8601 with its offset: a wall clock without one means another moment on another machine."""
    try:
        read = datetime.fromisoformat(written)
    except ValueError:
        raise click.BadParameter(f"{written!r} is not a moment: write 2026-01-31T09:00:00Z") from None
    if read.utcoffset() is None:
        raise click.BadParameter(f"{written!r} has no time zone: end it with Z, or with an offset such as +01:00")
    return read
