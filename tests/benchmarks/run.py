"""Runs what is planned, in interleaved rounds: each workload by all peers in turn, and all of that again.

So a machine that grows slower, or a neighbour that wakes up, meets all of them alike; a ratio is always taken
within one round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from benchmarks.catalogue import ALL
from benchmarks.databases import Engine, Errors, open_engine
from benchmarks.environments import Unavailable, prepare, without_places
from benchmarks.processes import Failed, Host
from benchmarks.sweeps import SWEEPS
from benchmarks.workloads import WORKLOADS, Case, Cell, Sizes

ONCE = ("W7",)  # ten minutes a peer: once is what there is time for
SWEPT = ("floor", "pyjobs")


@dataclass(frozen=True)
class Plan:
    databases: Sequence[str]
    peers: Sequence[str]
    workloads: Sequence[str]
    sweeps: Sequence[str]
    rounds: int
    sizes: Sizes
    home: Path
    python: Path


class Key(NamedTuple):
    """What was measured. ``at``: the point of a sweep."""

    workload: str
    database: str
    peer: str
    at: int | None = None


@dataclass(frozen=True)
class Result:
    """One cell, or the reason why there is none."""

    key: Key
    round: int
    cell: Cell | None = None
    reason: str | None = None

    @classmethod
    def of(cls, row: dict[str, Any], earlier: int) -> Result:
        """What ``row`` made a row of; its round counts after those of ``earlier`` ones."""
        key = Key(row["workload"], row["database"], row["peer"], row.get("at"))
        if "reason" in row:
            return cls(key, row["round"] + earlier, reason=row["reason"])
        cell = Cell(row["rate"], row["figures"], tuple(row["mistakes"]), tuple(row["notes"]))
        return cls(key, row["round"] + earlier, cell)

    def row(self) -> dict[str, Any]:
        row = self.key._asdict() | {"round": self.round, "reason": self.reason}
        return {name: value for name, value in row.items() if value is not None} | (
            asdict(self.cell) if self.cell else {}
        )


@dataclass(frozen=True)
class Outcome:
    """All that was measured, and what it was measured on: settings by database, and who could not take part."""

    results: list[Result] = field(default_factory=list)
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    absent: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def mistakes(self) -> list[Result]:
        """Of pyjobs: a peer's mistakes are in the report, and its own affair."""
        return [each for each in self.results if each.key.peer == "pyjobs" and each.cell and each.cell.mistakes]


def note(outcome: Outcome, machine: dict[str, str], out: Path) -> None:
    """Write ``machine.json``: what it is measured on, and who cannot take part."""
    absent = [(*key, reason) for key, reason in outcome.absent.items()]
    told = {"machine": machine, "databases": outcome.settings, "absent": absent}
    (out / "machine.json").write_text(json.dumps(told, indent=2) + "\n")


def read(folders: Sequence[Path]) -> tuple[Outcome, dict[str, str]]:
    """What earlier runs have measured, as if it had been one, and the machine it was measured on."""
    outcome, machine = Outcome(), dict[str, str]()
    for folder in folders:
        earlier = max((result.round for result in outcome.results), default=0)
        lines = (folder / "rounds.jsonl").read_text().splitlines()
        outcome.results.extend(Result.of(json.loads(line), earlier) for line in lines)
        told = json.loads((folder / "machine.json").read_text())
        machine |= told["machine"]
        outcome.settings.update(told["databases"])
        outcome.absent.update(((database, peer), reason) for database, peer, reason in told["absent"])
    return outcome, machine


@dataclass(frozen=True)
class Step:
    """One thing to measure: a workload, or a point of a sweep."""

    workload: str
    measure: Callable[[Case], Cell]
    at: int | None = None


def measure(plan: Plan, machine: dict[str, str], out: Path, stack: ExitStack) -> Outcome:
    """Everything, each result written to ``rounds.jsonl`` as soon as it is there: of a run that was ended early, what
    it had measured can still be read."""
    outcome = Outcome()
    engines = [stack.enter_context(closing(open_engine(url))) for url in plan.databases]
    cases = [case for engine in engines for case in _cases(plan, engine, out, outcome)]
    outcome.settings.update((engine.name, engine.settings()) for engine in engines)
    note(outcome, machine, out)
    file = stack.enter_context((out / "rounds.jsonl").open("w"))
    for number in range(1, plan.rounds + 1):
        for step in _steps(plan, number):
            for case in cases:
                result = _result(case, step, number, outcome)
                if result is not None:
                    outcome.results.append(result)
                    _tell(result, file)
    return outcome


def _cases(plan: Plan, engine: Engine, out: Path, outcome: Outcome) -> Iterator[Case]:
    logs = out / "logs"
    logs.mkdir(exist_ok=True)
    for peer in ALL:
        if peer.name not in plan.peers or engine.dialect not in peer.dialects:
            continue
        try:
            environment = prepare(peer, plan.home, plan.python)
        except Unavailable as error:
            outcome.absent[engine.name, peer.name] = str(error)
            print(f"{engine.name:14} {peer.name:16} {error}", flush=True)
        else:
            yield Case(peer, engine, Host(environment, logs / f"{peer.name}-{engine.name}.log"), plan.sizes)


def _steps(plan: Plan, number: int) -> Iterator[Step]:
    for name in plan.workloads:
        if number == 1 or name not in ONCE:
            yield Step(name, WORKLOADS[name])
    for name in plan.sweeps:
        sweep = SWEEPS[name]
        for point in sweep.points:
            if point <= max(plan.sizes.crowd, sweep.points[0]):
                yield Step(f"sweep-{name}", _at(sweep.at, point), point)


def _at(measure: Callable[[Case, int], Cell], point: int) -> Callable[[Case], Cell]:
    return lambda case: measure(case, point)


def _result(case: Case, step: Step, number: int, outcome: Outcome) -> Result | None:
    """None where there is nothing to say: no sweep of that peer, or it was said in an earlier round."""
    key = Key(step.workload, case.engine.name, case.peer.name, step.at)
    if step.at is not None and (key.peer not in SWEPT or step.workload in case.peer.without):
        return None
    if reason := case.peer.without.get(step.workload):
        return Result(key, number, reason=reason) if number == 1 else None
    if any(each.key == key and each.cell is None for each in outcome.results):
        return None
    try:
        return Result(key, number, step.measure(case))
    except (Failed, OSError, *Errors) as error:
        return Result(key, number, reason=without_places(str(error).strip().partition("\n")[0]))


def _tell(result: Result, file: TextIO) -> None:
    file.write(json.dumps(result.row()) + "\n")
    file.flush()
    workload, database, peer, at = result.key
    name = workload if at is None else f"{workload} {at:,}"
    print(f"{result.round} {name:23} {database:14} {peer:16} {_in_short(result)}", flush=True)


def _in_short(result: Result) -> str:
    if result.cell is None:
        return f"– {result.reason}"
    cell = result.cell
    figures = " ".join(f"{name}={value}" for name, value in cell.figures.items() if isinstance(value, int | float))
    rate = "" if cell.rate is None else f"{cell.rate:10,.0f} /s "
    notes = [f"({note})" for note in cell.notes]
    mistakes = [f"WRONG: {mistake}" for mistake in cell.mistakes]
    return " ".join(filter(None, (rate, figures, *notes, *mistakes)))
