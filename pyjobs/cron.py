"""When a schedule comes round next: cron expressions read by croniter, intervals counted from the epoch.

Cron: the usual five fields (minute hour day month weekday) with ranges, steps, lists, names, ``L`` and ``#``,
or a shorthand such as ``@hourly``. They are read in UTC unless a time zone is named; the answer is in UTC.

Daylight saving, in a named zone:

- *The gap.* A wall-clock time that the change of clocks jumps over comes round at the moment of the jump
  (02:30 at a jump from 02:00 to 03:00 runs at 03:00), so that a daily schedule runs every day.
- *The overlap.* A wall-clock time that happens twice runs at its first occurrence only, so that a daily
  schedule runs once that day; but if the hour field is ``*`` both occurrences run, as they are an hour apart.

Nothing here can hang: only expressions of a strict, short form reach croniter, which gives up on one that
never comes round ("0 0 30 2 *") after looking through 50 years.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

from pyjobs.errors import InvalidSchedule

_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_VALUE = r"(?:\*|[0-9]{1,2}|[a-z]{3})"
_ITEM = rf"(?:{_VALUE}(?:-{_VALUE})?(?:/[0-9]{{1,2}})?|{_VALUE}#[1-5]|l[0-7]?)"
_FIELD = re.compile(rf"{_ITEM}(?:,{_ITEM})*")
_LONGEST = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def next_moment(
    *,
    cron: str | None = None,
    every_ms: int | None = None,
    timezone: str = "UTC",
    after: datetime,
) -> datetime:
    """The schedule's first moment strictly after ``after`` (an aware datetime), in UTC.

    Give exactly one of ``cron`` and ``every_ms``. An interval is anchored on the epoch: every 15 minutes means
    :00, :15, :30 and :45. Raises ``InvalidSchedule`` for what cannot be read or never comes round.
    """
    if after.tzinfo is None:
        raise InvalidSchedule("the moment to start from has no time zone", "pass an aware datetime")
    if (cron is None) == (every_ms is None):
        raise InvalidSchedule("a schedule takes either cron or an interval", "give exactly one of the two")
    try:
        if cron is not None:
            return _next_cron(cron, zone(timezone), after)
        assert every_ms is not None
        return _next_interval(every_ms, after)
    except OverflowError:
        raise InvalidSchedule("the schedule's next moment is after the year 9999") from None


def zone(name: str) -> ZoneInfo:
    """The IANA time zone of that name; ``InvalidSchedule`` when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidSchedule(
            f"no time zone is called {name[:60]!r}", "use an IANA name such as 'UTC' or 'Europe/Paris'"
        ) from None


def _next_interval(every_ms: int, after: datetime) -> datetime:
    if every_ms < 1:
        raise InvalidSchedule(f"an interval of {every_ms} ms never comes round", "use at least 1 ms")
    step = every_ms * 1_000
    passed = (after - _EPOCH) // _MICROSECOND
    return _EPOCH + timedelta(microseconds=(passed // step + 1) * step)


def _next_cron(cron: str, timezone: ZoneInfo, after: datetime) -> datetime:
    fields = _fields(cron)
    every_hour = fields[1] == "*"
    try:
        moments = croniter(" ".join(fields), after.astimezone(timezone))
        moment: datetime = moments.get_next(datetime)
        while moment.fold and not every_hour:
            moment = moments.get_next(datetime)
    except (CroniterError, ValueError) as error:
        raise _refused(cron, str(error)) from None
    return moment.astimezone(UTC)


def _fields(cron: str) -> list[str]:
    if len(cron) > _LONGEST:
        raise _refused(cron, f"it is longer than {_LONGEST} characters")
    written = cron.strip().lower()
    fields = _SHORTHANDS.get(written, written).split()
    if len(fields) != 5:
        raise _refused(cron, f"it has {len(fields)} fields, not 5")
    for field in fields:
        if _FIELD.fullmatch(field) is None:
            raise _refused(cron, f"{field!r} is not a cron field")
    return fields


def _refused(cron: str, why: str) -> InvalidSchedule:
    if why == "failed to find next date":
        why = "it never comes round"
    shown = cron if len(cron) <= 60 else cron[:57] + "..."
    return InvalidSchedule(
        f"the cron expression {shown!r} is refused: {why}",
        "write five fields, minute hour day month weekday, or a shorthand such as @hourly",
    )
