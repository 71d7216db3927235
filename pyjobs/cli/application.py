"""Which application and database a command is about: ``--app``, ``--database``, the environment, pyproject.toml."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pyjobs.app import Jobs
from pyjobs.config import DATABASE_VARIABLE, database_url, read_settings
from pyjobs.errors import InvalidConfiguration, PyjobsError

F = TypeVar("F", bound=Callable[..., Any])

APP_VARIABLE = "PYJOBS_APP"


def database_options(command: F) -> F:
    """The options ``--app`` and ``--database``, which every command about a queue takes."""
    app = click.option("--app", metavar="MODULE:NAME", envvar=APP_VARIABLE, help="The application: shop.jobs:jobs.")
    database = click.option(
        "--database", metavar="URL", help="sqlite:///file.db, postgresql://host/name; wins over the application's own."
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
    jobs = _imported(name)
    if database is not None:
        jobs.use(database)
    return jobs


def queue(app: str | None, database: str | None) -> Jobs:
    """The queue to look into. The application is imported only if nothing else says which database it is."""
    settings = read_settings()
    if app is None and (database or os.environ.get(DATABASE_VARIABLE) or settings.database or not settings.app):
        return Jobs(database_url(database), name="pyjobs.cli")
    return application(app, database)


def _imported(name: str) -> Jobs:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        raise InvalidConfiguration(f"{name!r} names no module", f"write it as import does: {_guess(module_name)}")
    if sys.path[0] != "":
        sys.path.insert(0, "")  # as python -m does: an application is looked for where the command is run
    try:
        module = importlib.import_module(module_name)
    except PyjobsError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            hint = f"it is looked for in {os.getcwd()} and where Python looks"
        else:
            hint = f"{module_name} imports it: install it, or correct the import"
        raise InvalidConfiguration(f"{name}: there is no module {missing!r}", hint) from error
    except Exception as error:
        raise InvalidConfiguration(
            f"{name}: the module failed when it was imported: {type(error).__name__}: {error}",
            "--debug shows where it happened",
        ) from error
    found = {key: value for key, value in vars(module).items() if isinstance(value, Jobs)}
    jobs = found.get(attribute or "jobs")
    if jobs is None:
        raise InvalidConfiguration(
            f"{module_name} has no Jobs called {attribute or 'jobs'!r}", "it has: " + (", ".join(found) or "none")
        )
    return jobs


def _guess(path: str) -> str:
    """What was meant by ``./shop/jobs.py``."""
    parts = [part for part in path.removesuffix(".py").split("/") if part.isidentifier()]
    return f"{'.'.join(parts) or 'shop.jobs'}:jobs"
