"""The commands that change what is in the queue."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from cli.running import Pyjobs, Ran
from cli.test_failing import assert_told
from pyjobs import Jobs, Permanent
from pyjobs.records import ClaimRequest
from pyjobs.store.base import Store
from pyjobs.worker import Worker
from servers.databases import Database


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    """An application: what it is asked to bury dies at once, ``welcome`` goes well."""
    jobs = Jobs(database.url)
    jobs.define("welcome", lambda: None, queue="mail")
    jobs.define("bury", bury)
    jobs.define("inter", bury, queue="mail", max_attempts=1)
    jobs.sync()
    yield jobs
    jobs.close()


@pytest.fixture
def at(jobs: Jobs) -> list[str]:
    return ["--database", jobs.url]


def bury() -> None:
    raise Permanent("it is no use")


def dead(jobs: Jobs, count: int = 1, name: str = "bury", **options: str) -> list[UUID]:
    ids = [jobs.enqueue(name, {}, **options) for _ in range(count)]  # type: ignore[arg-type]
    Worker(jobs).run(once=True)
    return ids


def states(jobs: Jobs) -> dict[str, int]:
    return {str(state): count for state, count in jobs.stats().totals.items()}


def assert_did(ran: Ran, out: str) -> None:
    assert (ran.status, ran.out, ran.err) == (0, out, "")


class TestRetry:
    def test_one_by_its_id(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        first, other = dead(jobs, 2)
        assert_did(pyjobs("retry", first, *at), "1 job put back\n")
        assert [job.id for job in jobs.list(state="pending")] == [first]
        assert [job.id for job in jobs.dead.list()] == [other]

    def test_all_the_dead_and_nothing_else(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        dead(jobs, 3)
        jobs.enqueue("welcome")
        Worker(jobs).run(once=True)
        assert_did(pyjobs("retry", "--all", *at), "3 jobs put back\n")
        assert states(jobs) == {"pending": 3, "done": 1}
        assert_did(pyjobs("retry", "--all", *at), "no jobs put back\n")

    def test_filters(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        dead(jobs, 1, "bury")
        dead(jobs, 2, "inter", tenant="acme")
        with jobs.batch() as batch:
            batch.add("bury")
        Worker(jobs).run(once=True)

        def put_back(*filter: object) -> int:
            count: int = pyjobs("retry", "--all", "--json", *filter, *at).json["count"]
            Worker(jobs).run(once=True)
            return count

        assert put_back("--queue", "mail") == 2
        assert put_back("--name", "bury") == 2
        assert put_back("--tenant", "acme", "--queue", "default") == 0
        assert put_back("--tenant", "acme") == 2
        assert put_back("--batch", batch.id) == 1
        assert put_back("--reason", "permanent") == 4
        assert put_back("--reason", "lost") == 0
        assert put_back("--limit", 3) == 3
        assert put_back("--state", "cancelled") == 0

    def test_later(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        first, other = dead(jobs, 2)
        assert_did(pyjobs("retry", first, "--in", "1h", *at), "1 job put back\n")
        assert_did(pyjobs("retry", "--all", "--at", "2999-01-01T00:00:00Z", *at), "1 job put back\n")
        scheduled = {job.id: job.run_at.year for job in jobs.list(state="scheduled")}
        assert scheduled[other] == 2999
        assert scheduled[first] < 2999

    def test_what_cannot_be_put_back_is_said_and_the_others_are(
        self, pyjobs: Pyjobs, jobs: Jobs, store: Store, at: list[str]
    ) -> None:
        [buried] = dead(jobs)
        running = jobs.enqueue("welcome")
        store.claim(ClaimRequest("w", uuid4()))
        waiting, missing = jobs.enqueue("welcome"), uuid4()
        ran = pyjobs("retry", running, buried, waiting, missing, buried, *at)
        assert (ran.status, ran.out) == (1, "1 job put back\n")
        first, *_ = ran.err.splitlines()
        assert first.startswith("pyjobs: PYJOBS_FAILED: 3 jobs not put back: ")
        for told in (str(running), "is running", f"{waiting} is pending", f"no job {missing}"):
            assert told in first
        assert jobs.dead.count() == 0

    def test_one_that_cannot_be_put_back_keeps_its_code(
        self, pyjobs: Pyjobs, jobs: Jobs, store: Store, at: list[str]
    ) -> None:
        [buried] = dead(jobs, unique_key="k")
        jobs.enqueue("welcome", unique_key="k")
        assert_told(pyjobs("retry", buried, *at), 1, "PYJOBS_UNIQUE_KEY_HELD", str(buried))
        store.claim(ClaimRequest("w", uuid4()))
        [running] = jobs.list(state="running")
        assert_told(pyjobs("retry", running.id, *at), 1, "PYJOBS_JOB_RUNNING", str(running.id))
        assert pyjobs("retry", running.id, "--json", *at).json == {"count": 0}


class TestCancel:
    def test_waiting_ones_are_cancelled(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        first = jobs.enqueue("welcome")
        jobs.enqueue("welcome", delay="1h", tenant="acme")
        jobs.enqueue("bury", delay="1h")
        assert_did(pyjobs("cancel", first, *at), "1 job cancelled\n")
        assert_did(pyjobs("cancel", "--queue", "mail", "--tenant", "acme", *at), "1 job cancelled\n")
        assert_did(pyjobs("cancel", "--state", "pending", *at), "no jobs cancelled\n")
        assert_did(pyjobs("cancel", "--name", "bury", "--state", "scheduled", *at), "1 job cancelled\n")
        assert states(jobs) == {"cancelled": 3}

    @pytest.mark.parametrize("by_id", [True, False])
    def test_a_running_one_is_asked_to(
        self, pyjobs: Pyjobs, jobs: Jobs, store: Store, at: list[str], by_id: bool
    ) -> None:
        id = jobs.enqueue("welcome")
        store.claim(ClaimRequest("w", uuid4()))
        ran = pyjobs("cancel", *([id] if by_id else ["--name", "welcome"]), *at)
        assert (ran.status, ran.out) == (0, "1 job cancelled\n")
        assert "1 job still running" in ran.err
        job = jobs.get(id)
        assert job is not None
        assert job.cancel_at is not None
        again = pyjobs("cancel", id, "--json", *at)
        assert (again.status, again.json) == (1, {"count": 0})
        assert "told only once" in again.err

    def test_one_that_has_ended_stays(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        [id] = dead(jobs)
        assert_told(pyjobs("cancel", id, *at), 1, "PYJOBS_FAILED", f"the job {id} is dead")


class TestDiscard:
    def test_by_id_and_all_the_dead(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        first, *_ = dead(jobs, 4)
        jobs.enqueue("welcome")
        assert_did(pyjobs("discard", first, *at), "1 job deleted\n")
        assert_did(pyjobs("discard", "--all", "--limit", 1, *at), "1 job deleted\n")
        assert_did(pyjobs("discard", "--all", *at), "2 jobs deleted\n")
        assert_did(pyjobs("discard", "--all", "--state", "pending", "--queue", "mail", *at), "1 job deleted\n")
        assert states(jobs) == {}

    def test_one_that_runs_or_is_not_there(self, pyjobs: Pyjobs, jobs: Jobs, store: Store, at: list[str]) -> None:
        id = jobs.enqueue("welcome")
        store.claim(ClaimRequest("w", uuid4()))
        assert_told(pyjobs("discard", id, *at), 1, "PYJOBS_JOB_RUNNING", str(id))
        assert_told(pyjobs("discard", uuid4(), *at), 1, "PYJOBS_FAILED", "there is no job")

    @pytest.mark.parametrize(
        ("given", "answer", "left"),
        [
            (["--all"], "n", 3),
            (["--all"], "y", 0),
            (["--all", "--yes"], "", 0),
            (["--all", "--limit", "1"], "", 2),
            (["--all", "--limit", "2"], "n", 3),
            (["IDS"], "n", 3),
            (["IDS"], "y", 0),
            (["IDS", "--yes"], "", 0),
            (["ID"], "", 2),
        ],
    )
    def test_it_asks_a_person_before_it_deletes_several(
        self, jobs: Jobs, at: list[str], given: list[str], answer: str, left: int
    ) -> None:
        ids = [str(id) for id in dead(jobs, 3)]
        named = {"IDS": ids, "ID": ids[:1]}
        args = [word for each in given for word in named.get(each, [each])]
        person, terminal = pty.openpty()
        os.write(person, f"{answer}\n".encode())
        ran = subprocess.run(
            [sys.executable, "-m", "pyjobs", "discard", *args, *at],
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=30,
        )
        os.close(terminal)
        os.close(person)
        assert ("for good?" in ran.stderr) == bool(answer)
        assert ran.returncode == (1 if answer == "n" else 0), ran.stderr
        assert jobs.dead.count() == left


class TestPausing:
    def test_a_queue_waits_and_goes_on(self, pyjobs: Pyjobs, jobs: Jobs, store: Store, at: list[str]) -> None:
        jobs.enqueue("welcome")
        assert_did(pyjobs("pause", "mail", "default", *at), "mail is paused\ndefault is paused\n")
        assert store.paused() == ["default", "mail"]
        assert pyjobs("status", "--json", *at).json["paused"] == ["default", "mail"]
        shown = [line.split()[:4] for line in pyjobs("status", *at).out.splitlines()]
        assert ["default", "(paused)", "-", "-"] in shown
        assert ["mail", "(paused)", "-", "1"] in shown
        assert Worker(jobs).run(once=True).claimed == 0
        assert_did(pyjobs("resume", "mail", "nothing", *at), "mail goes on\nnothing was not paused\n")
        assert Worker(jobs).run(once=True).claimed == 1

    def test_one_that_nobody_has_heard_of(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        jobs.enqueue("welcome", queue="adhoc")
        ran = pyjobs("pause", "mial", "adhoc", *at)
        assert (ran.status, ran.out) == (0, "mial is paused\nadhoc is paused\n")
        assert "the queue mial" in ran.err
        assert "adhoc" not in ran.err

    def test_a_name_that_is_none(self, pyjobs: Pyjobs, at: list[str]) -> None:
        assert_told(pyjobs("pause", "x" * 191, *at), 1, "PYJOBS_BAD_NAME")


class TestForget:
    def test_its_definition_goes_and_its_jobs_stay(self, pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> None:
        jobs.enqueue("welcome")
        jobs.enqueue("welcome", delay="1h")
        assert_did(pyjobs("forget", "bury", *at), "bury is forgotten\n")
        assert_did(pyjobs("forget", "welcome", *at), "welcome is forgotten; 2 jobs of it still waiting\n")
        assert_told(pyjobs("forget", "welcome", *at), 1, "PYJOBS_UNKNOWN_JOB", "welcome")


@pytest.mark.parametrize(
    "args",
    [
        ["retry"],
        ["retry", "--queue", "mail"],
        ["retry", str(uuid4()), "--all"],
        ["retry", str(uuid4()), "--queue", "mail"],
        ["retry", str(uuid4()), "--limit", "1"],
        ["retry", "--all", "--in", "5m", "--at", "2026-01-01T09:00Z"],
        ["retry", "--all", "--state", "pending"],
        ["retry", "--all", "--reason", "bad-luck"],
        ["cancel"],
        ["cancel", "--limit", "5"],
        ["cancel", str(uuid4()), "--name", "x"],
        ["cancel", "--all"],
        ["discard"],
        ["discard", "--name", "x"],
        ["discard", "5"],
        ["discard", "--all", "--state", "running"],
        ["pause"],
        ["resume"],
        ["forget"],
    ],
)
def test_a_command_line_that_makes_no_sense(pyjobs: Pyjobs, args: list[str]) -> None:
    assert_told(pyjobs(*args), 2, "USAGE", "--help")
