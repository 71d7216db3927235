"""``pyjobs migrate``: what it says. What it does is tested in contract/test_install.py."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import Pyjobs
from pyjobs import install
from servers.databases import Database


def test_it_installs_once_and_says_so(pyjobs: Pyjobs, empty_database: Database) -> None:
    ids = install.pending(empty_database.url)
    version = ids[-1].removeprefix(install.ROUTINES_ID)

    assert pyjobs("migrate", "--database", empty_database.url).out == (
        f"pyjobs {version} is installed: {', '.join(ids)}\n"
    )
    assert pyjobs("migrate", "--database", empty_database.url).out == f"nothing to do: pyjobs {version} is installed\n"


def test_it_lists_what_is_applied_and_what_is_not(pyjobs: Pyjobs, empty_database: Database) -> None:
    ids = install.pending(empty_database.url)

    before = pyjobs("migrate", "--list", "--database", empty_database.url).out.splitlines()
    install.migrate(empty_database.url)
    after = pyjobs("migrate", "--list", "--database", empty_database.url).out.splitlines()

    assert before[:-1] == [f"pending  {id}" for id in ids]
    assert before[-1].startswith("pyjobs is not installed: pyjobs migrate installs ")
    assert after[:-1] == [f"applied  {id}" for id in ids]
    assert after[-1].endswith("is installed, up to date")


def test_it_speaks_json(pyjobs: Pyjobs, empty_database: Database) -> None:
    ids = list(install.pending(empty_database.url))

    assert not pyjobs("migrate", "--list", "--json", "--database", empty_database.url).json["current"]
    assert pyjobs("migrate", "--json", "--database", empty_database.url).json["changed"] == ids
    assert pyjobs("migrate", "--list", "--json", "--database", empty_database.url).json["current"]
    assert pyjobs("migrate", "--rollback", "--json", "--database", empty_database.url).json == {
        "changed": ids[::-1],
        "version": None,
    }


def test_it_takes_everything_off_when_nobody_is_there_to_ask(pyjobs: Pyjobs, database: Database) -> None:
    assert pyjobs("migrate", "--rollback", "--database", database.url).out.startswith("taken off: pyjobs-routines-")
    assert pyjobs("migrate", "--rollback", "--database", database.url).out == "nothing to do: pyjobs is not installed\n"


def test_it_asks_a_person_before_it_takes_everything_off(database: Database) -> None:
    command = [sys.executable, "-m", "pyjobs", "migrate", "--rollback", "--database", database.url]

    person, terminal = pty.openpty()
    os.write(person, b"no\n")
    ran = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=30)
    os.close(terminal)
    os.close(person)

    assert ran.returncode == 1
    assert "This deletes all jobs in" in ran.stdout
    assert install.status(database.url).current


def test_listing_and_taking_off_exclude_each_other(pyjobs: Pyjobs) -> None:
    ran = pyjobs("migrate", "--list", "--rollback", "--database", "sqlite:///no.db")

    assert ran.status == 2
    assert "--list and --rollback exclude each other" in ran.err


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("sqlite:////no/such/folder/jobs.db", "PYJOBS_STORE_UNAVAILABLE", "there is no folder /no/such/folder"),
        ("sqlite:///.", "PYJOBS_STORE_UNAVAILABLE", "is a folder"),
        ("sqlite://jobs.db", "PYJOBS_INVALID_CONFIGURATION", "names no file"),
        ("sqlite:jobs.db", "PYJOBS_INVALID_CONFIGURATION", "names no file"),
        ("sqlite:///", "PYJOBS_INVALID_CONFIGURATION", "names no file"),
        ("postgresql://127.0.0.1:1/jobs", "PYJOBS_STORE_UNAVAILABLE", "cannot be reached"),
    ],
)
def test_a_failure_is_a_line_and_a_hint_and_makes_no_file(
    pyjobs: Pyjobs, elsewhere: Path, url: str, code: str, told: str
) -> None:
    ran = pyjobs("migrate", "--database", url)

    assert ran.status == 1
    line, hint = ran.err.splitlines()
    assert line.startswith(f"pyjobs: {code}: ")
    assert told in line
    assert hint.startswith("  hint: ")
    assert [*elsewhere.iterdir()] == []
