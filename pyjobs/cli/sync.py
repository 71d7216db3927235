"""``pyjobs sync``: what an application declares, put into the database. For a deploy; workers do it when they start."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from pyjobs.cli.application import application, database_options
from pyjobs.cli.differences import differences
from pyjobs.cli.output import Table, json_option, print_tables
from pyjobs.cli.output import as_json as json_text


@click.command(short_help="Put the jobs and schedules of the code there.")
@database_options
@json_option
def sync(app: str | None, database: str | None, as_json: bool) -> None:
    """Put the application's jobs and schedules into the database, and say what that changed.

    Schedules which this application declared earlier and no longer does are forgotten; those of others stay.
    """
    with closing(application(app, database)) as jobs, closing(jobs.open_store()) as store:
        jobs.load_packages()
        found = differences(jobs, store)
        jobs.sync(store)
        declared = {"jobs": len(jobs.definitions), "schedules": len(jobs.schedules)}
        said: dict[str, Any] = {"application": jobs.name, **declared, "changes": found}
    if as_json:
        click.echo(json_text(said))
    elif found:
        rows = [[each.kind, each.name, each.change, each.told()] for each in found]
        print_tables(Table("", ["kind", "name", "change", "what"], rows))
    else:
        counts = " and ".join(f"{count} {word if count != 1 else word[:-1]}" for word, count in declared.items())
        click.echo(f"nothing to change: {counts} declared")
