"""``pyjobs doctor``: each thing that can be wrong is made so, found, and put right by what is advised."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cli.running import Pyjobs, on_terminal
from pyjobs import Jobs
from pyjobs.records import ClaimRequest
from pyjobs.store.base import Store
from pyjobs.testing import TestClock
from servers.databases import Database

CHECKS = [
    "database", "schema", "clock", "workers", "names", "queues", "served", "leases", "timeouts", "schedules",
    "schedule_jobs", "definitions", "dead",
]  # fmt: skip


@pytest.fixture
def at(database: Database) -> list[str]:
    return ["--database", database.url]


@pytest.fixture
def jobs(database: Database) -> Iterator[Jobs]:
    jobs = Jobs(database.url, name="shop")
    jobs.define("welcome", lambda user_id=0: None, queue="mail")
    jobs.define("bury", lambda: None)
    jobs.sync()
    yield jobs
    jobs.close()


@pytest.fixture
def doctor(pyjobs: Pyjobs, jobs: Jobs, at: list[str]) -> Any:
    """``doctor(check)``: what it finds there, once its exit status and its counts have been seen to fit."""

    def examine(check: str, *options: str) -> tuple[str, str, list[str]]:
        ran = pyjobs("doctor", "--json", *options, *at)
        report = ran.json
        levels = [each["level"] for each in report["checks"]]
        assert (report["problems"], report["warnings"]) == (levels.count("problem"), levels.count("warning"))
        assert report["healthy"] == (report["problems"] == 0)
        assert ran.status == (1 if report["problems"] else 0)
        [found] = [each for each in report["checks"] if each["check"] == check]
        assert bool(found["advice"]) == (found["level"] != "ok")
        return found["level"], found["message"], found["subjects"]

    return examine


def live(store: Store, worker: str = "w", **info: Any) -> None:
    store.heartbeat(worker, [], info=info)


class TestItsReport:
    def test_the_shape_of_its_json(self, pyjobs: Pyjobs, store: Store, at: list[str]) -> None:
        live(store)
        ran = pyjobs("doctor", "--json", *at)
        assert ran.status == 0
        assert {*ran.json} == {"healthy", "problems", "warnings", "checks"}
        assert [each["check"] for each in ran.json["checks"]] == CHECKS
        assert all({*each} == {"check", "level", "message", "advice", "subjects"} for each in ran.json["checks"])
        assert ran.json["healthy"]

    def test_for_people(self, pyjobs: Pyjobs, store: Store, jobs: Jobs, at: list[str]) -> None:
        live(store)
        out = pyjobs("doctor", *at).out
        assert [line.split()[1] for line in out.splitlines()[:-2]] == CHECKS
        assert out.splitlines()[-1] == "all is well"
        store.leave("w")
        jobs.enqueue("welcome")
        ran = pyjobs("doctor", *at)
        assert (ran.status, ran.err) == (1, "")
        assert "problem  names         no live worker performs welcome (1 waiting)\n" in ran.out
        assert ran.out.endswith("\n1 problem, 1 warning\n")

    def test_on_a_terminal_it_fits(self, jobs: Jobs, at: list[str]) -> None:
        for n in range(9):
            jobs.define(f"a/rather/long/name/{n}", lambda: None)
            jobs.sync()
            jobs.enqueue(f"a/rather/long/name/{n}")
        status, lines = on_terminal([sys.executable, "-m", "pyjobs", "doctor", *at], 80)
        assert status == 1
        assert all(len(line) <= 80 for line in lines), lines
        assert any("and 4 more" in line for line in lines)


class TestTheDatabase:
    def test_one_that_cannot_be_reached(self, pyjobs: Pyjobs) -> None:
        ran = pyjobs("doctor", "--json", "--database", "postgresql://nobody:hunter2@127.0.0.1:1/nothing")
        assert ran.status == 1
        [found] = ran.json["checks"]
        assert (found["check"], found["level"]) == ("database", "problem")
        assert "hunter2" not in ran.out + ran.err

    def test_one_without_pyjobs(self, pyjobs: Pyjobs, empty_database: Database) -> None:
        ran = pyjobs("doctor", "--json", "--database", empty_database.url)
        assert ran.status == 1
        [found] = ran.json["checks"]
        assert (found["check"], found["level"], found["advice"]) == ("schema", "problem", "pyjobs migrate")

    def test_an_older_one(self, doctor: Any, sql: Any) -> None:
        sql("DROP VIEW jobs__installed")
        sql("CREATE VIEW jobs__installed AS SELECT '0.0.1' AS version, 'x' AS digest")
        level, message, _ = doctor("schema")
        assert (level, "pyjobs 0.0.1 is installed" in message) == ("problem", True)

    def test_a_newer_one(self, doctor: Any, sql: Any) -> None:
        sql("DROP VIEW jobs__installed")
        sql("CREATE VIEW jobs__installed AS SELECT '99.0' AS version, 'x' AS digest")
        level, message, _ = doctor("schema")
        assert (level, "newer than this" in message) == ("warning", True)

    @pytest.mark.parametrize(
        ("seconds", "level", "told"),
        [(0, "ok", "agree"), (10, "warning", "behind"), (-10, "warning", "ahead of"), (90, "problem", "behind")],
    )
    def test_its_clock(self, doctor: Any, clock: TestClock, seconds: float, level: str, told: str) -> None:
        clock.advance(seconds)
        found, message, _ = doctor("clock")
        assert (found, told in message) == (level, True)


class TestWork:
    def test_nobody_works(self, doctor: Any, store: Store) -> None:
        assert doctor("workers")[0] == "warning"
        live(store)
        assert doctor("workers") == ("ok", "1 live", ["w"])

    def test_a_name_without_a_worker(self, doctor: Any, jobs: Jobs, store: Store) -> None:
        live(store, names=["bury"])
        jobs.enqueue("bury")
        assert doctor("names")[0] == "ok"
        jobs.enqueue("welcome", delay="1h")
        assert doctor("names")[::2] == ("warning", ["welcome"])
        jobs.enqueue("welcome")
        assert doctor("names")[::2] == ("problem", ["welcome"])
        live(store, "other", names=["welcome"])
        assert doctor("names")[0] == "ok"

    def test_a_paused_queue(self, doctor: Any, jobs: Jobs) -> None:
        jobs.enqueue("welcome")
        jobs.pause_queue("mail")
        assert doctor("queues") == ("warning", "paused: mail (1 waiting)", ["mail"])
        jobs.resume_queue("mail")
        assert doctor("queues")[0] == "ok"

    def test_a_queue_that_nobody_takes_from(self, doctor: Any, jobs: Jobs, store: Store) -> None:
        live(store, queues=["default"])
        jobs.enqueue("bury")
        assert doctor("served")[0] == "ok"
        jobs.enqueue("welcome")
        assert doctor("served")[::2] == ("problem", ["mail"])
        jobs.pause_queue("mail")
        assert doctor("served")[0] == "ok"
        jobs.resume_queue("mail")
        live(store, "other", queues=None)
        assert doctor("served")[0] == "ok"

    def test_a_lease_that_is_over(self, doctor: Any, jobs: Jobs, store: Store, clock: TestClock) -> None:
        id = jobs.enqueue("bury")
        store.claim(ClaimRequest("w", uuid4(), lease_ms=1_000))
        clock.advance(59)
        assert doctor("leases")[0] == "ok"
        clock.advance(3)
        assert doctor("leases")[::2] == ("problem", [str(id)])
        store.sweep()
        assert doctor("leases")[0] == "ok"

    def test_a_timeout_as_long_as_the_lease(self, doctor: Any, jobs: Jobs, store: Store) -> None:
        jobs.define("slow", lambda: None, timeout="5m")
        jobs.define("fast", lambda: None, timeout="299s")
        jobs.sync()
        assert doctor("timeouts")[::2] == ("warning", ["slow"])
        live(store, names=["slow"], lease_ms=600_000)
        live(store, "other", names=["welcome"], lease_ms=1_000)
        assert doctor("timeouts")[0] == "ok"
        live(store, names=["slow"], lease_ms=200_000)
        assert doctor("timeouts")[::2] == ("problem", ["slow"])
        live(store, queues=["mail"], lease_ms=200_000)
        assert doctor("timeouts")[::2] == ("warning", ["slow"])

    def test_dead_jobs(self, doctor: Any, jobs: Jobs, store: Store) -> None:
        assert doctor("dead")[0] == "ok"
        token = uuid4()
        id = jobs.enqueue("bury")
        store.claim(ClaimRequest("w", token))
        store.settle(id, token, "failed", {"permanent": True})
        assert doctor("dead") == ("warning", "1 dead, in default (1)", ["default"])


class TestSchedules:
    def test_one_that_is_overdue(self, doctor: Any, jobs: Jobs, store: Store, clock: TestClock) -> None:
        jobs.recur("hourly", job="bury", every="1h")
        jobs.recur("off", job="bury", every="1h", enabled=False)
        jobs.sync()
        [due] = {each.next_run_at for each in store.schedules()}
        clock.set(due + timedelta(seconds=59))
        assert doctor("schedules")[0] == "ok"
        clock.advance(2)
        assert doctor("schedules")[::2] == ("problem", ["hourly"])
        store.tick_schedule("hourly", due, due + timedelta(hours=1))
        assert doctor("schedules")[0] == "ok"

    def test_one_whose_job_is_not_defined(self, doctor: Any, jobs: Jobs, store: Store, clock: TestClock) -> None:
        jobs.recur("hourly", job="bury", every="1h")
        jobs.sync()
        assert doctor("schedule_jobs")[0] == "ok"
        jobs.forget("bury")
        clock.advance(7_200)
        assert doctor("schedule_jobs")[::2] == ("problem", ["hourly"])
        assert doctor("schedules")[0] == "ok"
        jobs.sync()
        assert doctor("schedule_jobs")[0] == "ok"


class TestTheApplication:
    def test_what_it_declares_is_compared(self, doctor: Any, pyjobs: Pyjobs, shop: str, at: list[str]) -> None:
        assert "no application to compare" in doctor("definitions")[1]
        level, message, names = doctor("definitions", "--app", shop)
        assert (level, names) == ("warning", ["explode", "rebuild"])
        assert "explode (new)" in message
        assert pyjobs("sync", "--app", shop, *at).status == 0
        assert doctor("definitions", "--app", shop)[0] == "ok"

    def test_one_that_pyproject_names(self, doctor: Any, shop: str, elsewhere: Path) -> None:
        elsewhere.joinpath("pyproject.toml").write_text(f'[tool.pyjobs]\napp = "{shop}"\n')
        assert doctor("definitions")[::2] == ("warning", ["explode", "rebuild"])

    def test_one_that_cannot_be_had_is_found_out_and_the_rest_is_looked_at(self, doctor: Any) -> None:
        level, message, _ = doctor("application", "--app", "nowhere:jobs")
        assert (level, "nowhere" in message) == ("problem", True)
        assert doctor("dead", "--app", "nowhere:jobs")[0] == "ok"

    def test_when_it_alone_could_have_said_which_database(self, pyjobs: Pyjobs, elsewhere: Path) -> None:
        ran = pyjobs("doctor", "--app", "nowhere:jobs", "--json")
        assert (ran.status, [each["check"] for each in ran.json["checks"]]) == (1, ["application"])
        elsewhere.joinpath("pyproject.toml").write_text('[tool.pyjobs]\napp = "nowhere:jobs"\n')
        assert pyjobs("doctor", "--json").json == ran.json
