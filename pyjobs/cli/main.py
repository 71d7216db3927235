"""The command ``pyjobs``: its commands, and how each of them fails.

Exit status: 0; 1 when something failed; 2 when the command line makes no sense. A failure is one line on standard
error, ``pyjobs: CODE: message``, and a hint on the next; with ``--debug`` a traceback comes first.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from pyjobs.cli.completion import completion
from pyjobs.cli.demo import demo
from pyjobs.cli.details import batches, dead, limits, schedules, workers
from pyjobs.cli.doctor import doctor
from pyjobs.cli.enqueue import enqueue
from pyjobs.cli.migrate import migrate
from pyjobs.cli.operate import cancel, discard, forget, pause, resume, retry
from pyjobs.cli.output import printable
from pyjobs.cli.perform import perform
from pyjobs.cli.read import list_jobs, show, status
from pyjobs.cli.sync import sync
from pyjobs.cli.worker import worker
from pyjobs.errors import PyjobsError

_DEBUG = "--debug"
_debug_option = click.option(_DEBUG, is_flag=True, expose_value=False, help="Show the traceback of a failure.")


_SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Set up": (demo, migrate, sync, doctor, completion),
    "Work": (worker, enqueue, perform),
    "Look": (status, list_jobs, show, dead, batches, schedules, limits, workers),
    "Operate": (retry, cancel, discard, pause, resume, forget),
}


class Commands(click.Group):
    """A group whose failures are told in one way, and whose commands all take ``--debug``."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(_debug_option(cmd), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(limit=70)) for each in commands])

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> NoReturn:
        given = sys.argv[1:] if args is None else args
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a name must not end the command that shows it
        try:
            result = super().main(given, *more, **settings | {"standalone_mode": False})
        except Exception as error:
            if _DEBUG in given:
                traceback.print_exc()
            sys.exit(_told(error))
        sys.exit(result if isinstance(result, int) else 0)


def _told(error: Exception) -> int:
    """Say what went wrong; the exit status that goes with it."""
    match error:
        case PyjobsError():
            return _say(error.code, error.message, error.hint)
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "pyjobs"
            _say("USAGE", " ".join(error.format_message().split()), f"{command} --help shows what it takes")
            return 2
        case click.Abort():
            return _say("ABORTED", "stopped before the end", "")
        case click.ClickException():
            return _say(PyjobsError.code, error.format_message(), "")
        case _:
            return _say(PyjobsError.code, f"{type(error).__name__}: {error}", f"{_DEBUG} shows where it happened")


def _say(code: str, message: str, hint: str) -> int:
    click.echo(f"pyjobs: {code}: {printable(message)}", err=True)
    if hint:
        click.echo(f"  hint: {printable(hint)}", err=True)
    return 1


@click.group(cls=Commands, invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@_debug_option
@click.version_option(package_name="pyjobs", message="pyjobs %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Background jobs in the database you already run.

    Start with `pyjobs demo`: it needs nothing and shows what a queue does.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)


for _section in _SECTIONS.values():
    for _command in _section:
        main.add_command(_command)
