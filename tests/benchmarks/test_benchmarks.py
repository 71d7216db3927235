"""The benchmark's own promise: a job that ran twice or not at all is found, and told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import catalogue, report
from benchmarks.databases import open_engine
from benchmarks.environments import TESTS, Environment, without_places
from benchmarks.jobs import bucket
from benchmarks.processes import Host
from benchmarks.records import Executions, recorder
from benchmarks.run import Key, Outcome, Result
from benchmarks.workloads import QUICK, WORKLOADS, Case, Cell, wait_for

SIZES = replace(QUICK, one=20, jobs=40, crowd=200, paced=5, hold=1.0, interval=0.25)


def noted(folder: Path, *numbers: int) -> Executions:
    file = folder / "records"
    handle = recorder(file)
    for number in numbers:
        handle(number)
    return Executions.read([file])


class TestExecutions:
    def test_each_job_once_is_no_mistake(self, tmp_path: Path) -> None:
        executions = noted(tmp_path, 2, 0, 1)
        assert executions.by_worker == (3,)
        assert executions.mistakes(range(3)) == []

    def test_twice_missing_and_unknown_are_mistakes(self, tmp_path: Path) -> None:
        assert noted(tmp_path, 0, 1, 1, 7).mistakes(range(3)) == [
            "1 missing (such as 2)",
            "1 twice (such as 1)",
            "1 never enqueued (such as 7)",
        ]

    def test_handlers_of_one_bucket_that_overlap_are_counted(self) -> None:
        # Of bucket 5, the second begins before the first has ended, the third as the second ends.
        executions = Executions([5, 1005, 2005, 6], [10, 15, 30, 10], [20, 30, 40, 50], (4,))  # type: ignore[arg-type]
        assert executions.most_at_once(bucket) == {bucket(5): 2, bucket(6): 1}

    def test_a_rate_in_each_interval(self) -> None:
        second = 1_000_000_000
        executions = Executions([0, 1, 2], [0, second // 2, second], [1, 1, 1], (3,))  # type: ignore[arg-type]
        assert executions.per_interval(0, 2 * second, 1.0) == [2.0, 1.0]


class TestOnSqlite:
    @pytest.fixture
    def case(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
        """The peer named by the test, with the Python and the packages that run this."""
        [peer] = [each for each in catalogue.ALL if each.name == request.param and "sqlite" in each.dialects]
        command = (sys.executable, "-m", "benchmarks.host", peer.adapter)
        environment = Environment(command, {**os.environ, "PYTHONPATH": str(TESTS)})
        with closing(open_engine("sqlite")) as engine:
            yield Case(peer, engine, Host(environment, tmp_path / "log"), SIZES)

    @pytest.mark.parametrize(
        ("case", "workload"),
        [("pyjobs", "W3"), ("pyjobs", "W5"), ("pyjobs", "W9"), ("floor", "W4"), ("floor", "W6-finished")],
        indirect=["case"],
    )
    def test_a_workload_runs_and_is_exact(self, case: Case, workload: str) -> None:
        cell = WORKLOADS[workload](case)
        assert cell.mistakes == ()
        assert cell.figures["p50"] > 0 if workload == "W5" else cell.rate

    @pytest.mark.parametrize("case", ["floor"], indirect=True)
    def test_what_else_ran_is_a_mistake(self, case: Case) -> None:
        url = case.filled()
        case.enqueue(url, "many", (3, 4, 1))
        with case.host.workers(url) as team:
            team.start()
            wait_for(case, team, SIZES.jobs + 1)
            executions = team.executions()
        assert executions.mistakes(range(SIZES.jobs)) == ["1 twice (such as 3)"]


def test_the_report_tells_ratios_mistakes_and_reasons() -> None:
    key = Key("W3", "sqlite", "pyjobs")
    results = [
        Result(key._replace(peer="floor"), 1, Cell(1_000.0)),
        Result(key, 1, Cell(500.0, mistakes=("1 twice (such as 3)",))),
        Result(key._replace(peer="floor"), 2, Cell(2_000.0)),
        Result(key, 2, Cell(600.0)),
        Result(key._replace(workload="W8", peer="huey"), 1, reason="has no limit by key"),
    ]
    rows = list(report.summary(results))
    assert [row.get("ratio_to_floor") for row in rows] == [1.0, 0.4, None]
    outcome = Outcome(results, {"sqlite": {"version": "3"}}, {("sqlite", "honker"): "cannot be installed"})
    page = "\n".join(report.render(rows, outcome, {"cores": "2"}))
    for told in (
        "| 1,500 | 550 (0.40) ✗ |",
        "W3: 1 twice (such as 3)",
        "W8: has no limit by key",
        "cannot be installed",
    ):
        assert told in page


def test_a_result_is_read_as_it_was_written() -> None:
    for result in (
        Result(Key("W3", "sqlite", "pyjobs"), 1, Cell(500.0, {"first_ms": 3.5}, ("1 twice (such as 3)",), ("late",))),
        Result(Key("W5", "sqlite", "pyjobs"), 1, Cell(None, {"p50": 1.5})),
        Result(Key("sweep-queues", "sqlite", "floor", 10), 1, reason="has no queues"),
    ):
        assert Result.of(json.loads(json.dumps(result.row())), 0) == result


def test_a_reason_names_no_places() -> None:
    assert without_places("cannot read /home/me/file of https://example.org/x") == "cannot read … of …"


def test_every_peer_has_its_adapter() -> None:
    peers = Path(__file__).parent / "peers"
    for peer in catalogue.ALL:
        assert (peers / f"{peer.adapter}.{'py' if peer.language == 'python' else 'mjs'}").is_file()
        assert sum(each.adapter == peer.adapter for each in catalogue.ALL) == 1, "they would share an environment"
        assert not peer.without.keys() - {*WORKLOADS, "sweep-queues", "sweep-workers"}
