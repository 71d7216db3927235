"""``pyjobs demo``: a few hundred jobs and two workers, before your eyes, on a database of the demo's own.

On SQLite that is a new file; on PostgreSQL a new schema, on MySQL a new database. Nothing that is there already is
touched, and what was made is taken away again unless it is to be kept. It fails if anything it tells of did not
happen.
"""

from __future__ import annotations

import logging
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pyjobs import install
from pyjobs.app import Jobs
from pyjobs.cli import demo_work, views
from pyjobs.cli.demo_work import TOTAL, Asked, Findings, Promise, Witness
from pyjobs.cli.output import print_tables, span
from pyjobs.config import redacted
from pyjobs.errors import InvalidConfiguration, PyjobsError
from pyjobs.store.base import Store
from pyjobs.worker.worker import Worker

WORKERS = 2
AT_ONCE = 8
PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 0.1
FILE_NAME = "pyjobs-demo.db"
SCHEMA = "pyjobs_demo"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo runs."""

    url: str
    told: str
    undo: str | None = None
    """What takes away again what was kept; None: it goes by itself."""


@click.command()
@click.option(
    "--database", metavar="URL", help="A PostgreSQL or MySQL database, or a SQLite file that does not exist yet."
)
@click.option("--keep", is_flag=False, flag_value=".", metavar="[PATH]", help="Keep what was made (SQLite: there).")
def demo(database: str | None, keep: str | None) -> None:
    """Watch a few hundred jobs go through a queue, and see what it promises."""
    with _place(database, keep) as place:
        click.echo(f"A day at a photo shop: {TOTAL} jobs, {place.told}.\n")
        kept = _perform(place)
        click.echo()
        _say_what_next(place)
    if not kept:
        raise PyjobsError("the demo did not go as promised", "the lines above that begin with ✗ say what did not")


def _perform(place: Place) -> bool:
    """The whole demo; whether every promise was kept."""
    install.migrate(place.url)
    seen = Witness()
    with closing(Jobs(place.url, name="pyjobs.demo")) as jobs, closing(jobs.open_store()) as store, _quiet() as log:
        demo_work.declare(jobs, seen)
        jobs.sync(store)
        asked = demo_work.ask(jobs)
        click.echo(f"Enqueued in {span(round(asked.seconds * 1_000))}. {WORKERS} workers, {AT_ONCE} jobs at once each:")
        began = time.monotonic()
        with _workers(jobs) as check:
            _watch(store, check)
        seconds = time.monotonic() - began
        found = demo_work.find(jobs, asked)
        promises = demo_work.promises(jobs, asked, seen, found)
        click.echo()
        _print_tables(store, asked, found)
        click.echo(f"\nIt took {seconds:.1f} s. What a queue promises, and what happened:")
        for promise in promises:
            _print_promise(promise)
        kept = all(promise.kept for promise in promises)
        if not kept:
            for line in log:
                click.echo(f"log: {line}", err=True)
    return kept


# Where it runs


def _place(database: str | None, keep: str | None) -> AbstractContextManager[Place]:
    scheme = urlsplit(database or "sqlite://").scheme
    if scheme in ("postgresql", "postgres"):
        assert database is not None
        return _schema(database, keep is not None)
    if scheme in ("mysql", "mariadb"):
        assert database is not None
        return _database(database, keep is not None)
    if scheme != "sqlite":
        raise InvalidConfiguration(
            f"the demo does not know {scheme}://", "use postgresql://…, mysql://… or mariadb://…, or leave it out"
        )
    if database is not None:
        keep = urlsplit(database).path.removeprefix("/")
    return _temporary_file() if keep is None else nullcontext(_new_file(Path(keep)))


@contextmanager
def _temporary_file() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="pyjobs-demo-") as folder:
        file = Path(folder) / FILE_NAME
        yield Place(f"sqlite:///{file}", "in a new SQLite file, gone afterwards")


def _new_file(path: Path) -> Place:
    file = path / FILE_NAME if path.is_dir() else path
    if file.exists():
        raise InvalidConfiguration(f"{file} exists already", "the demo wants a file of its own: name another one")
    if not file.parent.is_dir():
        raise InvalidConfiguration(f"there is no folder {file.parent}", "make it first, or name another one")
    return Place(f"sqlite:///{file}", f"in a new SQLite file, {file}", undo=f"rm {shlex.quote(str(file))}*")


@contextmanager
def _schema(url: str, keep: bool) -> Iterator[Place]:
    with install.connected(url) as connection:
        name = _free_name(connection, "SELECT nspname FROM pg_namespace")
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        there = f"in a schema made for it, {name}, {'kept' if keep else 'gone'} afterwards"
        yield Place(_with_schema(url, name), there, undo=f"DROP SCHEMA {name} CASCADE" if keep else None)
    finally:
        if not keep:
            with install.connected(url) as connection:
                connection.execute(f"DROP SCHEMA {name} CASCADE")


@contextmanager
def _database(url: str, keep: bool) -> Iterator[Place]:
    with install.connected(url) as connection:
        name = _free_name(connection, "SELECT schema_name FROM information_schema.schemata")
        install.execute(connection, f"CREATE DATABASE {name}")
    try:
        there = f"in a database made for it, {name}, {'kept' if keep else 'gone'} afterwards"
        undo = f"DROP DATABASE {name}"
        yield Place(urlunsplit(urlsplit(url)._replace(path=f"/{name}")), there, undo=undo if keep else None)
    finally:
        if not keep:
            with install.connected(url) as connection:
                install.execute(connection, f"DROP DATABASE {name}")


def _free_name(connection: Any, names: str) -> str:
    taken = {row[0] for row in install.execute(connection, names)}
    return next(each for each in (SCHEMA, *(f"{SCHEMA}_{n}" for n in range(2, 1_000))) if each not in taken)


def _with_schema(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return f"{base}?{urlencode(dict(parse_qsl(query)) | {'schema': name})}"


# The workers, and watching them


@contextmanager
def _workers(jobs: Jobs) -> Iterator[Callable[[], None]]:
    """Workers in threads, for the block. What is yielded raises what one of them failed with."""
    workers = [
        Worker(jobs, concurrency=AT_ONCE, poll_interval="50ms", max_poll_interval="200ms", grace="2s", schedules=False)
        for _ in range(WORKERS)
    ]
    with ThreadPoolExecutor(WORKERS) as threads:
        runs = [threads.submit(worker.run) for worker in workers]

        def check() -> None:
            for run in runs:
                if run.done():
                    run.result()

        try:
            yield check
        finally:
            for worker in workers:
                worker.stop()
        for run in runs:
            run.result()


def _watch(store: Store, check: Callable[[], None]) -> None:
    """Show how it goes on until everything has ended, or for as long as the demo may take."""
    console = Console()
    if console.is_terminal:
        with Progress(
            BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
        ) as progress:
            bar = progress.add_task("", total=TOTAL)
            for counts in _looks(store, check):
                progress.update(bar, completed=_ended(counts), description=", ".join(_going_on(counts)))
        return
    shown = 0.0
    for counts in _looks(store, check):
        if time.monotonic() - shown >= 1 or _ended(counts) == TOTAL:
            click.echo(", ".join([f"  {_ended(counts):>{len(str(TOTAL))}} of {TOTAL} ended", *_going_on(counts)]))
            shown = time.monotonic()


def _looks(store: Store, check: Callable[[], None]) -> Iterator[Counter[str]]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        check()
        counts: Counter[str] = Counter()
        for row in store.status():
            counts[row.state] += row.count
        yield counts
        if _ended(counts) == TOTAL:
            return
        time.sleep(LOOK_SECONDS)


def _ended(counts: Counter[str]) -> int:
    return counts["done"] + counts["dead"] + counts["cancelled"]


def _going_on(counts: Counter[str]) -> list[str]:
    return [f"{counts[state]} {state}" for state in ("running", "pending", "scheduled") if counts[state]]


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Keep the workers' log off the screen: failures are part of the show. It is told if the show goes wrong."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("pyjobs")
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


# What is told afterwards


def _print_tables(store: Store, asked: Asked, found: Findings) -> None:
    now = store.now()
    batch = store.batch(asked.batch)
    print_tables(
        views.queues_table(store.status(), store.paused()),
        views.batches_table([batch] if batch else [], now),
        views.history_table(found.payment_failures, now, title="How the payment failed before it went through"),
        views.history_table(found.webhook_failures, now, title="Why the webhook is dead"),
    )


def _print_promise(promise: Promise) -> None:
    mark = click.style("✓", fg="green") if promise.kept else click.style("✗", fg="red", bold=True)
    click.echo(f"  {mark} {click.style(promise.text, bold=True)}\n    {promise.detail}")


def _say_what_next(place: Place) -> None:
    if place.undo is None:
        steps = {"The same, kept to look into": "pyjobs demo --keep"}
    else:
        url = shlex.quote(redacted(place.url))
        steps = {
            "What the queue holds": f"pyjobs status --database {url}",
            "What died (then: pyjobs show ID)": f"pyjobs list --state dead --database {url}",
            "To take it away again": place.undo,
        }
    steps["What else there is (the README has an application in ten lines)"] = "pyjobs --help"
    for told, command in steps.items():
        click.echo(f"{told}:\n  {click.style(command, bold=True)}")
