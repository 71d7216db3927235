"""All that the README shows is run, in its order: its Python and shell on a new SQLite database, its SQL in the shell
that the block's first line names.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import Pyjobs
from pyjobs import install
from servers.databases import Database

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```(\w*)\n(.*?)^```", ROOT.joinpath("README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)
MODULE = "# shop.py"
PSQL, SQLITE = "-- psql ", "-- sqlite3 "


def blocks(language: str, first_line: str = "") -> list[str]:
    """The README's code in that language which begins so."""
    return [text for kind, text in BLOCKS if kind == language and text.startswith(first_line)]


def shell(command: str) -> str:
    """What the command tells, with this pyjobs at hand."""
    lines = [here(line) for line in command.splitlines()]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euc", "\n".join(lines)], capture_output=True, text=True, timeout=60, env=os.environ | {"PATH": path}
    )
    assert ran.returncode == 0, f"{command}{ran.stdout}{ran.stderr}"
    return ran.stdout


def here(line: str) -> str:
    """The line as it can be run by a test: what it installs is there, a worker that would stay is told to go, and the
    migrations are where a checkout has them."""
    if line.startswith("pip install "):
        return ""
    line = line.replace("package:pyjobs:migrations", str(install.data_folder("migrations")))
    return line if "--once" in line else line.replace("pyjobs worker", "pyjobs worker --once")


@pytest.fixture
def shop(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the README's application."""
    elsewhere.joinpath("shop.py").write_text("\n".join(blocks("python", MODULE)))
    monkeypatch.setattr(sys, "path", [str(elsewhere), *sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    yield elsewhere
    if imported := sys.modules.pop("shop", None):
        imported.jobs.close()


def test_every_block_is_of_a_kind_that_is_run() -> None:
    kinds = Counter(kind for kind, _ in BLOCKS)
    assert kinds.keys() == {"python", "sh", "sql"}
    assert kinds["sql"] == len(blocks("sql", PSQL)) + len(blocks("sql", SQLITE))
    assert blocks("python", MODULE)
    assert blocks("sh")[0].startswith("make ")


def test_it_is_short_and_fits() -> None:
    lines = ROOT.joinpath("README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 250
    assert [line for line in lines if len(line) > 120] == []


def test_what_make_is_asked_for_is_in_the_makefile() -> None:
    for command in blocks("sh", "make ")[0].splitlines():
        subprocess.run(["make", "-n", *shlex.split(command, comments=True)[1:]], cwd=ROOT, check=True, timeout=60)


def test_the_ten_lines(elsewhere: Path) -> None:
    elsewhere.joinpath("shop.py").write_text(blocks("python")[0])
    told = shell(blocks("sh")[1])
    assert "Welcome, user 1!" in told
    assert "1 claimed: 1 done" in told
    assert re.search(r"mailers +- +- +- +1 ", told), told


def test_the_guide(shop: Path, pyjobs: Pyjobs) -> None:
    """Each block after those before it, all on one database."""
    shown: dict[str, Any] = {}
    told = ""
    for kind, text in BLOCKS:
        if kind == "sh" and not text.startswith("make "):
            told += shell(text)
        elif kind == "python" and not text.startswith(MODULE):
            exec(compile(text, "README.md", "exec"), shown)
    assert "Permanent: there is no such order" in told
    assert [job["name"] for job in pyjobs("list", "--app", "shop:jobs", "--tenant", "acme", "--json").json] == [
        "export"
    ]
    assert "summer 10 of 10" in told + shell("pyjobs worker --app shop:jobs")
    assert pyjobs("list", "--app", "shop:jobs", "--state", "dead").out == "no jobs\n"
    for name in ("other", "another"):
        assert pyjobs("migrate", "--list", "--database", f"sqlite:///{name}.db").out.endswith("up to date\n")


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 shell")
@pytest.mark.parametrize("block", blocks("sql", SQLITE))
def test_the_sqlite_shell(pyjobs: Pyjobs, elsewhere: Path, block: str) -> None:
    pyjobs("migrate", "--database", "sqlite:///shop.db")
    ran = subprocess.run(["sqlite3", "-bail", "shop.db"], input=block, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-2:] == ["1|done", "letters|done|1||0"]


@pytest.mark.skipif(shutil.which("psql") is None, reason="there is no psql")
@pytest.mark.databases("postgresql")
def test_psql(database: Database) -> None:
    """All in one transaction that is undone: roles are those of the whole server."""
    commands = "\n".join(["BEGIN;", *blocks("sql", PSQL), "ROLLBACK;"])
    shell = ["psql", "--no-psqlrc", "-qAtv", "ON_ERROR_STOP=1", database.url]
    ran = subprocess.run(shell, input=commands, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "t|scheduled\nletters|scheduled|1||f" in ran.stdout
