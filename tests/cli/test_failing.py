"""How commands fail: one line and a hint, the right exit status, and no traceback unless it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import Pyjobs, Ran


def assert_told(ran: Ran, status: int, code: str, *mentions: str) -> None:
    assert ran.status == status
    assert ran.out == ""
    first, *rest = ran.err.splitlines()
    assert first.startswith(f"pyjobs: {code}: ")
    assert len(rest) <= 1
    assert all(line.startswith("  hint: ") for line in rest)
    for mention in mentions:
        assert mention in ran.err


@pytest.mark.parametrize(
    "args",
    [
        ["nope"],
        ["list", "--limt", "5"],
        ["list", "--limit", "0"],
        ["list", "--state", "sleeping"],
        ["list", "--batch", "5"],
        ["show"],
        ["show", "not-an-id"],
        ["enqueue"],
        ["completion"],
        ["enqueue", "a", "{}", "{}"],
        ["enqueue", "a", "--in", "soon"],
        ["enqueue", "a", "--in", "-5s"],
        ["enqueue", "a", "--at", "tomorrow"],
        ["enqueue", "a", "--at", "2026-01-01T09:00"],
        ["enqueue", "a", "--in", "5m", "--at", "2026-01-01T09:00Z"],
        ["enqueue", "a", "--priority", "high"],
        ["worker", "--concurrency", "0"],
        ["worker", "--grace", "long"],
        ["worker", "--queue", ""],
        ["worker", "--queue", "mail,"],
        ["worker", "--log-format", "xml"],
        ["--nope"],
    ],
)
def test_a_command_line_that_makes_no_sense(pyjobs: Pyjobs, args: list[str]) -> None:
    assert_told(pyjobs(*args), 2, "USAGE", "--help")


def test_without_a_command_it_helps(pyjobs: Pyjobs) -> None:
    ran = pyjobs()
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("Usage: ")
    assert "\nOperate:\n" in ran.err


def test_a_moment_without_a_time_zone_is_told_so(pyjobs: Pyjobs) -> None:
    assert "no time zone" in pyjobs("enqueue", "a", "--at", "2026-01-01T09:00").err


def test_a_length_of_time_that_cannot_be_read_is_told_how_to_write_it(pyjobs: Pyjobs) -> None:
    assert "it is not a duration: '5': write one like 250ms, 30s" in pyjobs("enqueue", "a", "--in", "5").err


@pytest.mark.parametrize("args", [["status"], ["list"], ["enqueue", "a"], ["migrate"]])
def test_no_database_is_named(pyjobs: Pyjobs, args: list[str]) -> None:
    assert_told(pyjobs(*args), 1, "PYJOBS_INVALID_CONFIGURATION", "no database", "PYJOBS_DATABASE_URL")


def test_a_database_of_a_kind_that_nobody_knows(pyjobs: Pyjobs) -> None:
    assert_told(pyjobs("list", "--database", "oracle://x"), 1, "PYJOBS_INVALID_CONFIGURATION", "oracle://")


def test_a_database_that_is_not_there(pyjobs: Pyjobs) -> None:
    ran = pyjobs("list", "--database", "postgresql://nobody:hunter2@127.0.0.1:1/nothing")
    assert_told(ran, 1, "PYJOBS_STORE_UNAVAILABLE")
    assert "hunter2" not in ran.err


@pytest.mark.parametrize(
    ("app", "mention"),
    [
        ("nowhere:jobs", "no module 'nowhere'"),
        ("shop:tasks", "it has: jobs"),
        ("json", "it has: none"),
        ("broken:jobs", "ZeroDivisionError"),
        ("leaning:jobs", "no module 'missing_thing'\n  hint: leaning imports it"),
        ("nowhere.jobs", "no module 'nowhere'\n  hint: it is looked for in /"),
        ("shop.py", "import does: shop:jobs"),
        ("./src/shop.py:jobs", "import does: src.shop:jobs"),
        (":jobs", "import does: shop.jobs:jobs"),
    ],
)
def test_an_application_that_cannot_be_had(pyjobs: Pyjobs, shop: str, elsewhere: Path, app: str, mention: str) -> None:
    elsewhere.joinpath("broken.py").write_text("1 / 0\n")
    elsewhere.joinpath("leaning.py").write_text("import missing_thing\n")
    assert_told(pyjobs("worker", "--app", app), 1, "PYJOBS_INVALID_CONFIGURATION", mention)


def test_a_worker_needs_an_application(pyjobs: Pyjobs) -> None:
    assert_told(pyjobs("worker"), 1, "PYJOBS_INVALID_CONFIGURATION", "no application", "--app")


def test_debug_shows_where_it_happened(pyjobs: Pyjobs) -> None:
    for args in (["--debug", "list", "--database", "x:"], ["list", "--debug", "--database", "x:"]):
        ran = pyjobs(*args)
        assert ran.status == 1
        assert ran.err.startswith("Traceback")
        assert "pyjobs: PYJOBS_INVALID_CONFIGURATION: " in ran.err


def test_help_is_no_failure(pyjobs: Pyjobs) -> None:
    assert pyjobs("--help").status == 0
    for command in ("demo", "migrate", "worker", "enqueue", "status", "list", "show"):
        ran = pyjobs(command, "--help")
        assert ran.status == 0
        assert "--debug" in ran.out


@pytest.mark.parametrize("command", [["-m", "pyjobs"], [str(Path(sys.executable).with_name("pyjobs"))]])
def test_the_command_and_the_module_are_the_same(command: list[str]) -> None:
    runs = [sys.executable, *command] if command[0] == "-m" else command
    ran = subprocess.run([*runs, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("pyjobs 0.")
    failed = subprocess.run([*runs, "nope"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stderr.startswith("pyjobs: USAGE: ")
