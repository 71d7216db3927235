"""``pyjobs perform``: one job here and now, without the queue. To try a handler, and to repair by hand."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import click

from pyjobs.cli.application import application, database_options
from pyjobs.cli.completion import job_names
from pyjobs.cli.output import printable
from pyjobs.cli.values import arguments


@click.command(short_help="Perform one job here and now.")
@click.argument("name", shell_complete=job_names)
@click.argument("args", default="{}")
@click.option("--tenant", metavar="NAME", help="The customer it is performed for.")
@database_options
def perform(name: str, args: str, tenant: str | None, app: str | None, database: str | None) -> None:
    """Perform the job NAME with ARGS, a JSON object ("-" reads it from standard input), and print what it returns.

    In this process: no row, no queue, no concurrency limit, no timeout and no retry. What the handler raises ends it
    with status 1.
    """
    text = arguments(args)
    with closing(application(app, database)) as jobs, jobs.tenant(tenant):
        jobs.load_packages()
        answer = jobs.perform_text_now(name, text)
    if answer is not None:
        click.echo(_shown(answer))


def _shown(answer: Any) -> str:
    try:
        return json.dumps(answer, ensure_ascii=False)
    except (TypeError, ValueError):
        return printable(repr(answer))
