"""Lengths of time as people write them: ``"250ms"``, ``"30s"``, ``"1.5h"``, a whole number of ms, a timedelta.

Whatever is accepted is an exact, whole number of milliseconds between 0 and 100 years; everything else is
refused rather than rounded. Reading takes time linear in a bounded length, so text from a stranger is safe.
"""

from __future__ import annotations

import re
from datetime import timedelta

from pyjobs.errors import InvalidOption

LONGEST_MS = 36_525 * 86_400_000

_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?(ms|s|m|h|d|w)")
_HINT = "write a whole number of milliseconds, or one like '250ms', '30s', '5m', '1.5h', '1d', '1w'"


def milliseconds(value: int | str | timedelta, name: str = "duration") -> int:
    """The duration in whole milliseconds. ``name`` is what an ``InvalidOption`` calls the offending setting."""
    result = _exact(value)
    if result is None:
        raise InvalidOption(f"{name} is not a duration: {_quoted(value)}", _HINT)
    if result < 0:
        raise InvalidOption(f"{name} is negative: {_quoted(value)}", _HINT)
    if result > LONGEST_MS:
        raise InvalidOption(f"{name} is longer than 100 years: {_quoted(value)}", _HINT)
    return result


def text(ms: int) -> str:
    """The shortest exact way to write a duration: ``300000`` is ``"5m"``; ``milliseconds`` reads it back."""
    for unit, size in _UNITS.items():
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def _exact(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, timedelta):
        whole, rest = divmod(value, timedelta(milliseconds=1))
        return None if rest else whole
    if isinstance(value, str):
        return _read(value)
    return None


def _read(written: str) -> int | None:
    match = _DURATION.fullmatch(written)
    if match is None:
        return None
    whole, fraction, unit = match.groups(default="")
    scaled, rest = divmod(int(whole + fraction) * _UNITS[unit], 10 ** len(fraction))
    return None if rest else scaled


def _quoted(value: object) -> str:
    shown = repr(value) if isinstance(value, (str, timedelta, float)) else _number(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _number(value: object) -> str:
    # Python refuses to write out an int of more than a few thousand digits.
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return repr(value) if isinstance(value, int) else f"a {type(value).__name__}"
