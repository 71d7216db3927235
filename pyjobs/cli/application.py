"""Which application and database a command is about: ``--app``, ``--database``, the environment, pyproject.toml."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pyjobs.app import Jobs
from pyjobs.config import DATABASE_VARIABLE, database_url, read_settings
from pyjobs.errors import InvalidConfiguration
from pyjobs.importing import imported

F = TypeVar("F", bound=Callable[..., Any])

APP_VARIABLE = "PYJOBS_APP"


def database_options(command: F) -> F:
    """The options ``--app`` and ``--database``, which every command about a queue takes."""
    app = click.option("--app", metavar="MODULE:NAME", envvar=APP_VARIABLE, help="The application: shop.jobs:jobs.")
    database = click.option(
        "--database",
        metavar="URL",
        help="sqlite:///file.db, postgresql://host/name, mysql://host/name; wins over the application's own.",
    )
    return app(database(command))


def application(app: str | None, database: str | None) -> Jobs:
    """The application, on the database. ``InvalidConfiguration`` when none is named or it cannot be imported."""
    name = app or read_settings().app
    if name is None:
        raise InvalidConfiguration(
            "no application is named",
            f'pass --app module:name, set {APP_VARIABLE}, or write app = "…" under [tool.pyjobs] in pyproject.toml',
        )
    if sys.path[0] != "":
        sys.path.insert(0, "")  # as python -m does: an application is looked for where the command is run
    jobs = imported(name)
    if database is not None:
        jobs.use(database)
    return jobs


def queue(app: str | None, database: str | None) -> Jobs:
    """The queue to look into. The application is imported only if nothing else says which database it is."""
    settings = read_settings()
    if app is None and (database or os.environ.get(DATABASE_VARIABLE) or settings.database or not settings.app):
        return Jobs(database_url(database), name="pyjobs.cli")
    return application(app, database)
