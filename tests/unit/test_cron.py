from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjobs.cron import next_moment
from pyjobs.errors import InvalidSchedule

MONDAY = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")


def moments(cron: str, after: datetime, count: int, timezone: str = "UTC") -> list[datetime]:
    found = []
    for _ in range(count):
        after = next_moment(cron=cron, timezone=timezone, after=after)
        found.append(after)
    return found


def in_paris(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text).astimezone(UTC) for text in texts]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("* * * * *", "2026-03-02T08:31"),
        ("30 8 * * *", "2026-03-03T08:30"),
        ("*/15 * * * *", "2026-03-02T08:45"),
        ("0 3 * * *", "2026-03-03T03:00"),
        ("0 8 * * mon", "2026-03-09T08:00"),
        ("0 8 * * 1-5", "2026-03-03T08:00"),
        ("0 0 1 jan,jul *", "2026-07-01T00:00"),
        ("0 0 13 * 5", "2026-03-06T00:00"),
        ("0 0 l * *", "2026-03-31T00:00"),
        ("0 9 * * mon#1", "2026-03-02T09:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("@hourly", "2026-03-02T09:00"),
        ("@daily", "2026-03-03T00:00"),
        ("@weekly", "2026-03-08T00:00"),
        ("@monthly", "2026-04-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("  0\t3  *  * * ", "2026-03-03T03:00"),
    ],
)
def test_the_next_moment_is_found(cron: str, expected: str) -> None:
    assert next_moment(cron=cron, after=MONDAY) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "0 0 1 1 * 0 2099",
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "60 * * * *",
        "* 24 * * *",
        "0 0 32 * *",
        "0 0 0 * *",
        "0 0 * 13 *",
        "0 0 * foo *",
        "*/0 * * * *",
        "5-1-2 * * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "@reboot",
        "@every",
        "h h * * *",
        "r r * * *",
        "$(id) * * * *",
        "* * * * *;",
        "٣ * * * *",
        "0 0 * * 5#6",
    ],
)
def test_what_cannot_be_read_or_never_comes_round_is_refused(cron: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        next_moment(cron=cron, after=MONDAY)
    assert repr(cron) in refusal.value.message
    assert refusal.value.hint


def test_never_coming_round_is_said_in_plain_words() -> None:
    with pytest.raises(InvalidSchedule, match="never comes round"):
        next_moment(cron="0 0 30 2 *", after=MONDAY)


@pytest.mark.parametrize(
    "hostile",
    [
        "1," * 500_000 + "1 * * * *",
        "*" * 1_000_000,
        " " * 1_000_000,
        "0 0 30,31 2 *",
        ",".join("*/1" for _ in range(70)) + " 0 31 2,4,6,9,11 *",
    ],
)
def test_a_hostile_expression_is_answered_in_bounded_time(hostile: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidSchedule) as refusal:
        next_moment(cron=hostile, after=MONDAY)
    assert len(refusal.value.message) < 300
    assert time.process_time() - began < 1


def test_a_zone_shifts_the_wall_clock() -> None:
    assert moments("0 3 * * *", MONDAY, 1, "Europe/Paris") == in_paris("2026-03-03T03:00+01:00")


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd", "Europe", "UTC\0", "x" * 10_000])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchedule, match="no time zone"):
        next_moment(cron="@daily", timezone=name, after=MONDAY)


def test_a_time_that_the_clocks_jump_over_comes_round_at_the_jump() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert moments("30 2 * * *", before, 2, "Europe/Paris") == in_paris(
        "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"
    )


def test_a_time_that_happens_twice_runs_once() -> None:
    before = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert moments("30 2 * * *", before, 2, "Europe/Paris") == in_paris(
        "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"
    )


def test_between_its_two_occurrences_only_the_next_day_is_left() -> None:
    between = datetime(2026, 10, 25, 0, 45, tzinfo=UTC)
    assert moments("30 2 * * *", between, 1, "Europe/Paris") == in_paris("2026-10-26T02:30+01:00")


def test_an_hourly_schedule_runs_in_both_of_the_hours() -> None:
    before = datetime(2026, 10, 24, 23, 0, tzinfo=UTC)
    assert moments("30 * * * *", before, 4, "Europe/Paris") == in_paris(
        "2026-10-25T01:30+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"
    )


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"])
def test_a_daily_schedule_runs_once_on_every_day_of_a_year(zone: str) -> None:
    days = [
        moment.astimezone(ZoneInfo(zone)).date()
        for moment in moments("30 2 * * *", datetime(2026, 1, 1, tzinfo=UTC), 366, zone)
    ]
    assert all(later - earlier == timedelta(days=1) for earlier, later in pairwise(days))


CRONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 */3 * * *", "15 1-4 * * sun", "0 0 1 * *", "0 0 29 2 *", "@hourly"]
)
ZONES = st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata", "Pacific/Chatham"])
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2080, 1, 1), timezones=st.just(UTC))


@given(CRONS, ZONES, MOMENTS)
def test_the_next_moment_is_strictly_later_and_nothing_lies_between(cron: str, zone: str, after: datetime) -> None:
    found = next_moment(cron=cron, timezone=zone, after=after)
    assert found > after
    assert found.tzinfo is UTC
    assert (found.second, found.microsecond) == (0, 0)
    assert next_moment(cron=cron, timezone=zone, after=found - timedelta(microseconds=1)) == found
    assert next_moment(cron=cron, timezone=zone, after=after + (found - after) / 2) == found


@given(st.integers(1, 10**12), MOMENTS)
def test_an_interval_is_anchored_on_the_epoch(every_ms: int, after: datetime) -> None:
    found = next_moment(every_ms=every_ms, after=after)
    since_epoch = (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert since_epoch % every_ms == 0
    assert after < found <= after + timedelta(milliseconds=every_ms)


def test_a_quarter_of_an_hour_means_the_quarters() -> None:
    assert next_moment(every_ms=900_000, after=MONDAY) == MONDAY.replace(minute=45)


@pytest.mark.parametrize("every_ms", [0, -1, 10**18])
def test_an_interval_that_never_comes_round_is_refused(every_ms: int) -> None:
    with pytest.raises(InvalidSchedule):
        next_moment(every_ms=every_ms, after=MONDAY)


def test_exactly_one_timing_is_needed() -> None:
    with pytest.raises(InvalidSchedule, match="either"):
        next_moment(after=MONDAY)
    with pytest.raises(InvalidSchedule, match="either"):
        next_moment(cron="@daily", every_ms=1, after=MONDAY)


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="time zone"):
        next_moment(cron="@daily", after=datetime(2026, 1, 1))


def test_the_end_of_time_is_refused_not_overrun() -> None:
    with pytest.raises(InvalidSchedule):
        next_moment(cron="@yearly", after=datetime(9999, 12, 31, tzinfo=UTC))
