"""``pyjobs enqueue``: one job from the shell. Its arguments go to the database as they were typed."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import click

from pyjobs.cli.application import database_options, queue
from pyjobs.cli.completion import job_names
from pyjobs.cli.output import as_json as json_text
from pyjobs.cli.output import json_option
from pyjobs.cli.values import arguments, duration, moment
from pyjobs.options import EnqueueOptions
from pyjobs.records import Enqueued


@click.command(short_help="Enqueue one job and print its id.")
@click.argument("name", shell_complete=job_names)
@click.argument("args", default="{}")
@click.option("--in", "delay", type=duration, help="Not before this long from now: 30s, 5m, 2h.")
@click.option("--at", type=moment, help="Not before this moment: 2026-01-31T09:00:00Z.")
@click.option("--queue", "queue_name", metavar="NAME", help="Instead of the queue its definition says.")
@click.option("--priority", type=int, help="Lower goes first.")
@click.option("--unique", "unique_key", metavar="KEY", help="Only if no waiting or running job has this key.")
@click.option("--tenant", metavar="NAME", help="The customer it belongs to.")
@database_options
@json_option
def enqueue(
    name: str,
    args: str,
    delay: int | None,
    at: datetime | None,
    queue_name: str | None,
    priority: int | None,
    unique_key: str | None,
    tenant: str | None,
    app: str | None,
    database: str | None,
    as_json: bool,
) -> None:
    """Enqueue the job NAME with ARGS, a JSON object ("-" reads it from standard input), and print its id."""
    if delay is not None and at is not None:
        raise click.UsageError("--in and --at exclude each other")
    given = {
        "delay": delay,
        "at": at,
        "queue": queue_name,
        "priority": priority,
        "unique_key": unique_key,
        "tenant": tenant,
    }
    options = cast(EnqueueOptions, {key: value for key, value in given.items() if value is not None})
    text = arguments(args)
    jobs = queue(app, database)
    job = jobs.new_job_of_text(name, text, options)
    id = jobs.call(lambda store: store.enqueue(job.name, job.args, job.options, job.id))
    answer = Enqueued(id, inserted=id == job.id)
    if as_json:
        click.echo(json_text(answer))
        return
    click.echo(answer.id)
    if not answer.inserted:
        click.echo("nothing was enqueued: this job holds the key already", err=True)
