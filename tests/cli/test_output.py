"""How commands print."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.running import on_terminal
from pyjobs.cli.output import Table, ago, print_tables, printable, span

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WIDE = Table(
    "Things",
    ["id", "name", "#count"],
    [["0190a0b0-0000-7000-8000-000000000001", "x" * 200, "7"], ["b", "[red]y", "12345"]],
)
JOBS = Table(
    "",
    ["id", "state", "name", "queue", "#attempts", "when", "tenant"],
    [["0190a0b0-0000-7000-8000-000000000001", "scheduled", "invoice/send", "default", "0/5", "due 2.7s ago", "-"]],
    spare=["tenant", "queue", "#attempts"],
)


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1.5s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (90_000, "1m30s"),
        (3_600_000, "1h"),
        (5_430_000, "1h30m"),
        (86_400_000, "1d"),
        (90_000_000, "1d1h"),
        (864_000_000_000, "10000d"),
    ],
)
def test_a_length_of_time_in_words(ms: int, written: str) -> None:
    assert span(ms) == written
    assert span(timedelta(milliseconds=ms)) == written


def test_a_moment_next_to_now() -> None:
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m ago"
    assert ago(NOW + timedelta(hours=2), NOW) == "in 2h"
    assert ago(None, NOW) == "-"


def test_what_could_steer_a_terminal_is_made_visible() -> None:
    assert printable("plain é漢🐍") == "plain é漢🐍"
    assert printable("a\nb\t\x1b[31m\x00\u202e\ud800") == "a\\nb\\t\\x1b[31m\\x00\\u202e\\ud800"


def test_piped_it_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(Table("Nothing", ["a"], []), WIDE, WIDE)
    once = [
        "Things",
        "id" + " " * 36 + "name" + " " * 198 + "count",
        "0190a0b0-0000-7000-8000-000000000001  " + "x" * 200 + "      7",
        "b" + " " * 37 + "[red]y" + " " * 196 + "12345",
    ]
    assert capsys.readouterr().out.splitlines() == [*once, "", *once]


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_on_a_terminal_it_fits_and_ids_stay_whole(columns: int) -> None:
    program = "from cli.test_output import *; print_tables(WIDE)"
    status, lines = on_terminal([sys.executable, "-c", program], columns, PYTHONPATH=str(Path(__file__).parents[1]))
    shown = [line.rstrip() for line in lines]
    assert status == 0, lines
    assert shown[0] == "Things"
    assert all(len(line) <= columns for line in shown)
    assert shown[2].startswith("0190a0b0-0000-7000-8000-000000000001  xxx")
    assert shown[2].split()[1].endswith("…")
    assert "[red]y" in shown[3]


def test_a_terminal_too_narrow_does_without_the_spare_columns() -> None:
    assert headers(80) == ["id", "state", "name", "when"]
    assert headers(90) == ["id", "state", "name", "attempts", "when"]
    assert headers(132) == ["id", "state", "name", "queue", "attempts", "when", "tenant"]


def headers(columns: int) -> list[str]:
    """What stands above the columns of a job on a terminal of that width."""
    program = "from cli.test_output import *; print_tables(JOBS)"
    status, lines = on_terminal([sys.executable, "-c", program], columns, PYTHONPATH=str(Path(__file__).parents[1]))
    assert status == 0, lines
    assert lines[1].split()[1:3] == ["scheduled", "invoice/send"]
    assert all(len(line) <= columns for line in lines)
    return lines[0].split()
