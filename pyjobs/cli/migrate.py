"""``pyjobs migrate``: the database brought up to date, looked at, or emptied of pyjobs. Safe to run at every deploy."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from pyjobs import install
from pyjobs.cli.application import database_options, queue
from pyjobs.config import redacted


@click.command()
@database_options
@click.option("--list", "listing", is_flag=True, help="Only show what is applied and what is not.")
@click.option("--rollback", "taking_off", is_flag=True, help="Take everything off again, all jobs included.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def migrate(app: str | None, database: str | None, listing: bool, taking_off: bool, as_json: bool) -> None:
    """Install pyjobs in the database, or bring it up to date."""
    if listing and taking_off:
        raise click.UsageError("--list and --rollback exclude each other")
    url = queue(app, database).url
    if listing:
        _list(url, as_json)
    elif taking_off:
        _rollback(url, as_json)
    else:
        _migrate(url, as_json)


def _migrate(url: str, as_json: bool) -> None:
    with _ending_in_order():
        report = install.migrate(url)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    elif report.changed:
        click.echo(f"pyjobs {report.version} is installed: {', '.join(report.changed)}")
    else:
        click.echo(f"nothing to do: pyjobs {report.version} is installed")


def _rollback(url: str, as_json: bool) -> None:
    if sys.stdin.isatty():
        click.confirm(f"This deletes all jobs in {redacted(url)}. Go on?", abort=True)
    with _ending_in_order():
        report = install.rollback(url)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    elif report.changed:
        click.echo(f"taken off: {', '.join(report.changed)}")
    else:
        click.echo("nothing to do: pyjobs is not installed")


def _list(url: str, as_json: bool) -> None:
    status = install.status(url)
    if as_json:
        click.echo(json.dumps(asdict(status) | {"current": status.current}))
        return
    for migration in status.migrations:
        click.echo(f"{'applied' if migration.applied else 'pending'}  {migration.id}")
    click.echo(_verdict(status))


def _verdict(status: install.Status) -> str:
    if status.newer:
        return f"pyjobs {status.installed_version} is installed, newer than this {status.package_version}"
    if status.current:
        return f"pyjobs {status.installed_version} is installed, up to date"
    if status.installed_version is None:
        return f"pyjobs is not installed: pyjobs migrate installs {status.package_version}"
    return f"pyjobs {status.installed_version} is installed: pyjobs migrate brings it to this {status.package_version}"


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM ends this like any exit does, so that the lock is given back."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
