"""The commands that enqueue and look, on a real database."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from cli.running import Pyjobs, on_terminal
from pyjobs import Jobs, Permanent
from pyjobs.errors import PyjobsError
from pyjobs.worker import Worker
from servers.databases import Database

VERBATIM = '{ "n": 1e22, "n": 12345678901234567890, "s": "\\u0000\\ud800" }'
SECRET = "hunter2"


@pytest.fixture
def at(database: Database) -> list[str]:
    """The options that name the database, which has some jobs defined."""
    jobs = Jobs(database.url)
    jobs.define("welcome", lambda user_id=0: None, queue="mail")
    jobs.define("bury", bury)
    jobs.sync()
    jobs.close()
    return ["--database", database.url]


def bury(secret: str = "") -> None:
    raise Permanent("it is no use\n\x1b[31mreally")


def perform(database: Database) -> None:
    jobs = Jobs(database.url)
    jobs.define("welcome", lambda user_id=0: None, queue="mail")
    jobs.define("bury", bury)
    Worker(jobs).run(once=True)
    jobs.close()


class TestEnqueue:
    def test_it_prints_the_id_and_nothing_else(self, pyjobs: Pyjobs, at: list[str], database: Database) -> None:
        ran = pyjobs("enqueue", "welcome", '{"user_id": 1}', *at)
        assert (ran.status, ran.err) == (0, "")
        [job] = Jobs(database.url).list()
        assert ran.out == f"{job.id}\n"

    @pytest.mark.parametrize("stdin", [None, VERBATIM])
    def test_arguments_go_there_verbatim(
        self, pyjobs: Pyjobs, at: list[str], database: Database, stdin: str | None
    ) -> None:
        pyjobs("enqueue", "welcome", "-" if stdin else VERBATIM, *at, stdin=stdin)
        jobs = Jobs(database.url)
        [job] = jobs.list()
        full = jobs.get(job.id)
        assert full is not None
        assert full.args == VERBATIM

    def test_every_option_counts(self, pyjobs: Pyjobs, at: list[str], database: Database) -> None:
        options = ["--queue", "q", "--priority", "-3", "--unique", "k", "--tenant", "acme"]
        pyjobs("enqueue", "welcome", *options, "--at", "2999-01-01T09:00:00+01:00", *at)
        [job] = Jobs(database.url).list()
        assert (job.queue, job.priority, job.unique_key, job.tenant) == ("q", -3, "k", "acme")
        assert job.run_at == datetime(2999, 1, 1, 8, tzinfo=UTC)

    def test_a_delay(self, pyjobs: Pyjobs, at: list[str], database: Database) -> None:
        pyjobs("enqueue", "welcome", "--in", "2h", *at)
        [job] = Jobs(database.url).list()
        assert job.run_at - job.enqueued_at == timedelta(hours=2)

    def test_a_held_key_is_said(self, pyjobs: Pyjobs, at: list[str]) -> None:
        first = pyjobs("enqueue", "welcome", "--unique", "k", *at)
        second = pyjobs("enqueue", "welcome", "--unique", "k", *at)
        assert second.status == 0
        assert second.out == first.out
        assert "holds" in second.err
        third = pyjobs("enqueue", "welcome", "--unique", "k", "--json", *at)
        assert third.json == {"id": first.out.strip(), "inserted": False}

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (["wellcome"], "PYJOBS_UNKNOWN_JOB"),
            (["welcome", "{'a': 1}"], "PYJOBS_INVALID_ARGUMENTS"),
            (["welcome", "[1]"], "PYJOBS_INVALID_ARGUMENTS"),
            (["welcome", f'{{"x": "{SECRET}", "y": }}'], "PYJOBS_INVALID_ARGUMENTS"),
            (["welcome", "--priority", "99999"], "PYJOBS_INVALID_OPTION"),
            (["welcome", "--tenant", "x" * 191], "PYJOBS_BAD_NAME"),
        ],
    )
    def test_a_refusal_of_the_database(self, pyjobs: Pyjobs, at: list[str], args: list[str], code: str) -> None:
        ran = pyjobs("enqueue", *args, *at)
        assert (ran.status, ran.out) == (1, "")
        assert ran.err.startswith(f"pyjobs: {code}: ")
        assert "  hint: " in ran.err
        assert "jobs[0]" not in ran.err
        assert SECRET not in ran.err

    def test_an_application_defines_its_jobs_first(
        self, pyjobs: Pyjobs, shop: str, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SHOP_DATABASE_URL", database.url)
        ran = pyjobs("enqueue", "welcome", '{"user_id": 1}', "--app", shop)
        assert ran.status == 0, ran.err
        [job] = Jobs(database.url).list()
        assert job.queue == "mail"


class TestList:
    def test_filters(self, pyjobs: Pyjobs, at: list[str]) -> None:
        pyjobs("enqueue", "welcome", "--tenant", "acme", *at)
        pyjobs("enqueue", "bury", "--in", "1h", *at)

        def names(*filter: str) -> list[str]:
            return sorted(job["name"] for job in pyjobs("list", "--json", *filter, *at).json)

        assert names() == ["bury", "welcome"]
        assert names("--state", "scheduled") == ["bury"]
        assert names("--queue", "mail") == ["welcome"]
        assert names("--name", "bury") == ["bury"]
        assert names("--tenant", "acme") == ["welcome"]
        assert names("--batch", str(uuid4())) == []
        assert names("--limit", "1") == ["bury"]

    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, at: list[str]) -> None:
        id = pyjobs("enqueue", "welcome", f'{{"password": "{SECRET}"}}', *at).out.strip()
        ran = pyjobs("list", "--json", *at)
        [job] = ran.json
        assert job["id"] == id
        assert job["state"] == "pending"
        assert datetime.fromisoformat(job["run_at"]).utcoffset() == timedelta(0)
        assert {*job} == {
            "id", "name", "queue", "state", "priority", "run_at", "bucket", "attempts", "max_attempts", "timeout_ms",
            "worker", "lease_until", "cancel_at", "started_at", "finished_at", "dead_reason", "unique_key", "tenant",
            "batch_id", "enqueued_at",
        }  # fmt: skip
        assert SECRET not in ran.out

    def test_for_people(self, pyjobs: Pyjobs, at: list[str]) -> None:
        assert pyjobs("list", *at).out == "no jobs\n"
        id = pyjobs("enqueue", "welcome", f'{{"password": "{SECRET}"}}', "--tenant", "a\nb", *at).out.strip()
        header, line = pyjobs("list", *at).out.splitlines()
        assert header.split() == ["id", "state", "name", "queue", "attempts", "when", "tenant"]
        assert line.startswith(f"{id}  pending  welcome  mail")
        assert line.endswith("a\\nb")

    def test_on_a_terminal_it_fits(self, pyjobs: Pyjobs, at: list[str]) -> None:
        id = pyjobs("enqueue", "welcome", "--queue", "q" * 100, *at).out.strip()
        status, lines = on_terminal([sys.executable, "-m", "pyjobs", "list", *at], 80)
        assert status == 0
        assert all(len(line) <= 80 for line in lines)
        assert any(line.startswith(id) for line in lines)

    def test_the_database_may_be_named_by_the_environment_and_by_pyproject(
        self, pyjobs: Pyjobs, at: list[str], database: Database, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pyjobs("enqueue", "welcome", *at)
        elsewhere.joinpath("pyproject.toml").write_text(f'[tool.pyjobs]\ndatabase = "{database.url}"\n')
        assert len(pyjobs("list", "--json").json) == 1
        elsewhere.joinpath("pyproject.toml").unlink()
        monkeypatch.setenv("PYJOBS_DATABASE_URL", database.url)
        assert len(pyjobs("list", "--json").json) == 1


class TestShow:
    def test_it_shows_arguments_and_history(self, pyjobs: Pyjobs, at: list[str], database: Database) -> None:
        id = pyjobs("enqueue", "bury", '{"secret": "x"}', "--unique", "k", *at).out.strip()
        perform(database)
        ran = pyjobs("show", id, *at)
        assert ran.status == 0
        for expected in ("bury", "dead (permanent)", '{"secret": "x"}', "1 of 5", "Permanent: it is no use"):
            assert expected in ran.out
        assert "\x1b" not in ran.out

    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, at: list[str], database: Database) -> None:
        id = pyjobs("enqueue", "bury", "{}", *at).out.strip()
        perform(database)
        job = pyjobs("show", id, "--json", *at).json
        assert (job["id"], job["state"], job["dead_reason"]) == (id, "dead", "permanent")
        assert (job["args"], job["meta"]) == ({}, None)
        [failure] = job["failures"]
        assert (failure["attempt"], failure["kind"], failure["type"]) == (1, "error", "pyjobs.context.Permanent")
        assert {*failure} == {
            "job_id", "attempt", "worker", "kind", "type", "message", "stack", "started_at", "failed_at"
        }  # fmt: skip

    def test_arguments_stand_in_its_json_verbatim(self, pyjobs: Pyjobs, at: list[str]) -> None:
        id = pyjobs("enqueue", "welcome", VERBATIM, *at).out.strip()
        ran = pyjobs("show", id, "--json", *at)
        assert f'"args": {VERBATIM},' in ran.out
        assert ran.json["args"]["n"] == 12345678901234567890
        assert VERBATIM in pyjobs("show", id, *at).out

    def test_a_job_that_is_not_there(self, pyjobs: Pyjobs, at: list[str]) -> None:
        ran = pyjobs("show", uuid4(), *at)
        assert ran.status == 1
        assert "there is no job" in ran.err


class TestStatus:
    def test_for_people(self, pyjobs: Pyjobs, at: list[str], database: Database) -> None:
        assert pyjobs("status", *at).out == "the queue is empty\n"
        pyjobs("enqueue", "welcome", *at)
        pyjobs("enqueue", "bury", *at)
        perform(database)
        pyjobs("enqueue", "welcome", *at)
        out = pyjobs("status", *at).out
        lines = [line.split() for line in out.splitlines()]
        assert ["queue", "scheduled", "pending", "running", "done", "dead", "cancelled", "oldest", "wait"] in lines
        assert ["default", "-", "-", "-", "-", "1", "-", "-"] in lines
        assert any(line[:7] == ["mail", "-", "1", "-", "1", "-", "-"] for line in lines)
        assert "Waiting for a worker that knows them" in out

    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, at: list[str]) -> None:
        pyjobs("enqueue", "welcome", *at)
        status = pyjobs("status", "--json", *at).json
        assert [*status] == [
            *("now", "queues", "paused", "timings", "limits", "batches", "schedules", "workers", "orphans")
        ]
        [row] = status["queues"]
        assert (row["queue"], row["state"], row["count"], row["paused"]) == ("mail", "pending", 1, False)
        assert row["oldest_wait_ms"] >= 0
        assert [(row["name"], row["waiting"]) for row in status["orphans"]] == [("welcome", 1)]

    def test_a_database_without_pyjobs_is_told_what_to_do(self, pyjobs: Pyjobs, empty_database: Database) -> None:
        ran = pyjobs("status", "--database", empty_database.url)
        assert ran.status == 1
        assert ran.err.startswith("pyjobs: PYJOBS_CONTRACT_MISMATCH: ")
        assert "pyjobs migrate" in ran.err

    def test_a_file_that_is_not_there_is_not_made(self, pyjobs: Pyjobs, elsewhere: Path) -> None:
        ran = pyjobs("status", "--database", f"sqlite:///{elsewhere}/nothing.db")
        assert ran.status == 1
        assert ran.err.startswith("pyjobs: PYJOBS_")
        assert not elsewhere.joinpath("nothing.db").exists()


def test_the_bare_functions_agree_with_the_commands(pyjobs: Pyjobs, at: list[str], database: Database) -> None:
    """What a command refuses, the library refuses with the same code."""
    with pytest.raises(PyjobsError) as refusal:
        Jobs(database.url).enqueue("wellcome")
    assert refusal.value.code in pyjobs("enqueue", "wellcome", *at).err
