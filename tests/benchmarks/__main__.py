"""``make bench``: measure, and write down what came of it."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, report, run
from benchmarks.catalogue import ALL
from benchmarks.environments import best_python
from benchmarks.sweeps import SWEEPS
from benchmarks.workloads import QUICK, WORKLOADS, Sizes

DATABASES = ["postgresql", "sqlite"]


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    home, out = options.environments.absolute(), options.out.absolute()
    python = options.python or best_python()
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that servers and databases of ours end, too
    if options.report:
        outcome, described = run.read(options.report)
        run.note(outcome, described, out)
    else:
        described = machine.describe(python)
        with ExitStack() as stack:
            outcome = run.measure(plan(options, home, python), described, out, stack)
    report.write(outcome, described, out, home, python)
    if outcome.mistakes:
        sys.exit("not every job ran exactly once, or a limit was exceeded: see the mistakes in the report")


def plan(options: argparse.Namespace, home: Path, python: Path) -> run.Plan:
    sizes = QUICK if options.quick else Sizes()
    if options.hold is not None:
        sizes = replace(sizes, hold=options.hold, interval=max(0.5, min(10.0, options.hold / 6)))
    return run.Plan(
        databases=options.databases,
        peers=chosen(options.only, [*dict.fromkeys(peer.name for peer in ALL)], "peer"),
        workloads=chosen(options.workloads, [*WORKLOADS], "workload"),
        sweeps=chosen(options.sweeps, [*SWEEPS], "sweep"),
        rounds=options.rounds or (1 if options.quick else 3),
        sizes=sizes,
        home=home,
        python=python,
    )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="PEER", help="these peers; the floor is worth its time")
    parser.add_argument("--workloads", nargs="+", metavar="W", help="these; W6 stands for both; none for none")
    parser.add_argument("--sweeps", nargs="+", metavar="SWEEP", help=f"these of {', '.join(SWEEPS)}; none for none")
    parser.add_argument("--rounds", type=int, help="how often, interleaved; 3 unless given")
    parser.add_argument("--databases", nargs="+", default=DATABASES, metavar="URL",
                        help="URLs of servers; postgresql: one of our own; sqlite needs no more")  # fmt: skip
    parser.add_argument(
        "--hold", type=float, metavar="SECONDS", help="how long W7 holds its transaction; 600 unless given"
    )
    parser.add_argument("--report", nargs="+", type=Path, metavar="FOLDER",
                        help="measure nothing: write one report of what runs have left in these folders")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a thousand jobs and one round: to see that all works")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks"), help="the folder for the results")
    parser.add_argument("--environments", type=Path, default=Path(sys.prefix) / "benchmarks",
                        help="the folder for the environments of the peers")  # fmt: skip
    parser.add_argument(
        "--python", type=Path, help="the Python of all that is written in it; the newest found unless given"
    )
    return parser


def chosen(asked: list[str] | None, there: list[str], kind: str) -> list[str]:
    """Those of ``there`` that are asked for, by their names or what stands in them before a hyphen; in their order."""
    if asked is None:
        return there
    if asked == ["none"]:
        return []
    known = {*there, *(name.partition("-")[0] for name in there)}
    if unknown := [name for name in asked if name not in known]:
        sys.exit(f"there is no {kind} {unknown[0]!r}; there are: {', '.join(there)}")
    return [name for name in there if name in asked or name.partition("-")[0] in asked]


if __name__ == "__main__":
    main()
