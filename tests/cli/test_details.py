"""The commands that look at one kind of thing, on a real database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from cli.running import Pyjobs, on_terminal
from cli.test_failing import assert_told
from pyjobs import Concurrency, Jobs, Permanent
from pyjobs.records import ClaimRequest
from pyjobs.store.base import Store
from pyjobs.worker import Worker
from servers.databases import Database

SECRET = "hunter2"


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    jobs = Jobs(database.url, name="shop")
    jobs.define("welcome", lambda: None, queue="mail")
    jobs.define("bury", bury)
    jobs.define("limited", lambda key=0: None, concurrency=Concurrency(2, key="key"))
    jobs.recur("hourly", job="bury", every="1h")
    jobs.recur("nightly", job="bury", cron="0 3 * * *", timezone="Europe/Paris", enabled=False)
    jobs.sync()
    yield jobs
    jobs.close()


@pytest.fixture
def at(jobs: Jobs) -> list[str]:
    return ["--database", jobs.url]


def bury(secret: str = "") -> None:
    raise Permanent("it is no use\n\x1b[31mreally")


def kill(jobs: Jobs, **options: str) -> UUID:
    id = jobs.enqueue("bury", {"secret": SECRET}, **options)  # type: ignore[arg-type]
    Worker(jobs, schedules=False).run(once=True)
    return id


class TestDead:
    def test_for_people(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        assert pyjobs("dead", *at).out == "no dead jobs\n"
        id = kill(jobs)
        ran = pyjobs("dead", *at)
        header, line = ran.out.splitlines()
        assert header.split() == ["id", "when", "name", "reason", "error", "queue", "attempts", "tenant"]
        assert line.startswith(f"{id}  ")
        assert "permanent  Permanent: it is no use\\n\\x1b[31mreally" in line
        assert SECRET not in ran.out

    def test_filters(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        first = kill(jobs, queue="mail", tenant="acme")
        second = kill(jobs)

        def ids(*filter: str) -> list[str]:
            return [job["id"] for job in pyjobs("dead", "--json", *filter, *at).json]

        assert ids() == [str(second), str(first)]
        assert ids("--limit", "1") == [str(second)]
        assert ids("--queue", "mail") == ids("--tenant", "acme") == [str(first)]
        assert ids("--name", "bury", "--reason", "permanent") == [str(second), str(first)]
        assert ids("--name", "welcome") == ids("--reason", "exhausted") == ids("--batch", str(uuid4())) == []

    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        kill(jobs)
        ran = pyjobs("dead", "--json", *at)
        [job] = ran.json
        assert {*job} == {
            "id", "name", "queue", "dead_reason", "attempts", "max_attempts", "finished_at", "kind", "type", "message",
            "failed_at", "tenant", "batch_id",
        }  # fmt: skip
        assert (job["dead_reason"], job["kind"], job["type"]) == ("permanent", "error", "pyjobs.context.Permanent")
        assert SECRET not in ran.out

    def test_on_a_terminal_it_fits(self, jobs: Jobs, at: list[str]) -> None:
        ids = [kill(jobs) for _ in range(2)]
        status, lines = on_terminal([sys.executable, "-m", "pyjobs", "dead", *at], 80)
        assert status == 0
        assert all(len(line) <= 80 for line in lines)
        for id in ids:
            assert any(line.startswith(f"{id} ") for line in lines)
        [why] = [line for line in lines if "it is no use" in line]
        assert why.split()[:4] == ["2", "bury", "permanent", "Permanent:"]


class TestBatches:
    @pytest.fixture
    def batch_id(self, jobs: Jobs) -> UUID:
        """A batch with a job in each of three states."""
        with jobs.batch("welcome", name="import") as batch:
            batch.add("bury")
            Worker(jobs, schedules=False).run(once=True)
            batch.add("limited", delay="1h")
        Worker(jobs, schedules=False).run(once=True)
        return batch.id

    def test_they_are_listed(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str], batch_id: UUID) -> None:
        with jobs.batch() as other:
            pass
        assert [each["id"] for each in pyjobs("batches", "--json", *at).json] == [str(other.id), str(batch_id)]
        assert [each["id"] for each in pyjobs("batches", "--open", "--json", *at).json] == [str(batch_id)]
        assert [each["id"] for each in pyjobs("batches", "--finished", "--json", *at).json] == [str(other.id)]
        assert [each["id"] for each in pyjobs("batches", "--limit", "1", "--json", *at).json] == [str(other.id)]
        assert str(batch_id) in pyjobs("batches", *at).out

    def test_none(self, pyjobs: Pyjobs, at: list[str]) -> None:
        assert pyjobs("batches", *at).out == "no batches\n"
        assert pyjobs("batches", "--json", *at).json == []

    def test_one_for_people(self, pyjobs: Pyjobs, at: list[str], batch_id: UUID) -> None:
        out = pyjobs("batches", batch_id, *at).out
        for expected in (str(batch_id), "import", "welcome (when all", "1 scheduled, 1 dead"):
            assert expected in out

    def test_the_shape_of_ones_json(self, pyjobs: Pyjobs, at: list[str], batch_id: UUID) -> None:
        batch = pyjobs("batches", batch_id, "--json", *at).json
        assert {*batch} == {
            "id", "name", "tenant", "callback", "callback_id", "total", "done", "failed", "opened_at", "sealed_at",
            "finished_at", "states",
        }  # fmt: skip
        assert (batch["total"], batch["done"], batch["failed"]) == (2, 1, 1)
        assert batch["states"] == {
            "scheduled": 1, "pending": 0, "running": 0, "done": 0, "dead": 1, "cancelled": 0
        }  # fmt: skip

    def test_one_that_is_not_there(self, pyjobs: Pyjobs, at: list[str]) -> None:
        assert_told(pyjobs("batches", uuid4(), *at), 1, "PYJOBS_UNKNOWN_BATCH", "there is no batch")

    def test_one_is_neither_open_nor_finished(self, pyjobs: Pyjobs, at: list[str]) -> None:
        assert_told(pyjobs("batches", uuid4(), "--open", *at), 2, "USAGE")


class TestSchedules:
    def test_for_people(self, pyjobs: Pyjobs, at: list[str]) -> None:
        lines = [line.split("  ") for line in pyjobs("schedules", *at).out.splitlines()]
        hourly, nightly = ([cell.strip() for cell in line if cell] for line in lines[-2:])
        assert hourly[:3] == ["hourly", "bury", "every 1h"]
        assert hourly[3].startswith("in ")
        assert hourly[4] == "-"
        assert nightly[:3] == ["nightly (off)", "bury", "0 3 * * * (Europe/Paris)"]

    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, at: list[str]) -> None:
        hourly, nightly = pyjobs("schedules", "--json", *at).json
        assert {*hourly} == {
            "name", "job", "cron", "every_ms", "timezone", "source", "enabled", "next_run_at", "last_run_at",
            "last_job_id",
        }  # fmt: skip
        assert (hourly["every_ms"], hourly["source"], nightly["enabled"]) == (3_600_000, "shop", False)
        assert datetime.fromisoformat(hourly["next_run_at"]).utcoffset() == timedelta(0)

    def test_none(self, pyjobs: Pyjobs, database: Database) -> None:
        assert pyjobs("schedules", "--database", database.url).out == "no schedules\n"


class TestLimits:
    def test_who_holds_them(self, pyjobs: Pyjobs, jobs: Jobs, store: Store, at: list[str]) -> None:
        [free] = pyjobs("limits", "--json", *at).json
        assert {*free} == {"group", "slots", "bucket", "slot", "job_id", "name", "worker", "taken_at"}
        assert (free["group"], free["slots"], free["bucket"]) == ("limited", 2, None)
        id = jobs.enqueue("limited", {"key": 7})
        store.claim(ClaimRequest("a-worker", uuid4()))
        out = pyjobs("limits", *at).out
        for expected in ("limited:7", f"limited {id}", "a-worker"):
            assert expected in out

    def test_none(self, pyjobs: Pyjobs, database: Database) -> None:
        assert pyjobs("limits", "--database", database.url).out == "no limits\n"


class TestWorkers:
    def test_for_people(self, pyjobs: Pyjobs, store: Store, at: list[str]) -> None:
        assert pyjobs("workers", *at).out == "no workers\n"
        store.heartbeat("w-1", [], info={"queues": ["mail", "low"], "concurrency": 7, "version": "9"})
        store.heartbeat("w-2", [])
        one, other = pyjobs("workers", *at).out.splitlines()[-2:]
        assert one.split()[:5] == ["w-1", "yes", "0/7", "mail,", "low"]
        assert other.split()[:4] == ["w-2", "yes", "0", "all"]

    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, store: Store, at: list[str]) -> None:
        store.heartbeat("w-1", [], info={"queues": None, "lease_ms": 5_000})
        [worker] = pyjobs("workers", "--json", *at).json
        assert {*worker} == {"id", "info", "started_at", "seen_at", "live_until", "live", "running"}
        assert worker["info"] == {"queues": None, "lease_ms": 5_000}
        assert pyjobs("status", "--json", *at).json["workers"] == [worker]


@pytest.mark.parametrize("command", ["dead", "batches", "schedules", "limits", "workers"])
def test_a_database_without_pyjobs_is_told_what_to_do(pyjobs: Pyjobs, empty_database: Database, command: str) -> None:
    assert_told(pyjobs(command, "--database", empty_database.url), 1, "PYJOBS_CONTRACT_MISMATCH", "pyjobs migrate")
