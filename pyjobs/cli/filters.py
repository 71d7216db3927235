"""Which jobs a command is about: the options that say what they have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from pyjobs.cli.completion import job_names, queue_names
from pyjobs.options import JobFilter

Command = Callable[..., Any]

REASONS = ("exhausted", "permanent", "invalid_args", "unknown_name", "lost")

_KEYS = ("state", "queue", "name", "dead_reason", "tenant", "batch_id")
_OPTIONS = {
    "--queue": click.option("--queue", metavar="NAME", shell_complete=queue_names, help="Only jobs of this queue."),
    "--name": click.option("--name", metavar="NAME", shell_complete=job_names, help="Only jobs of this name."),
    "--reason": click.option(
        "--reason", "dead_reason", type=click.Choice(REASONS), help="Only those that died for this reason."
    ),
    "--tenant": click.option("--tenant", metavar="NAME", help="Only jobs of this customer."),
    "--batch": click.option("--batch", "batch_id", type=click.UUID, metavar="ID", help="Only jobs of this batch."),
}


def filter_options(*names: str) -> Callable[[Command], Command]:
    """Those options; what was given of them, and ``--state`` where a command has it, comes as one ``filter``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def collected(**given: Any) -> Any:
            chosen = {key: given.pop(key) for key in _KEYS if key in given}
            return command(filter={key: value for key, value in chosen.items() if value is not None}, **given)

        decorated: Command = collected
        for name in reversed(names):
            decorated = _OPTIONS[name](decorated)
        return decorated

    return decorate


def told(filter: JobFilter) -> str:
    """The filter in words, for a question: ``dead jobs of the queue mail``."""
    words = {"queue": "queue", "name": "name", "dead_reason": "reason", "tenant": "tenant", "batch_id": "batch"}
    parts = [f"{word} {filter[key]}" for key, word in words.items() if key in filter]  # type: ignore[literal-required]
    return " ".join([filter.get("state", ""), "jobs", *(["with", " and ".join(parts)] if parts else [])]).strip()
