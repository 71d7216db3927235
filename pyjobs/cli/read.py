"""The commands that look: ``status``, ``list``, ``show``. Only ``show`` prints a job's arguments.

With ``--json`` each prints one document whose keys do not change: records as in :mod:`pyjobs.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import get_args
from uuid import UUID

import click

from pyjobs.cli import views
from pyjobs.cli.application import database_options, queue
from pyjobs.cli.completion import job_names, queue_names
from pyjobs.cli.output import Table, json_option, print_tables
from pyjobs.cli.output import as_json as json_text
from pyjobs.errors import PyjobsError
from pyjobs.records import State

STATES = get_args(State)


@click.command()
@database_options
@json_option
def status(app: str | None, database: str | None, as_json: bool) -> None:
    """What the queue holds, who works on it, and what is in the way."""
    with closing(queue(app, database).open_store()) as store:
        overview = views.Overview.of(store)
    if as_json:
        click.echo(
            json_text(asdict(overview) | {"workers": [views.worker_document(each) for each in overview.workers]})
        )
    else:
        _print(views.overview_tables(overview), "the queue is empty")


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--queue", "queue_name", metavar="NAME", shell_complete=queue_names, help="Only jobs of this queue.")
@click.option("--name", metavar="NAME", shell_complete=job_names, help="Only jobs of this name.")
@click.option("--tenant", metavar="NAME", help="Only jobs of this customer.")
@click.option("--batch", "batch_id", type=click.UUID, metavar="ID", help="Only jobs of this batch.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@database_options
@json_option
def list_jobs(
    state: State | None,
    queue_name: str | None,
    name: str | None,
    tenant: str | None,
    batch_id: UUID | None,
    limit: int,
    app: str | None,
    database: str | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    given = {"state": state, "queue": queue_name, "name": name, "tenant": tenant, "batch_id": batch_id}
    filter = {key: value for key, value in given.items() if value is not None}
    with closing(queue(app, database).open_store()) as store:
        jobs, now = store.jobs(filter, limit=limit), store.now()
    if as_json:
        click.echo(json_text([views.without_payload(job) for job in jobs]))
    else:
        _print([views.jobs_table(jobs, now)], "no jobs")


@click.command()
@click.argument("id", type=click.UUID)
@database_options
@json_option
def show(id: UUID, app: str | None, database: str | None, as_json: bool) -> None:
    """Show one job: its arguments, and each attempt that failed."""
    with closing(queue(app, database).open_store()) as store:
        job, failures, now = store.job(id), store.failures(id), store.now()
    if job is None:
        raise PyjobsError(f"there is no job {id}", "it may have been pruned: pyjobs list shows the jobs there are")
    if as_json:
        click.echo(views.job_document(job, failures))
    else:
        views.print_job(job, failures, now)


def _print(tables: Sequence[Table], nothing: str) -> None:
    if any(table.rows for table in tables):
        print_tables(*tables)
    else:
        click.echo(nothing)
