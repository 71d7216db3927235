"""``pyjobs worker``: a process that performs jobs until it is told to stop."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import click

from pyjobs.cli.application import application, database_options
from pyjobs.cli.values import duration
from pyjobs.worker.foreground import run_with_signals
from pyjobs.worker.journal import Report
from pyjobs.worker.logs import JsonFormatter
from pyjobs.worker.supervisor import Supervisor
from pyjobs.worker.worker import Worker


@click.command(short_help="Perform jobs until it is told to stop.")
@database_options
@click.option("--queue", "-q", "queues", metavar="NAME[,NAME…]", multiple=True, help="Only these queues; repeatable.")
@click.option("--concurrency", type=click.IntRange(1), default=10, show_default=True, help="Jobs at once.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="So many such workers.")
@click.option("--lifeline", type=int, hidden=True)  # how a worker hears of its supervisor
@click.option("--once", is_flag=True, help="Perform all that is due, then exit.")
@click.option("--no-schedules", is_flag=True, help="Do not fire schedules.")
@click.option("--grace", type=duration, default="30s", show_default=True, help="How long a stop lets jobs finish.")
@click.option("--lease", type=duration, default="5m", show_default=True, help="How long a silent worker is believed.")
@click.option("--poll", type=duration, default="1s", show_default=True, help="How often to look if nothing wakes it.")
@click.option(
    "--unknown", type=click.Choice(["leave", "fail"]), default="leave", show_default=True, help="Jobs not defined here."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
def worker(
    app: str | None,
    database: str | None,
    queues: tuple[str, ...],
    concurrency: int,
    processes: int,
    lifeline: int | None,
    once: bool,
    no_schedules: bool,
    grace: int,
    lease: int,
    poll: int,
    unknown: Literal["leave", "fail"],
    log_format: Literal["text", "json"],
    log_level: str,
) -> int:
    """Perform jobs until SIGTERM or SIGINT; a second signal ends it at once.

    A stop lets the jobs in hand finish, gives back what remains, and exits 0. With --processes, a worker that dies is
    replaced by another.
    """
    names = [name.strip() for each in queues for name in each.split(",")]
    if not all(names):
        raise click.UsageError("--queue names no queue; without it a worker takes jobs from all")
    _log_to_standard_error(log_format, log_level)
    performer = Worker(
        application(app, database),
        queues=names or None,
        concurrency=concurrency,
        lease=lease,
        poll_interval=poll,
        grace=grace,
        schedules=not no_schedules,
        unknown=unknown,
    )
    if processes > 1:
        return Supervisor(_same_command, processes, once).run()
    click.echo(_told(run_with_signals(performer, once, lifeline)))
    return 0


def _same_command(lifeline: int) -> list[str]:
    """What this process was started by, for one worker; of an option that is given twice the last counts."""
    return [sys.executable, *sys.orig_argv[1:], "--processes", "1", "--lifeline", str(lifeline)]


def _log_to_standard_error(form: Literal["text", "json"], level: str) -> None:
    lines = JsonFormatter() if form == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(lines)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _told(report: Report) -> str:
    counts = {
        "done": report.done,
        "failed": report.failed,
        "dead": report.dead,
        "released": report.released,
        "snoozed": report.snoozed,
        "cancelled": report.cancelled,
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{report.claimed} claimed: {told}" if told else f"{report.claimed} claimed"
