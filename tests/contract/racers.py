"""Races for real: what each of several processes does at once. The tests are in test_races.py.

A racer is a function of its own store and its lane (who it is, what it shares with the others); what it returns
goes back to the test. Each runs in a process of its own, started afresh, so nothing but the database ties them.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID, uuid4

from pyjobs.errors import JobRunning, StoreUnavailable, UniqueKeyHeld
from pyjobs.records import ClaimRequest, Held, NewJob, Outcome
from pyjobs.store import open_store
from pyjobs.store.base import Store
from servers.databases import Database

CONTEXT = multiprocessing.get_context("spawn")
PATIENCE = 60  # seconds after which a race is taken for stuck
Racer = Callable[[Store, "Lane"], Any]


@dataclass(frozen=True)
class Lane:
    """One racer's place: its number, the database, the starting gun, and what it shares with the others."""

    number: int
    database: Database
    start: Any
    shared: Any = None

    @property
    def worker(self) -> str:
        return f"worker-{self.number}"

    def request(self, max_jobs: int, **how: Any) -> ClaimRequest:
        return ClaimRequest(worker=self.worker, token=uuid4(), max_jobs=max_jobs, **how)


def race(racer: Racer, database: Database, *, racers: int = 8, shared: Any = None) -> list[Any]:
    """Let that many processes run ``racer`` at once; what each returned. An error in one of them is raised here."""
    with running(racer, database, racers=racers, shared=shared) as processes:
        return [answer(process, pipe) for process, pipe in processes]


@contextmanager
def running(
    racer: Racer, database: Database, *, racers: int, shared: Any = None
) -> Iterator[list[tuple[Any, Connection]]]:
    """The processes and the pipes on which they answer; none is left when the block ends."""
    start = CONTEXT.Barrier(racers)
    plain = Database(database.name, database.dialect, database.url)  # without its server, which stays here
    processes = []
    for number in range(racers):
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_run, args=(theirs, racer, Lane(number, plain, start, shared)), daemon=True)
        process.start()
        theirs.close()
        processes.append((process, ours))
    try:
        yield processes
    finally:
        for process, _ in processes:
            process.kill()
            process.join()


def answer(process: Any, pipe: Connection) -> Any:
    if not pipe.poll(PATIENCE):
        raise AssertionError(f"{process.name} is stuck")
    kind, value = pipe.recv()
    if kind == "failed":
        raise AssertionError(f"{process.name} failed:\n{value}")
    return value


def _run(pipe: Connection, racer: Racer, lane: Lane) -> None:
    store = open_store(lane.database.url)
    try:
        store.contract()
        lane.start.wait(PATIENCE)
        pipe.send(("answer", racer(store, lane)))
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
    finally:
        store.close()


def claimer(store: Store, lane: Lane) -> list[tuple[UUID, int]]:
    """Claim by random numbers and settle, until nothing is left; the ids and attempts that were claimed."""
    chance = random.Random(lane.number)
    claimed: list[tuple[UUID, int]] = []
    settled: list[Outcome] = []
    while True:
        store.settle_many(settled)
        jobs = store.claim(lane.request(chance.randint(1, 40)))
        if not jobs:
            return claimed
        claimed += [(job.id, job.attempt) for job in jobs]
        settled = [Outcome(job.id, job.token, "done") for job in jobs]


@dataclass(frozen=True)
class Visit:
    """How long a job was in hand, by the machine's clock, and how many of its bucket were then."""

    bucket: int
    entered: int
    left: int
    together: int


def visitor(store: Store, lane: Lane) -> list[Visit]:
    """Perform bounded jobs whose args name their place in a shared array of counters, until all have ended."""
    counters = lane.shared
    chance = random.Random(lane.number)
    visits: list[Visit] = []
    while store.count({"state": "pending"}):
        jobs = store.claim(lane.request(chance.randint(1, 6)))
        places = [json.loads(job.args)["k"] for job in jobs]
        entered = [_enter(counters, place) for place in places]
        store.heartbeat(lane.worker, [Held(job.id, job.token) for job in jobs])
        left = [_leave(counters, place) for place in places]
        visits += map(Visit, places, (moment for _, moment in entered), left, (together for together, _ in entered))
        outcome = chance.choice(["done", "done", "failed", "released"])
        store.settle_many([Outcome(job.id, job.token, outcome, {}) for job in jobs])  # type: ignore[arg-type]
    return visits


def _enter(counters: Any, place: int) -> tuple[int, int]:
    with counters.get_lock():
        counters[place] += 1
        return counters[place], time.monotonic_ns()


def _leave(counters: Any, place: int) -> int:
    with counters.get_lock():
        counters[place] -= 1
        return time.monotonic_ns()


def settler(store: Store, lane: Lane) -> int:
    """Settle this lane's share of a batch one by one; how many callbacks were seen before its last outcome."""
    early = 0
    for job in lane.shared[lane.number]:
        early += store.count({"name": "after"})
        store.settle(job.id, job.token, "failed" if job.id.int % 3 == 0 else "done", {})
    return early


def passer(store: Store, lane: Lane) -> int:
    """Of each two, one claims until nothing is left, and passes what it got on to those who settle, some at once and
    some one by one; how many calls that took."""
    chance = random.Random(lane.number)
    claims = lane.number % 2 == 0
    calls = 0
    while True:
        calls += 1
        if claims:
            held = [Held(job.id, job.token) for job in store.claim(lane.request(chance.randint(1, 12)))]
            lane.shared.put(held)
            if not held:
                return calls
        else:
            held = lane.shared.get(timeout=PATIENCE)
            if not held:
                return calls
            outcomes = [_ending(chance, each) for each in held]
            if chance.random() < 0.5:
                store.settle_many(outcomes)
            else:
                for each in outcomes:
                    store.settle(each.id, each.token, each.outcome, each.detail)
                calls += len(outcomes) - 1


def _ending(chance: random.Random, held: Held) -> Outcome:
    kind: Any = chance.choice(["done"] * 8 + ["failed", "released"])
    return Outcome(held.id, held.token, kind, {"retry_in_ms": 0} if kind == "failed" else {})


def ticker(store: Store, lane: Lane) -> list[UUID]:
    """Ten threads, each with a store of its own, tick one moment; the jobs they fired."""
    expected, following = lane.shared
    start = threading.Barrier(10)

    def tick(_: int) -> UUID | None:
        own = open_store(lane.database.url)
        own.contract()
        start.wait(PATIENCE)
        try:
            return own.tick_schedule("tidy", expected, following)
        finally:
            own.close()

    with ThreadPoolExecutor(10) as threads:
        return [id for id in threads.map(tick, range(10)) if id is not None]


def rival(store: Store, lane: Lane) -> tuple[UUID, bool, bool]:
    """Enqueue under a key all rivals want. The first to get it rolls back: (id, inserted, committed)."""
    winner_seen = lane.shared
    connection = lane.database.connect()
    answer = None
    while answer is None:
        connection.execute("BEGIN IMMEDIATE" if lane.database.dialect == "sqlite" else "BEGIN")
        try:
            [answer] = store.join(connection).enqueue_many([NewJob("work", options={"unique_key": "k"})])
        except StoreUnavailable:
            if lane.database.dialect != "mysql":
                raise
            # Where an insert is rolled back that several wait for, InnoDB lets one of them in and gives up the others.
            connection.execute("ROLLBACK")
    with winner_seen.get_lock():
        rolls_back = answer.inserted and not winner_seen.value
        winner_seen.value = winner_seen.value or answer.inserted
    connection.execute("ROLLBACK" if rolls_back else "COMMIT")
    connection.close()
    return answer.id, answer.inserted, not rolls_back


def hoarder(store: Store, lane: Lane) -> int:
    """Claim and settle until killed, telling the test how far it got; it never settles what it claimed last."""
    done, progress = 0, lane.shared
    while True:
        jobs = store.claim(lane.request(5))
        for job in jobs[:-1]:
            store.settle(job.id, job.token, "done", {})
            done += 1
        with progress.get_lock():
            progress[lane.number] = done


def stormer(store: Store, lane: Lane) -> Counter[str]:
    """Everything at once, at random: each racer is producer, worker, operator and sweeper in turn."""
    chance = random.Random(lane.number)
    storm = _Storm(store, lane, chance)
    acts = [storm.produce, storm.work, storm.work, storm.work, storm.beat, storm.operate, storm.sweep, storm.redefine]
    deadline = time.monotonic() + lane.shared
    while time.monotonic() < deadline:
        chance.choice(acts)()
    return storm.did


class _Storm:
    """What a stormer has in hand between its acts."""

    def __init__(self, store: Store, lane: Lane, chance: random.Random) -> None:
        self.store = store
        self.lane = lane
        self.chance = chance
        self.held: list[Held] = []
        self.did: Counter[str] = Counter()

    def produce(self) -> None:
        batch_id = self.store.open_batch({"callback": {"name": "after"}})
        jobs = [
            NewJob(
                self.chance.choice(["work", "limited"]),
                f'{{"k": {self.chance.randrange(3)}}}',
                {
                    "batch_id": str(batch_id),
                    "delay_ms": self.chance.choice([0, 0, 1]),
                    "priority": self.chance.randrange(3),
                    "unique_for": self.chance.choice(["active", "row"]),
                    "unique_key": f"k{self.chance.randrange(1_000)}",
                },
            )
            for _ in range(self.chance.randint(0, 6))
        ]
        self.did["inserted"] += sum(answer.inserted for answer in self.store.enqueue_many(jobs))
        self.store.seal_batch(batch_id)
        self.did["batches"] += 1

    def work(self) -> None:
        jobs = self.store.claim(
            self.lane.request(self.chance.randint(1, 8), lease_ms=self.chance.choice([0, 50, 60_000]))
        )
        self.held += [Held(job.id, job.token) for job in jobs]
        self.chance.shuffle(self.held)
        number = self.chance.randint(0, len(self.held))
        outcomes = [self._outcome(held) for held in self.held[:number]]
        del self.held[:number]
        answers = self.store.settle_many(outcomes)
        self.did["settled"] += sum(answer.accepted for answer in answers)
        if self.chance.random() < 0.2:
            again = self.store.settle_many(outcomes)
            assert len(again) == len(answers)

    def _outcome(self, held: Held) -> Outcome:
        kind: Any = self.chance.choice(["done", "done", "failed", "failed", "released", "snoozed", "cancelled"])
        details: dict[str, Any] = {"failed": {"retry_in_ms": 0}, "snoozed": {"delay_ms": 0}}
        return Outcome(held.id, held.token, kind, details.get(kind, {}))

    def beat(self) -> None:
        for attention in self.store.heartbeat(self.lane.worker, self.held, lease_ms=100):
            if attention.signal == "lost":
                self.held = [held for held in self.held if held.id != attention.id]

    def operate(self) -> None:
        jobs = self.store.jobs(limit=30)
        for job in self.chance.sample(jobs, min(3, len(jobs))):
            act = self.chance.choice(["retry", "cancel", "discard"])
            try:
                number = getattr(self.store, act)({"id": str(job.id)})
            except (JobRunning, UniqueKeyHeld):
                number = 0
            self.did[act] += number
        self.did["retry"] += self.store.retry({"state": "dead", "limit": 2})

    def sweep(self) -> None:
        swept = self.store.sweep({"limit": 20})
        self.did["rescued"] += swept.rescued + swept.buried

    def redefine(self) -> None:
        if self.chance.random() < 0.2:
            self.store.define("limited", {"concurrency": {"limit": 2, "key": "k"}, "max_attempts": 3})
