"""``pyjobs completion``, and what a shell is offered for the name of a job or a queue.

Names come from the database, quietly: where it cannot be asked there is nothing to offer, and no error between the
prompt and the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

import click
from click.shell_completion import get_completion_class

from pyjobs.cli.application import queue
from pyjobs.errors import PyjobsError
from pyjobs.store.base import Store

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_PYJOBS_COMPLETE"


@click.command(short_help="Print what makes a shell complete pyjobs.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete pyjobs, its options, and the names of jobs and queues.

    \b
    bash  in ~/.bashrc: eval "$(pyjobs completion bash)"
    zsh   in ~/.zshrc: eval "$(pyjobs completion zsh)"
    fish  pyjobs completion fish > ~/.config/fish/completions/pyjobs.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(context.find_root().command, {}, "pyjobs", _VARIABLE).source())


def job_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The names defined in the database."""
    return _offered(context, begun, lambda store: (each.name for each in store.definitions()))


def queue_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The queues that definitions name, and those that are paused."""
    return _offered(context, begun, lambda store: [*(each.queue for each in store.definitions()), *store.paused()])


def _offered(context: click.Context, begun: str, read: Callable[[Store], Iterable[str]]) -> list[str]:
    try:
        with closing(queue(context.params.get("app"), context.params.get("database")).open_store()) as store:
            return sorted({name for name in read(store) if name.startswith(begun)})
    except PyjobsError:
        return []
