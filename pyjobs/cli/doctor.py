"""``pyjobs doctor``: whether all is well, what is not, and what to do about it. Reads only."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

import click

from pyjobs.app import Jobs
from pyjobs.cli.application import application, database_options, queue
from pyjobs.cli.checks import Finding, examine
from pyjobs.cli.output import as_json as json_text
from pyjobs.cli.output import json_option, printable
from pyjobs.config import read_settings
from pyjobs.errors import InvalidConfiguration

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_INDENT = " " * 23


@click.command(short_help="Look for what is wrong, and say what to do.")
@database_options
@json_option
@click.pass_context
def doctor(context: click.Context, app: str | None, database: str | None, as_json: bool) -> None:
    """Look for what is wrong: the schema, workers, clocks, leases, schedules, settings. Exits 1 if there is a problem.

    With --app the application's jobs and schedules are compared with those in the database.
    """
    found = _found(app, database)
    counts: Counter[str] = Counter(each.level for each in found)
    if as_json:
        said = {"healthy": not counts["problem"], "problems": counts["problem"], "warnings": counts["warning"]}
        click.echo(json_text(said | {"checks": found}))
    else:
        _print(found)
        click.echo(f"\n{_counted(counts)}")
    if counts["problem"]:
        context.exit(1)


def _found(app: str | None, database: str | None) -> list[Finding]:
    """If the application cannot be had, that is a finding, and the database is looked at without: if it is known."""
    if not _is_named(app):
        return _examined(queue(None, database), compared=False)
    try:
        jobs = application(app, database)
        jobs.load_packages()
    except InvalidConfiguration as error:
        failed = Finding("application", "problem", error.message, error.hint)
    else:
        return _examined(jobs, compared=True)
    try:
        jobs = queue(None, database)
    except InvalidConfiguration:  # only the application could have said which database it is
        return [failed]
    return [failed, *_examined(jobs, compared=False)]


def _examined(jobs: Jobs, *, compared: bool) -> list[Finding]:
    with closing(jobs):
        return examine(jobs, compared=compared)


def _is_named(app: str | None) -> bool:
    return (app or read_settings().app) is not None


def _print(found: Sequence[Finding]) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for each in found:
        level = click.style(f"{each.level:<9}", fg=_COLOURS[each.level])
        click.echo(f"{level}{each.check:<14}{_wrapped(printable(each.message), width)}")
        if each.advice:
            click.echo(_INDENT + _wrapped(f"→ {printable(each.advice)}", width))


def _wrapped(text: str, width: int | None) -> str:
    if width is None:
        return text
    return f"\n{_INDENT}".join(textwrap.wrap(text, max(20, width - len(_INDENT))))


def _counted(counts: Counter[str]) -> str:
    told = [
        f"{counts[level]} {level}{'s' if counts[level] > 1 else ''}"
        for level in ("problem", "warning")
        if counts[level]
    ]
    return ", ".join(told) or "all is well"
