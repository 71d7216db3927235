"""The commands that change what is in the queue: ``retry``, ``cancel``, ``discard``, ``pause``, ``resume``, ``forget``.

Jobs are named by id, or meant by what they have in common; then it is one call of the routine, so all of them change or
none. Ids are taken one by one: what cannot be done to one of them is said, and the others are done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from uuid import UUID

import click

from pyjobs.app import Jobs
from pyjobs.cli.application import database_options, queue
from pyjobs.cli.completion import job_names, queue_names
from pyjobs.cli.filters import filter_options, told
from pyjobs.cli.output import as_json as json_text
from pyjobs.cli.output import json_option, working
from pyjobs.cli.values import duration, moment
from pyjobs.errors import JobRunning, PyjobsError, UniqueKeyHeld, UnknownJob
from pyjobs.options import JobFilter

_ids = click.argument("ids", metavar="[ID]...", nargs=-1, type=click.UUID)
_limit = click.option("--limit", type=click.IntRange(1), help="At most so many, the oldest first.")


@click.command(short_help="Put jobs back, dead ones above all.")
@_ids
@click.option("--all", "every", is_flag=True, help="All that match, instead of naming them.")
@click.option(
    "--state",
    type=click.Choice(["dead", "cancelled", "done", "scheduled"]),
    help="With --all: jobs in this state; dead unless given.",
)
@filter_options("--queue", "--name", "--reason", "--tenant", "--batch")
@_limit
@click.option("--in", "delay", type=duration, help="Not before this long from now: 30s, 5m, 2h.")
@click.option("--at", type=moment, help="Not before this moment: 2026-01-31T09:00:00Z.")
@database_options
@json_option
def retry(
    ids: tuple[UUID, ...],
    every: bool,
    filter: JobFilter,
    limit: int | None,
    delay: int | None,
    at: datetime | None,
    app: str | None,
    database: str | None,
    as_json: bool,
) -> None:
    """Put jobs back, their attempts starting over: those named, or with --all the dead ones that match."""
    if delay is not None and at is not None:
        raise click.UsageError("--in and --at exclude each other")
    _check_meant(ids, every, filter, limit)
    with closing(queue(app, database)) as jobs:
        if ids:
            _one_by_one(
                jobs,
                ids,
                lambda id: jobs.retry(id, at=at, delay=delay),
                "put back",
                "only a job that has ended, or that is scheduled, can be put back",
                as_json,
            )
            return
        with working("putting jobs back"):
            count = jobs.retry(at=at, delay=delay, limit=limit, **_of_the_dead(filter))
        _say(count, "put back", as_json)


@click.command(short_help="Cancel jobs that have not ended.")
@_ids
@click.option("--state", type=click.Choice(["scheduled", "pending", "running"]), help="Only jobs in this state.")
@filter_options("--queue", "--name", "--tenant", "--batch")
@_limit
@database_options
@json_option
def cancel(
    ids: tuple[UUID, ...], filter: JobFilter, limit: int | None, app: str | None, database: str | None, as_json: bool
) -> None:
    """Cancel jobs that have not ended: those named, or all that match.

    Waiting ones are cancelled now. A running one ends when its worker hears of it and its handler heeds it.
    """
    if not ids and not filter:
        raise click.UsageError("name jobs by their ids, or say which are meant: --queue, --name, --tenant, …")
    _check_meant(ids, bool(filter), filter, limit)
    with closing(queue(app, database)) as jobs:
        if ids:
            _one_by_one(
                jobs,
                ids,
                jobs.cancel,
                "cancelled",
                "only a job that has not ended can be cancelled, and a running one need be told only once",
                as_json,
            )
        else:
            with working("cancelling jobs"):
                count = jobs.cancel(limit=limit, **filter)
            _say(count, "cancelled", as_json)
        still: JobFilter = {"ids": ids} if ids else filter
        running = jobs.count(**(still | {"state": "running"})) if filter.get("state", "running") == "running" else 0
        if running:
            click.echo(f"{_counted(running)} still running, until the worker has heard of it", err=True)


@click.command(short_help="Delete jobs for good.")
@_ids
@click.option("--all", "every", is_flag=True, help="All that match, instead of naming them.")
@click.option(
    "--state",
    type=click.Choice(["dead", "cancelled", "done", "scheduled", "pending"]),
    help="With --all: jobs in this state; dead unless given.",
)
@filter_options("--queue", "--name", "--reason", "--tenant", "--batch")
@_limit
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_options
@json_option
def discard(
    ids: tuple[UUID, ...],
    every: bool,
    filter: JobFilter,
    limit: int | None,
    yes: bool,
    app: str | None,
    database: str | None,
    as_json: bool,
) -> None:
    """Delete jobs for good: those named, or with --all the dead ones that match.

    On a terminal it asks before it deletes more than one, and then deletes no more than it said.
    """
    _check_meant(ids, every, filter, limit)
    asking = sys.stdin.isatty() and not yes
    with closing(queue(app, database)) as jobs:
        if ids:
            if asking and len(ids) > 1:
                click.confirm(f"Delete {_counted(len(ids))} for good?", abort=True, err=True)
            _one_by_one(jobs, ids, jobs.discard, "deleted", "", as_json)
            return
        meant = _of_the_dead(filter)
        if asking:
            found = jobs.count(**meant)
            limit = min(found, limit or found)
            if limit > 1:
                click.confirm(f"Delete {limit} {told(meant)} for good?", abort=True, err=True)
        with working("deleting jobs"):
            count = jobs.discard(limit=limit, **meant)
        _say(count, "deleted", as_json)


@click.command(short_help="Let nobody take jobs from a queue.")
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True, shell_complete=queue_names)
@database_options
def pause(queues: tuple[str, ...], app: str | None, database: str | None) -> None:
    """Let nobody take jobs from QUEUE; what runs goes on, and what comes waits."""
    with closing(queue(app, database)) as jobs:
        for name in queues:
            jobs.pause_queue(name)
            click.echo(f"{name} is paused")
        for name in _unheard_of(jobs, queues):
            click.echo(f"no job and no definition is of the queue {name}: is it spelled so?", err=True)


@click.command(short_help="Let jobs be taken from a queue again.")
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True, shell_complete=queue_names)
@database_options
def resume(queues: tuple[str, ...], app: str | None, database: str | None) -> None:
    """Let jobs be taken from QUEUE again."""
    with closing(queue(app, database)) as jobs, closing(jobs.open_store()) as store:
        paused = store.paused()
        for name in queues:
            jobs.resume_queue(name)
            click.echo(f"{name} goes on" if name in paused else f"{name} was not paused")


@click.command(short_help="Remove a definition from the database.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=job_names)
@database_options
def forget(names: tuple[str, ...], app: str | None, database: str | None) -> None:
    """Remove the definition of the job NAME from the database. Its waiting jobs stay.

    A worker whose application still defines it brings it back when it starts.
    """
    with closing(queue(app, database)) as jobs:
        for name in names:
            if not jobs.forget(name):
                raise UnknownJob(f"no job {name!r} is defined in the database", "pyjobs status shows what waits")
            waiting = jobs.count(name=name, state="pending") + jobs.count(name=name, state="scheduled")
            click.echo(f"{name} is forgotten" + (f"; {_counted(waiting)} of it still waiting" if waiting else ""))


def _check_meant(ids: Sequence[UUID], every: bool, filter: JobFilter, limit: int | None) -> None:
    """Either ids, or all that match: a slip must not turn the one into the other."""
    if ids and (every or filter or limit is not None):
        raise click.UsageError("jobs are named by their ids, or meant by options, not both")
    if not ids and not every:
        raise click.UsageError("name jobs by their ids, or say --all")


def _of_the_dead(filter: JobFilter) -> JobFilter:
    return filter if "state" in filter else {"state": "dead", **filter}


def _one_by_one(
    jobs: Jobs, ids: Sequence[UUID], act: Callable[[UUID], int], done: str, hint: str, as_json: bool
) -> None:
    """Do it to each; say how many it was done to, and fail if that was not all."""
    refused: list[PyjobsError] = []
    named = list(dict.fromkeys(ids))
    for id in named:
        try:
            if not act(id):
                refused.append(_why_not(jobs, id, hint))
        except (JobRunning, UniqueKeyHeld) as error:
            said = error.message if str(id) in error.message else f"the job {id}: {error.message}"
            refused.append(type(error)(said, error.hint))
    if len(refused) < len(named) or as_json:
        _say(len(named) - len(refused), done, as_json)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise PyjobsError(f"{_counted(len(refused))} not {done}: " + "; ".join(each.message for each in refused), hint)


def _why_not(jobs: Jobs, id: UUID, hint: str) -> PyjobsError:
    found = jobs.list(ids=[id], limit=1)
    if found:
        return PyjobsError(f"the job {id} is {found[0].state}", hint)
    return PyjobsError(f"there is no job {id}", "it may have been pruned: pyjobs list shows the jobs there are")


def _unheard_of(jobs: Jobs, queues: Sequence[str]) -> list[str]:
    with closing(jobs.open_store()) as store:
        defined = {each.queue for each in store.definitions()}
    return [name for name in queues if name not in defined and not jobs.list(queue=name, limit=1)]


def _say(count: int, done: str, as_json: bool) -> None:
    if as_json:
        click.echo(json_text({"count": count}))
    else:
        click.echo(f"{_counted(count)} {done}")


def _counted(count: int) -> str:
    return f"{count or 'no'} job{'' if count == 1 else 's'}"
