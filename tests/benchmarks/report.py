"""Writes down what was measured: a JSON line a cell, a page with tables, the machine, plots."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.catalogue import ALL
from benchmarks.environments import TESTS, Unavailable, python_with
from benchmarks.run import Key, Outcome, Result
from benchmarks.workloads import TITLES

MATPLOTLIB = ("matplotlib==3.10.9",)

Row = dict[str, Any]


def write(outcome: Outcome, described: dict[str, str], out: Path, home: Path, python: Path) -> None:
    """``results.jsonl``, ``report.md`` and the plots, into ``out``."""
    rows = list(summary(outcome.results))
    _write_lines(out / "results.jsonl", rows)
    page = "\n".join(render(rows, outcome, described))
    (out / "report.md").write_text(page + "\n" + draw(out, home, python) + "\n")
    print(page)


def summary(results: Sequence[Result]) -> Iterator[Row]:
    """One row for each workload, database, peer and point: medians over the rounds, and of the ratios within them."""
    rates = {(each.key, each.round): each.cell.rate for each in results if each.cell and each.cell.rate}
    for key in dict.fromkeys(each.key for each in results):
        own = [each for each in results if each.key == key]
        cells = [each.cell for each in own if each.cell]
        row: Row = {name: value for name, value in key._asdict().items() if value is not None}
        if not cells:
            yield row | {"reason": own[0].reason}
            continue
        row |= {"rounds": len(cells), "exact": not any(cell.mistakes for cell in cells)}
        if measured := [cell.rate for cell in cells if cell.rate is not None]:
            row["rate"] = round(median(measured), 1)
            row["rates"] = [round(rate, 1) for rate in measured]
            row |= _ratio("ratio_to_floor", rates, key, key._replace(peer="floor"))
            row |= _ratio("ratio_to_w3", rates, key, key._replace(workload="W3", at=None))
        row |= _figures([cell.figures for cell in cells])
        row["mistakes"] = [*dict.fromkeys(each for cell in cells for each in cell.mistakes)]
        row["notes"] = [*dict.fromkeys(each for cell in cells for each in cell.notes)]
        yield row


def _ratio(name: str, rates: Mapping[tuple[Key, int], float], key: Key, other: Key) -> Row:
    """The median over the rounds that have both."""
    ratios = [
        rate / rates[other, number] for (own, number), rate in rates.items() if own == key and (other, number) in rates
    ]
    return {name: round(median(ratios), 3)} if ratios else {}


def _figures(figures: Sequence[Any]) -> Row:
    """Numbers as their median, series and whatever else as they were in the first round."""
    return {
        name: round(median(each[name] for each in figures), 3) if isinstance(value, int | float) else value
        for name, value in figures[0].items()
    }


def render(rows: Sequence[Row], outcome: Outcome, described: dict[str, str]) -> Iterator[str]:
    """The page, line by line."""
    yield "# Measured\n"
    yield "; ".join(f"{name}: {value}" for name, value in described.items()) + ".\n"
    for database, settings in outcome.settings.items():
        yield f"## {database}\n"
        yield ", ".join(f"{name} {value}" for name, value in settings.items()) + ".\n"
        own = [row for row in rows if row["database"] == database]
        yield from _table(own)
        yield from _sweeps(own)
        yield from _remarks(own, outcome, database)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    workloads = [name for name in TITLES if any(row["workload"] == name for row in rows)]
    peers = [*dict.fromkeys(row["peer"] for row in rows)]
    if not workloads:
        return
    found = {(row["peer"], row["workload"]): row for row in rows}
    yield "| | " + " | ".join(peers) + " |"
    yield "|---|" + "---:|" * len(peers)
    for workload in workloads:
        cells = (_cell(found.get((peer, workload))) for peer in peers)
        yield f"| {workload} {TITLES[workload]} | " + " | ".join(cells) + " |"
    yield "\nIn brackets: the ratio to the floor. –: see below. ✗: a mistake, see below.\n"


def _cell(row: Row | None) -> str:
    if row is None or "reason" in row:
        return "–"
    wrong = "" if row["exact"] else " ✗"
    if "rate" not in row:
        return f"{row['p50']:.1f} / {row['p95']:.1f} / {row['p99']:.1f}{wrong}"
    ratio = f" ({row['ratio_to_floor']:.2f})" if "ratio_to_floor" in row and row["peer"] != "floor" else ""
    return f"{row['rate']:,.0f}{ratio}{wrong}"


def _sweeps(rows: Sequence[Row]) -> Iterator[str]:
    for sweep in dict.fromkeys(row["workload"] for row in rows if "at" in row):
        own = [row for row in rows if row["workload"] == sweep]
        points = [*dict.fromkeys(row["at"] for row in own)]
        yield f"| {sweep.replace('-', ': ')} | " + " | ".join(f"{point:,}" for point in points) + " |"
        yield "|---|" + "---:|" * len(points)
        for peer in dict.fromkeys(row["peer"] for row in own):
            at = {row["at"]: row for row in own if row["peer"] == peer}
            yield f"| {peer} | " + " | ".join(_cell(at.get(point)) for point in points) + " |"
        yield ""


def _remarks(rows: Sequence[Row], outcome: Outcome, database: str) -> Iterator[str]:
    for peer in ALL:
        own = [row for row in rows if row["peer"] == peer.name]
        if own and database.partition("-")[0] in peer.dialects:
            packages = " ".join(package for package in peer.packages if re.search(r".(==|@)\d", package))
            yield f"- **{peer.name}** {f'({packages})' if packages else ''}: {peer.settings}.".replace(" :", ":")
            for row in own:
                told = [row["reason"]] if "reason" in row else [*row["mistakes"], *row["notes"]]
                at = f" at {row['at']:,}" if "at" in row else ""
                if told:
                    yield f"  - {row['workload']}{at}: {'; '.join(told)}"
    for (where, peer_name), reason in outcome.absent.items():
        if where == database:
            yield f"- **{peer_name}** did not take part: {reason}"
    yield ""


def draw(out: Path, home: Path, python: Path) -> str:
    """The plots, by matplotlib in an environment of its own; what to write of them."""
    try:
        interpreter = python_with("plots", MATPLOTLIB, home, python)
    except Unavailable as error:
        return f"No plots: matplotlib {error}"
    done = subprocess.run(
        [str(interpreter), "-m", "benchmarks.plots", str(out)],
        env={"PYTHONPATH": str(TESTS), "MPLCONFIGDIR": str(home), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"No plots: {done.stderr.strip().splitlines()[-1]}"
    return "\n".join(f"![{name}]({name})" for name in done.stdout.split())


def _write_lines(file: Path, rows: Iterable[Row]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
