from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjobs.duration import LONGEST_MS, milliseconds, text
from pyjobs.errors import InvalidOption


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (0, 0),
        (1500, 1_500),
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
        ("1.5h", 5_400_000),
        ("0.001s", 1),
        ("0s", 0),
        (timedelta(minutes=5, milliseconds=1), 300_001),
    ],
)
def test_what_people_write_is_read(written: int | str | timedelta, ms: int) -> None:
    assert milliseconds(written) == ms


@pytest.mark.parametrize(
    "written",
    [
        "",
        "5",
        "m",
        "5 m",
        " 5m",
        "5m\n",
        "5M",
        "5min",
        "1h30m",
        "-5s",
        "+5s",
        "1e3s",
        ".5s",
        "5.s",
        "nan",
        "nanms",
        "inf",
        "0.0001s",
        "0.3ms",
        "٣s",
        "100000000000000d",
        "9" * 400 + "ms",
        "36526d",
        -1,
        LONGEST_MS + 1,
        pytest.param(10**5000, id="huge"),
        1.5,
        float("nan"),
        True,
        None,
        b"5m",
        timedelta(microseconds=1),
        timedelta(seconds=-1),
        timedelta.max,
    ],
)
def test_everything_else_is_refused_with_a_hint(written: object) -> None:
    with pytest.raises(InvalidOption) as refusal:
        milliseconds(written, "timeout")  # type: ignore[arg-type]
    assert "timeout" in refusal.value.message
    assert refusal.value.hint
    assert len(refusal.value.message) < 120


def test_the_refusal_quotes_what_was_written() -> None:
    with pytest.raises(InvalidOption, match="delay is not a duration: '5 parsecs'"):
        milliseconds("5 parsecs", "delay")


def test_a_long_text_is_refused_in_no_time() -> None:
    began = time.process_time()
    for hostile in ("1" * 1_000_000, "1." * 500_000, "1" * 1_000_000 + "ms", "0." + "1" * 1_000_000 + "s"):
        with pytest.raises(InvalidOption):
            milliseconds(hostile)
    assert time.process_time() - began < 1


@given(st.integers(0, LONGEST_MS))
def test_what_is_written_out_is_read_back(ms: int) -> None:
    assert milliseconds(text(ms)) == ms


@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "m", "h", "d", "w"]))
def test_a_timedelta_means_the_same_as_its_text(count: int, unit: str) -> None:
    words = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        delta = timedelta(**{words[unit]: count})
        expected = milliseconds(delta)
    except (OverflowError, InvalidOption):
        with pytest.raises(InvalidOption):
            milliseconds(f"{count}{unit}")
    else:
        assert milliseconds(f"{count}{unit}") == expected


@pytest.mark.parametrize(
    ("ms", "written"),
    [(0, "0ms"), (1, "1ms"), (1_500, "1500ms"), (90_000, "90s"), (300_000, "5m"), (604_800_000, "1w")],
)
def test_a_duration_is_written_in_its_largest_whole_unit(ms: int, written: str) -> None:
    assert text(ms) == written
