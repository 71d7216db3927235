"""Values on a command line that click does not know: durations and moments."""

from __future__ import annotations

from datetime import datetime

import click

from pyjobs.duration import milliseconds
from pyjobs.errors import InvalidOption


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
