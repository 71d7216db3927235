"""``pyjobs demo``: it tells of nothing that did not happen, and touches nothing that was there."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pytest

from cli.running import Pyjobs, on_terminal
from pyjobs import Jobs
from pyjobs.cli import demo, demo_work
from servers.databases import Database

PROMISES = 7


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_it_keeps_every_promise_and_leaves_nothing_behind(pyjobs: Pyjobs, temporary: Path) -> None:
    began = time.monotonic()
    ran = pyjobs("demo")
    assert ran.status == 0, ran.out + ran.err
    assert time.monotonic() - began < 20
    assert (ran.out.count("✓"), ran.out.count("✗"), ran.err) == (PROMISES, 0, "")
    assert f"{demo_work.TOTAL} of {demo_work.TOTAL} ended" in ran.out
    assert [*temporary.iterdir()] == []


def test_piped_it_says_little_while_it_runs(pyjobs: Pyjobs, temporary: Path) -> None:
    out = pyjobs("demo").out
    assert "\x1b" not in out
    assert sum("ended" in line for line in out.splitlines()) < 20


def test_on_a_terminal_it_shows_its_progress_and_fits(temporary: Path) -> None:
    status, lines = on_terminal([sys.executable, "-m", "pyjobs", "demo"], 100)
    assert status == 0, lines
    shown = "\n".join(lines)
    assert shown.count("✓") == PROMISES
    assert f"{demo_work.TOTAL}/{demo_work.TOTAL}" in shown
    assert [line for line in lines if len(line.rsplit("\r", 1)[-1].rstrip()) > 100] == []


def test_what_is_kept_can_be_looked_into(pyjobs: Pyjobs, elsewhere: Path, temporary: Path) -> None:
    ran = pyjobs("demo", "--keep", "shown.db")
    assert ran.status == 0, ran.out + ran.err
    assert "pyjobs status --database sqlite:///shown.db" in ran.out
    assert Jobs("sqlite:///shown.db").stats().totals == {"done": demo_work.TOTAL - 1, "dead": 1}
    [job] = pyjobs("list", "--state", "dead", "--json", "--database", "sqlite:///shown.db").json
    assert job["name"] == "webhook/deliver"
    assert pyjobs("status", "--database", "sqlite:///shown.db").status == 0


def test_a_bare_keep_keeps_it_here(pyjobs: Pyjobs, elsewhere: Path, temporary: Path) -> None:
    assert pyjobs("demo", "--keep").status == 0
    assert elsewhere.joinpath(demo.FILE_NAME).exists()


@pytest.mark.parametrize("way", [["--keep", "mine.db"], ["--database", "sqlite:///mine.db"]])
def test_a_file_that_is_there_is_left_alone(pyjobs: Pyjobs, elsewhere: Path, way: list[str]) -> None:
    elsewhere.joinpath("mine.db").write_bytes(b"precious")
    ran = pyjobs("demo", *way)
    assert (ran.status, ran.out) == (1, "")
    assert "exists" in ran.err
    assert elsewhere.joinpath("mine.db").read_bytes() == b"precious"


def test_a_promise_that_is_not_kept_fails_it(
    pyjobs: Pyjobs, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_work, "LETTER_DELAY", 3_600.0)
    ran = pyjobs("demo")
    assert ran.status == 1
    assert (ran.out.count("✓"), ran.out.count("✗")) == (PROMISES - 1, 1)
    assert "pyjobs: PYJOBS_FAILED: the demo did not go as promised" in ran.err


@pytest.mark.databases("postgresql")
class TestOnPostgresql:
    def schemas(self, database: Database) -> set[str]:
        with database.connect() as connection:
            rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'").fetchall()
        return {row[0] for row in rows} - {"information_schema", "public"}

    def test_it_runs_in_a_schema_of_its_own_which_goes(self, pyjobs: Pyjobs, database: Database) -> None:
        jobs = Jobs(database.url)
        jobs.define("mine", lambda: None)
        jobs.enqueue("mine")
        ran = pyjobs("demo", "--database", database.url)
        assert ran.status == 0, ran.out + ran.err
        assert ran.out.count("✓") == PROMISES
        assert demo.SCHEMA in ran.out
        assert self.schemas(database) == set()
        assert jobs.stats().totals == {"pending": 1}
        jobs.close()

    def test_it_is_kept_if_asked_to_be_and_the_next_takes_another(
        self, pyjobs: Pyjobs, empty_database: Database
    ) -> None:
        ran = pyjobs("demo", "--database", empty_database.url, "--keep")
        assert ran.status == 0, ran.out + ran.err
        kept = f"{empty_database.url}?schema={demo.SCHEMA}"
        assert f"pyjobs status --database '{kept}'" in ran.out
        assert Jobs(kept).stats().totals == {"done": demo_work.TOTAL - 1, "dead": 1}
        again = pyjobs("demo", "--database", empty_database.url)
        assert again.status == 0, again.out + again.err
        assert f"{demo.SCHEMA}_2" in again.out
        assert self.schemas(empty_database) == {demo.SCHEMA}


@pytest.mark.databases("mysql")
class TestOnMysql:
    def databases(self, database: Database) -> set[str]:
        with database.connect() as connection:
            rows = connection.execute("SELECT schema_name FROM information_schema.schemata").fetchall()
        return {row[0] for row in rows if row[0].startswith(demo.SCHEMA)}

    def test_it_runs_in_a_database_of_its_own_which_goes_or_is_kept(
        self, pyjobs: Pyjobs, empty_database: Database
    ) -> None:
        ran = pyjobs("demo", "--database", empty_database.url, "--keep")
        assert ran.status == 0, ran.out + ran.err
        assert ran.out.count("✓") == PROMISES
        kept = empty_database.url.rpartition("/")[0] + f"/{demo.SCHEMA}"
        assert f"pyjobs status --database {kept}" in ran.out.replace("'", "")
        try:
            assert Jobs(kept).stats().totals == {"done": demo_work.TOTAL - 1, "dead": 1}
            again = pyjobs("demo", "--database", empty_database.url)
            assert again.status == 0, again.out + again.err
            assert f"{demo.SCHEMA}_2" in again.out
            assert self.databases(empty_database) == {demo.SCHEMA}
        finally:
            with empty_database.connect() as connection:
                connection.execute(f"DROP DATABASE {demo.SCHEMA}")
