"""What a shell is offered, asked the way a shell asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import Pyjobs
from cli.test_failing import assert_told
from pyjobs import Jobs
from servers.databases import Database

COMMAND = str(Path(sys.executable).with_name("pyjobs"))


def offered(*words: str) -> list[str]:
    """What completes the last word."""
    environment = {"COMP_WORDS": " ".join(["pyjobs", *words]), "COMP_CWORD": str(len(words))}
    ran = subprocess.run(
        [COMMAND],
        env=os.environ | environment | {"_PYJOBS_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.stderr == ""
    return [line.partition(",")[2] for line in ran.stdout.split()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(pyjobs: Pyjobs, elsewhere: Path, shell: str) -> None:
    ran = pyjobs("completion", shell)
    assert (ran.status, ran.err) == (0, "")
    assert "_PYJOBS_COMPLETE" in ran.out
    if shutil.which(shell):
        script = elsewhere / "script"
        script.write_text(ran.out)
        subprocess.run([shell, "-n", str(script)], check=True, timeout=30)


def test_another_shell(pyjobs: Pyjobs) -> None:
    assert_told(pyjobs("completion", "tcsh"), 2, "USAGE", "tcsh")


def test_commands_and_options() -> None:
    assert {*offered("re")} == {"retry", "resume"}
    assert "--state" in offered("list", "--st")


def test_names_and_queues_come_from_the_database(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(database.url)
    jobs.define("mail/send", lambda: None, queue="mail")
    jobs.define("mail/sort", lambda: None, queue="market")
    jobs.define("other", lambda: None)
    jobs.sync()
    jobs.pause_queue("masked")
    jobs.close()
    assert offered("enqueue", "--database", database.url, "mail/so") == ["mail/sort"]
    monkeypatch.setenv("PYJOBS_DATABASE_URL", database.url)
    assert offered("perform", "mail/") == ["mail/send", "mail/sort"]
    assert offered("forget", "mail/send", "o") == ["other"]
    assert offered("pause", "ma") == ["mail", "market", "masked"]
    assert offered("dead", "--queue", "m") == ["mail", "market", "masked"]
    assert offered("dead", "--name", "o") == ["other"]
    assert offered("list", "--queue", "mas") == ["masked"]


def test_without_a_database_nothing_is_offered_and_nothing_said() -> None:
    assert offered("forget", "") == []
    assert offered("forget", "--database", "oracle://x", "") == []
