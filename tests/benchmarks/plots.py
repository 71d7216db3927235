"""Draws ``results.jsonl``, where matplotlib is: ``python -m benchmarks.plots FOLDER``. It prints what files it drew."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.catalogue import ALL

matplotlib.use("Agg")  # to files; there may be no screen

from matplotlib import pyplot

Row = dict[str, Any]

PERCENTILES = ("p50", "p95", "p99")
PAIRS = matplotlib.colormaps["tab20"].colors  # each hue twice, deep and pale
COLOURS = dict(zip(dict.fromkeys(peer.name for peer in ALL), [*PAIRS[::2], *PAIRS[1::2]], strict=False))


def main(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    for database in dict.fromkeys(row["database"] for row in rows):
        own = [row for row in rows if row["database"] == database and "reason" not in row]
        for name, figure in figures(own, database):
            file = f"{database}-{name}.png"
            figure.savefig(folder / file, dpi=120, bbox_inches="tight")
            pyplot.close(figure)
            print(file)


def figures(rows: Sequence[Row], database: str) -> Iterator[tuple[str, Any]]:
    """Those that there is something to draw for."""
    if rates := [row for row in rows if "rate" in row and "at" not in row]:
        yield "rates", _bars(rates, f"Jobs a second on {database}", "workload", "rate")
    if waits := [row for row in rows if row["workload"] == "W5"]:
        spread = [{**row, "percentile": each, "wait": row[each]} for row in waits for each in PERCENTILES]
        yield "latency", _bars(spread, f"From commit to handler on {database}, ms", "percentile", "wait")
    if held := [row for row in rows if row["workload"] == "W7"]:
        yield "transaction", _lines_over_time(held, database)
    for sweep in dict.fromkeys(row["workload"] for row in rows if "at" in row):
        yield sweep, _growth([row for row in rows if row["workload"] == sweep], sweep, database)


def _bars(rows: Sequence[Row], title: str, group: str, value: str) -> Any:
    """A group of bars for each ``group``, a colour for each peer; logarithmic, since the peers differ a hundredfold."""
    groups, peers = ([*dict.fromkeys(row[key] for row in rows)] for key in (group, "peer"))
    figure, axes = pyplot.subplots(figsize=(max(6, 1.6 * len(groups)), 4.5))
    width = 0.8 / len(peers)
    for place, peer in enumerate(peers):
        found = {row[group]: row[value] for row in rows if row["peer"] == peer}
        at = [number + (place - (len(peers) - 1) / 2) * width for number, each in enumerate(groups) if each in found]
        axes.bar(at, [found[each] for each in groups if each in found], width, label=peer, color=COLOURS[peer])
    axes.set_xticks(range(len(groups)), groups)
    axes.set_yscale("log")
    return _finished(figure, axes, title)


def _lines_over_time(rows: Sequence[Row], database: str) -> Any:
    """The rate in each interval, from some before the transaction began."""
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for row in rows:
        rates = [*row["series_before"], *row["series"]]
        start = -len(row["series_before"])
        moments = [(start + place + 0.5) * row["interval"] for place in range(len(rates))]
        axes.plot(moments, rates, label=row["peer"], color=COLOURS[row["peer"]])
    axes.axvline(0, color="grey", linestyle=":")
    axes.set_xlabel("seconds since another session began its transaction")
    axes.set_ylim(bottom=0)
    return _finished(figure, axes, f"Jobs a second beside a held transaction on {database}")


def _growth(rows: Sequence[Row], sweep: str, database: str) -> Any:
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for peer in dict.fromkeys(row["peer"] for row in rows):
        points = [(row["at"], row["rate"]) for row in rows if row["peer"] == peer]
        axes.plot(*zip(*points, strict=True), marker="o", label=peer, color=COLOURS[peer])
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(sweep.partition("-")[2])
    return _finished(figure, axes, f"Jobs a second on {database}")


def _finished(figure: Any, axes: Any, title: str) -> Any:
    axes.set_title(title)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]))
