"""An application by its name, ``shop.jobs:jobs``: as the command line, pytest and Django's settings have it."""

from __future__ import annotations

import importlib
import os

from pyjobs.app import Jobs
from pyjobs.errors import InvalidConfiguration, PyjobsError


def imported(name: str) -> Jobs:
    """The application; ``InvalidConfiguration`` when it cannot be imported, or there is none of that name."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        raise InvalidConfiguration(f"{name!r} names no module", f"write it as import does: {_guess(module_name)}")
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
