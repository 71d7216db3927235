"""What is measured: W1 to W9. Each takes a case, one peer on one database, and answers a cell.

A rate counts jobs from the first handler's beginning until the database shows that all are settled. Whatever
performs jobs is checked: each ran exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.catalogue import Peer
from benchmarks.databases import Engine
from benchmarks.jobs import BUCKETS, CALLBACK, bucket
from benchmarks.processes import Failed, Host, Range, Team
from benchmarks.records import Executions

WARM_UP = 40_000_000  # the number of a job that only shows that a worker is up
LATER = 10_000_000  # numbers of jobs that are not to run
CHUNK = 2_000  # jobs enqueued by one call, where there are a million


@dataclass(frozen=True)
class Sizes:
    """How much of everything. ``hold``: seconds for which W7 holds a transaction open, reported by ``interval``."""

    one: int = 2_000
    jobs: int = 20_000
    crowd: int = 1_000_000
    paced: int = 200
    gap: float = 0.05
    hold: float = 600.0
    interval: float = 10.0
    patience: float = 180.0


QUICK = Sizes(one=200, jobs=1_000, crowd=20_000, paced=40, hold=6.0, interval=1.0, patience=60.0)


@dataclass(frozen=True)
class Case:
    """One peer on one database."""

    peer: Peer
    engine: Engine
    host: Host
    sizes: Sizes

    # Databases in the states that workloads start from.

    def installed(self) -> str:
        return self.engine.fresh(f"{self.peer.name}/installed", self.host.install)

    def filled(self, jobs: int | None = None) -> str:
        count = self.sizes.jobs if jobs is None else jobs
        return self.prepared(f"filled-{count}", lambda url: self.enqueue(url, "many", (0, count, 1)))

    def prepared(self, state: str, prepare: Callable[[str], None]) -> str:
        def whole(url: str) -> None:
            self.host.install(url)
            prepare(url)

        return self.engine.fresh(f"{self.peer.name}/{state}", whole)

    def enqueue(self, url: str, do: str, *ranges: Range, chunk: int | None = None, **extra: Any) -> None:
        with self.host.producer(url) as producer:
            producer.call(do, *ranges, chunk=chunk, **extra)


@dataclass(frozen=True)
class Cell:
    """What came of one workload, once. ``rate``: jobs a second, or None where something else is measured, in
    ``figures``. ``mistakes`` is empty when every job ran exactly once and no limit was exceeded."""

    rate: float | None
    figures: Mapping[str, Any] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def enqueue_one_by_one(case: Case) -> Cell:
    """W1: one connection, each job its own call and transaction."""
    with case.host.producer(case.installed()) as producer:
        producer.call("one", (LATER, LATER + 20, 1))  # connections and statements are made
        seconds = producer.call("one", (0, case.sizes.one, 1))["seconds"]
    return Cell(case.sizes.one / seconds)


def enqueue_in_bulk(case: Case) -> Cell:
    """W2: all by one call, where the peer has such a call."""
    with case.host.producer(case.installed()) as producer:
        producer.call("one", (LATER, LATER + 20, 1))
        seconds = producer.call("many", (0, case.sizes.jobs, 1))["seconds"]
    return Cell(case.sizes.jobs / seconds)


def drain(
    case: Case, url: str, expected: Iterable[int], workers: int = 1, once_up: Callable[[], None] = lambda: None
) -> Cell:
    """Perform what waits, and what ``once_up`` enqueues when the workers have the word; see that it was exactly
    ``expected``."""
    wanted = set(expected)
    with case.host.workers(url, workers) as team:
        started = team.start()
        once_up()
        settled = _until_settled(case, url, team, len(wanted))
        time.sleep(0.5)  # a job that was taken twice would run again by now
        executions = team.executions()
    notes = []
    if not len(executions):
        raise Failed(f"no job ran in {case.sizes.patience:.0f} s")
    end = executions.last
    if case.peer.unfinished is None:
        notes.append("ends with the last handler: there is no way to ask whether all is settled")
    elif settled is None:
        notes.append(f"not settled within {case.sizes.patience:.0f} s")
    else:
        end = max(end, settled)
    if len(executions) < len(wanted):
        end = max(end, executions.first + int(case.sizes.patience * 1e9))
    figures: dict[str, Any] = {"first_ms": round((executions.first - started) / 1e6, 1)}
    if workers > 1:
        figures["by_worker"] = executions.by_worker
    rate = len(executions) / ((end - executions.first) / 1e9)
    return Cell(rate, figures, tuple(executions.mistakes(wanted)), tuple(notes))


def _until_settled(case: Case, url: str, team: Team, jobs: int) -> int | None:
    """The moment at which all ran and, where that can be asked, were settled; None: not in time. It looks often, since
    the fastest are done in a quarter of a second."""
    deadline = time.monotonic() + case.sizes.patience
    question = case.peer.unfinished
    with case.engine.observer(url) as unfinished:
        while time.monotonic() < deadline:
            now = time.monotonic_ns()
            if team.done() >= jobs and not (question and unfinished(question)):
                return now
            team.check()
            time.sleep(0.003)
    return None


def drain_by_one(case: Case) -> Cell:
    """W3: one worker process, concurrency 10."""
    return drain(case, case.filled(), range(case.sizes.jobs))


def drain_by_two(case: Case) -> Cell:
    """W4: two of them."""
    return drain(case, case.filled(), range(case.sizes.jobs), workers=2)


def latency(case: Case) -> Cell:
    """W5: an idle worker, one job each 50 ms; from the reply to the enqueuer until the handler begins."""
    url, jobs = case.installed(), case.sizes.paced
    with case.host.workers(url) as team, case.host.producer(url) as producer:
        team.start()
        producer.call("one", (WARM_UP, WARM_UP + 1, 1))
        wait_for(case, team, 1)
        commits = producer.call("paced", (0, jobs, 1), gap=case.sizes.gap)["commits"]
        wait_for(case, team, jobs + 1)
        time.sleep(0.3)
        executions = team.executions()
    began = dict(zip(executions.numbers, executions.began, strict=True))
    if not began.keys() & set(range(jobs)):
        raise Failed("no job ran")
    # A handler may begin before the enqueuer has read its reply: that is no wait at all.
    waits = sorted(max(0, began[number] - after) / 1e6 for number, _, after in commits if number in began)
    whole = sorted((began[number] - before) / 1e6 for number, before, _ in commits if number in began)
    figures = {f"p{percent}": _percentile(waits, percent) for percent in (50, 95, 99)}
    figures |= {f"call_p{percent}": _percentile(whole, percent) for percent in (50, 95, 99)}
    return Cell(None, figures, tuple(executions.mistakes({*range(jobs), WARM_UP})))


def wait_for(case: Case, team: Team, jobs: int) -> None:
    """Until so many ran, or patience ends: whoever reads the notes finds what is missing."""
    deadline = time.monotonic() + case.sizes.patience
    while team.done() < jobs and time.monotonic() < deadline:
        team.check()
        time.sleep(0.02)


def _percentile(values: list[float], percent: int) -> float:
    return round(values[min(len(values) - 1, len(values) * percent // 100)], 2)


def drain_beside_scheduled(case: Case) -> Cell:
    """W6: W3 with a million jobs scheduled for tomorrow."""
    return _drain_beside(case, "scheduled", case.sizes.crowd)


def drain_beside_finished(case: Case) -> Cell:
    """W6: W3 with a million finished ones."""
    return _drain_beside(case, "finished", case.sizes.crowd)


def _drain_beside(case: Case, kind: str, crowd: int) -> Cell:
    url = beside(case, kind, crowd)
    case.enqueue(url, "many", (0, case.sizes.jobs, 1))
    return drain(case, url, range(case.sizes.jobs))


def beside(case: Case, kind: str, crowd: int) -> str:
    """A database that holds a crowd of jobs that are not to run: scheduled for tomorrow, or finished."""
    numbers = (LATER, LATER + crowd, 1)

    def scheduled(url: str) -> None:
        case.enqueue(url, "later", numbers, chunk=CHUNK)

    def finished(url: str) -> None:
        case.enqueue(url, "many", numbers, chunk=CHUNK)
        case.engine.execute(url, *case.peer.finish)

    return case.prepared(f"{kind}-{crowd}", {"scheduled": scheduled, "finished": finished}[kind])


def drain_beside_a_transaction(case: Case) -> Cell:
    """W7: jobs are enqueued as they are performed; then another session holds a transaction open. The rate before and
    in each interval after. Both are measured with the same enqueuing going on, so their ratio is the transaction's."""
    sizes = case.sizes
    url = case.filled()
    with case.host.workers(url) as team, case.host.producer(url) as producer:
        feed = _Feed(case, team, producer.call)
        team.start()
        wait_for(case, team, 1)
        feed.during(3 * sizes.interval)
        with case.engine.snapshot(url):
            held = time.monotonic_ns()
            feed.during(sizes.hold)
            released = time.monotonic_ns()
        wait_for(case, team, feed.enqueued)
        time.sleep(0.5)
        executions = team.executions()
    return _told_of_w7(executions, held, released, sizes, feed)


class _Feed:
    """Keeps so many jobs waiting that workers never run out of them."""

    def __init__(self, case: Case, team: Team, call: Callable[..., Any]) -> None:
        self.case = case
        self.team = team
        self.call = call
        self.enqueued = case.sizes.jobs
        self.starved = 0

    def during(self, seconds: float) -> None:
        step = self.case.sizes.jobs // 4
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.team.check()
            waiting = self.enqueued - self.team.done()
            self.starved += waiting <= 0
            if waiting < self.case.sizes.jobs:
                self.call("many", (self.enqueued, self.enqueued + step, 1))
                self.enqueued += step
            else:
                time.sleep(0.02)


def _told_of_w7(executions: Executions, held: int, released: int, sizes: Sizes, feed: _Feed) -> Cell:
    warm = held - int(2 * sizes.interval * 1e9)  # the first interval is a worker's getting going
    before = executions.per_interval(warm, held, sizes.interval)
    after = executions.per_interval(held, released, sizes.interval)
    if not after or not sum(before):
        raise Failed("too little ran to tell a rate")
    usual = sum(before) / len(before)
    mean = sum(after) / len(after)
    last = after[-max(1, len(after) // 10) :]
    figures = {
        "before": round(usual, 1),
        "ratio_to_before": round(mean / usual, 3),
        "last_ratio_to_before": round(sum(last) / len(last) / usual, 3),
        "lowest_ratio_to_before": round(min(after) / usual, 3),
        "held_seconds": sizes.hold,
        "interval": sizes.interval,
        "series_before": [round(rate, 1) for rate in before],
        "series": [round(rate, 1) for rate in after],
    }
    notes = ("its enqueuing could not keep up: at times no job waited",) if feed.starved else ()
    return Cell(mean, figures, tuple(executions.mistakes(range(feed.enqueued))), notes)


def drain_limited(case: Case) -> Cell:
    """W8: a thousand buckets that are limited to one job at a time. Its rate is that of jobs which do nothing; that no
    bucket exceeds its limit is watched on jobs which take a moment, those of one bucket in a row, by two workers."""
    jobs = case.sizes.jobs
    url = case.prepared(f"limited-{jobs}", lambda url: case.enqueue(url, "limited", (0, jobs, 1)))
    cell = drain(case, url, range(jobs))
    return replace(cell, mistakes=(*cell.mistakes, *_watch_limits(case)))


def _watch_limits(case: Case) -> Iterable[str]:
    each, buckets = 20, max(10, case.sizes.jobs // 200)
    in_a_row: list[Range] = [(number, number + each * BUCKETS, BUCKETS) for number in range(buckets)]
    wanted = [number for numbers in in_a_row for number in range(*numbers)]
    url = case.prepared("limited-in-a-row", lambda url: case.enqueue(url, "limited", *in_a_row))
    with case.host.workers(url, 2, hold=0.001) as team:
        team.start()
        _until_settled(case, url, team, len(wanted))
        executions = team.executions()
    yield from executions.mistakes(wanted)
    over = {name: most for name, most in executions.most_at_once(bucket).items() if most > 1}
    if over:
        yield f"{len(over)} buckets over their limit (such as {min(over)}: {over[min(over)]} at once)"


def drain_batch(case: Case) -> Cell:
    """W9: a batch whose callback comes once, after all."""
    jobs = case.sizes.jobs
    url = case.prepared(f"batch-{jobs}", lambda url: case.enqueue(url, "batch", (0, jobs, 1)))
    with case.host.workers(url) as team:
        team.start()
        settled = _until_settled(case, url, team, jobs + 1)
        time.sleep(0.5)
        executions = team.executions()
    mistakes = executions.mistakes({*range(jobs), CALLBACK})
    began = dict(zip(executions.numbers, executions.began, strict=True))
    if CALLBACK in began and began[CALLBACK] < max(
        ended for number, ended in zip(executions.numbers, executions.ended, strict=True) if number != CALLBACK
    ):
        mistakes.append("the callback began before the last job had ended")
    if not began:
        raise Failed("no job ran")
    rate = len(executions) / ((max(executions.last, settled or 0) - executions.first) / 1e9)
    return Cell(rate, {}, tuple(mistakes), () if settled else ("not settled in time",))


Workload = Callable[[Case], Cell]

WORKLOADS: Mapping[str, Workload] = {
    "W1": enqueue_one_by_one,
    "W2": enqueue_in_bulk,
    "W3": drain_by_one,
    "W4": drain_by_two,
    "W5": latency,
    "W6-scheduled": drain_beside_scheduled,
    "W6-finished": drain_beside_finished,
    "W7": drain_beside_a_transaction,
    "W8": drain_limited,
    "W9": drain_batch,
}

TITLES = {
    "W1": "enqueue one by one, /s",
    "W2": "enqueue in bulk, /s",
    "W3": "drain, one worker, /s",
    "W4": "drain, two workers, /s",
    "W5": "commit to handler, p50 / p95 / p99 ms",
    "W6-scheduled": "drain beside scheduled jobs, /s",
    "W6-finished": "drain beside finished jobs, /s",
    "W7": "drain beside a transaction, /s",
    "W8": "drain with a limit by key, /s",
    "W9": "drain a batch, /s",
}
