"""The commands that look at one kind of thing: ``dead``, ``batches``, ``schedules``, ``limits``, ``workers``.

With ``--json`` each prints one document whose keys do not change: records as in :mod:`pyjobs.records`.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from typing import Any
from uuid import UUID

import click

from pyjobs.cli import views
from pyjobs.cli.application import database_options, queue
from pyjobs.cli.filters import filter_options
from pyjobs.cli.output import Table, json_option, print_tables
from pyjobs.cli.output import as_json as json_text
from pyjobs.errors import UnknownBatch
from pyjobs.options import JobFilter, contract_filter

_limit = click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")


@click.command(short_help="List the jobs that failed for good, and why.")
@filter_options("--queue", "--name", "--reason", "--tenant", "--batch")
@_limit
@database_options
@json_option
def dead(filter: JobFilter, limit: int, app: str | None, database: str | None, as_json: bool) -> None:
    """List the jobs that failed for good, the last to die first, and why they did.

    `pyjobs show ID` tells all of one, `pyjobs retry` puts back, `pyjobs discard` deletes.
    """
    with closing(queue(app, database).open_store()) as store:
        jobs, now = store.dead(contract_filter(filter), limit=limit), store.now()
    # A terminal may have no room for errors beside the ids, and many may have died of one: so they stand below, once.
    below = [views.causes_table(jobs)] if sys.stdout.isatty() else []
    _print(jobs, [views.dead_table(jobs, now), *below], "no dead jobs", as_json)


@click.command(short_help="List batches, or tell of one.")
@click.argument("id", required=False, type=click.UUID)
@click.option("--finished/--open", default=None, help="Only those that have finished, or have not.")
@_limit
@database_options
@json_option
def batches(
    id: UUID | None, finished: bool | None, limit: int, app: str | None, database: str | None, as_json: bool
) -> None:
    """List batches, the newest first; with ID, tell of that one and of what its jobs are doing."""
    if id is not None and finished is not None:
        raise click.UsageError("--finished and --open choose batches, ID is one")
    with closing(queue(app, database).open_store()) as store:
        now = store.now()
        if id is None:
            found = store.batches(finished=finished, limit=limit)
            _print(found, [views.batches_table(found, now)], "no batches", as_json)
            return
        batch = store.batch(id)
        counts = {state: store.count({"batch_id": id, "state": state}) for state in views.STATES}
    if batch is None:
        raise UnknownBatch(f"there is no batch {id}", "it may have been pruned: pyjobs batches lists those there are")
    if as_json:
        click.echo(json_text(asdict(batch) | {"states": counts}))
    else:
        views.print_batch(batch, counts, now)


@click.command(short_help="List schedules, when next and when last.")
@database_options
@json_option
def schedules(app: str | None, database: str | None, as_json: bool) -> None:
    """List schedules: what they enqueue, when next and when last."""
    with closing(queue(app, database).open_store()) as store:
        found, now = store.schedules(), store.now()
    _print(found, [views.schedules_table(found, now)], "no schedules", as_json)


@click.command(short_help="List concurrency limits and who holds them.")
@database_options
@json_option
def limits(app: str | None, database: str | None, as_json: bool) -> None:
    """List concurrency limits, and who holds their slots."""
    with closing(queue(app, database).open_store()) as store:
        found, now = store.limits(), store.now()
    _print(found, [views.limits_table(found, now)], "no limits", as_json)


@click.command(short_help="List workers, as they last spoke.")
@database_options
@json_option
def workers(app: str | None, database: str | None, as_json: bool) -> None:
    """List workers, as they last spoke. One that is not live has fallen silent: its jobs are taken back."""
    with closing(queue(app, database).open_store()) as store:
        found, now = store.workers(), store.now()
    _print([views.worker_document(each) for each in found], [views.workers_table(found, now)], "no workers", as_json)


def _print(records: list[Any], tables: list[Table], nothing: str, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(records))
    elif records:
        print_tables(*tables)
    else:
        click.echo(nothing)
