"""How commands print: tables that fit a terminal, plain lines when piped, JSON of a stable shape for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import click
import rich.table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")

GAP = 2
"""Between two columns."""

_STYLES = {"dead": "red", "running": "cyan", "done": "green", "cancelled": "dim", "scheduled": "dim"}


def as_json(value: Any) -> str:
    """The value as JSON: records as objects, moments as ISO 8601, ids as text."""
    return json.dumps(value, indent=2, default=_plain, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title. A column whose name begins with ``#`` holds numbers. ``spare``: the columns that a terminal
    too narrow for all does without, the first one first."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    spare: Sequence[str] = ()


def print_tables(*tables: Table) -> None:
    """Print those that have rows: within the terminal's width, or as aligned columns of full length when piped."""
    console = Console()
    for number, shown in enumerate(each for each in tables if each.rows):
        if number:
            click.echo()
        if console.is_terminal:
            if shown.title:
                console.print(Text(shown.title, style="bold"))
            console.print(_fitted(_narrowed(shown, console.width)))
        else:
            _print_plain(shown)


@contextmanager
def working(text: str) -> Iterator[None]:
    """The block may take long: say what it is about, on a terminal, for as long as it lasts."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(f"{text}…"):
            yield
    else:
        yield


def printable(text: str) -> str:
    """The text on one line, with what could steer a terminal made visible: names come from anywhere."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def ago(moment: datetime | None, now: datetime) -> str:
    """``3m ago``, ``in 2h``; a dash for none."""
    if moment is None:
        return "-"
    if moment > now:
        return f"in {span(moment - now)}"
    return f"{span(now - moment)} ago"


def span(length: timedelta | int) -> str:
    """A length of time (ms if it is an int) in its one or two largest units, rounded down."""
    ms = length if isinstance(length, int) else length // timedelta(milliseconds=1)
    if ms < 10_000:
        return f"{ms}ms" if ms < 1_000 else f"{ms / 1_000:.1f}s"
    for unit, size, lower, lower_size in (
        ("d", 86_400_000, "h", 3_600_000),
        ("h", 3_600_000, "m", 60_000),
        ("m", 60_000, "s", 1_000),
    ):
        if ms >= size:
            rest = ms % size // lower_size
            return f"{ms // size}{unit}{rest}{lower}" if rest else f"{ms // size}{unit}"
    return f"{ms // 1_000}s"


def _narrowed(shown: Table, width: int) -> Table:
    """Without so many of the spare columns that the others fit, if they can."""
    for name in shown.spare:
        columns = zip(*[shown.columns, *shown.rows], strict=True)
        if sum(max(cell_len(printable(cell)) for cell in column) + GAP for column in columns) <= width:
            break
        place = shown.columns.index(name)
        columns_left, *rows = [[*line[:place], *line[place + 1 :]] for line in [shown.columns, *shown.rows]]
        shown = replace(shown, columns=columns_left, rows=rows)
    return shown


def _fitted(shown: Table) -> rich.table.Table:
    drawn = rich.table.Table(box=None, padding=(0, GAP, 0, 0))
    for column in shown.columns:
        justify: Literal["left", "right"] = "right" if column.startswith("#") else "left"
        # What must not be cut: numbers, states, and ids, which are there to be copied.
        whole = column.startswith("#") or column in ("id", "state")
        drawn.add_column(column.removeprefix("#"), justify=justify, header_style="dim", no_wrap=whole)
    for row in shown.rows:
        drawn.add_row(*(_cell(cell) for cell in row))
    return drawn


def _cell(cell: str) -> Text:
    return Text(printable(cell), style=_STYLES.get(cell, ""), no_wrap=True, overflow="ellipsis")


def _print_plain(shown: Table) -> None:
    lines = [[column.removeprefix("#") for column in shown.columns]]
    lines += [[printable(cell) for cell in row] for row in shown.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if shown.title:
        click.echo(shown.title)
    for line in lines:
        cells = zip(line, widths, shown.columns, strict=True)
        padded = (cell.rjust(width) if name.startswith("#") else cell.ljust(width) for cell, width, name in cells)
        click.echo("  ".join(padded).rstrip())


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON")
