"""How the rate of performing jobs changes as something grows: what waits, what is scheduled or finished, the workers,
the queues. A line that falls shows what a claim should not have been reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.processes import Failed
from benchmarks.workloads import CHUNK, LATER, Case, Cell, beside, drain

SAMPLE = 5_000  # jobs performed at each point, where more wait


@dataclass(frozen=True)
class Sweep:
    """``points``: what grows."""

    title: str
    points: tuple[int, ...]
    at: Callable[[Case, int], Cell]


def waiting(case: Case, jobs: int) -> Cell:
    """The rate of the first ones while the others wait; they are still there in the end, so not all are checked, only
    that none ran twice and none that was not enqueued."""
    url = case.prepared(f"waiting-{jobs}", lambda url: case.enqueue(url, "many", (LATER, LATER + jobs, 1), chunk=CHUNK))
    with case.host.workers(url) as team:
        team.start()
        deadline = time.monotonic() + case.sizes.patience
        while team.done() < min(jobs, SAMPLE):
            team.check()
            if time.monotonic() > deadline:
                raise Failed(f"{team.done()} of {min(jobs, SAMPLE)} jobs ran in {case.sizes.patience:.0f} s")
            time.sleep(0.005)
        executions = team.executions()
    rate = len(executions) / ((executions.last - executions.first) / 1e9)
    there = range(LATER, LATER + jobs)
    mistakes = executions.mistakes(number for number in executions.numbers if number in there)
    return Cell(rate, mistakes=tuple(mistakes))


def crowded(kind: str, case: Case, crowd: int) -> Cell:
    url = beside(case, kind, crowd)
    case.enqueue(url, "many", (0, SAMPLE, 1))
    return drain(case, url, range(SAMPLE))


def workers(case: Case, how_many: int) -> Cell:
    """Jobs come when the workers are up: by the time that the last of many has started, the first would have performed
    all of them."""
    url, jobs = case.installed(), case.sizes.jobs

    def enqueue_once_up() -> None:
        time.sleep(2 + how_many / 4)
        case.enqueue(url, "many", (0, jobs, 1))

    return drain(case, url, range(jobs), how_many, enqueue_once_up)


def queues(case: Case, how_many: int) -> Cell:
    jobs = case.sizes.jobs
    url = case.prepared(f"queues-{how_many}", lambda url: case.enqueue(url, "spread", (0, jobs, 1), queues=how_many))
    return drain(case, url, range(jobs))


THOUSAND_TO_MILLION = (1_000, 10_000, 100_000, 1_000_000)

SWEEPS: Mapping[str, Sweep] = {
    "waiting": Sweep("jobs waiting", THOUSAND_TO_MILLION, waiting),
    "scheduled": Sweep("jobs scheduled for tomorrow", THOUSAND_TO_MILLION, partial(crowded, "scheduled")),
    "finished": Sweep("finished jobs", THOUSAND_TO_MILLION, partial(crowded, "finished")),
    "workers": Sweep("worker processes", (1, 2, 4, 8, 16, 32, 64), workers),
    "queues": Sweep("queues", (1, 10, 100, 1_000, 10_000), queues),
}
