"""Where an object stands, so that another process can find it: the name of a module, and a name in it.

Nothing is taken on trust: what stands there now must be the very object, so a handler that another process would
not find (one that was made in a function, say) is refused when the worker starts and not when its job runs.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pyjobs.app import Jobs
from pyjobs.definition import Job
from pyjobs.errors import InvalidConfiguration


@dataclass(frozen=True, slots=True)
class Place:
    """``name`` may be dotted: a class and what it holds."""

    module: str
    name: str

    @classmethod
    def of_handler(cls, job: Job[..., Any]) -> Self:
        """``InvalidConfiguration`` when another process would not find the job's handler."""
        handler = job.handler
        here, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", None)
        if here in sys.modules and name:
            module = _importable(here)
            if module is not None and _is_at(handler, here, name):
                return cls(module, name)
        raise InvalidConfiguration(
            f"the job {job.name!r} asks for isolation='process', but no other process can find its handler"
            f" ({here}.{name})",
            "define it at the top of a module that can be imported, under its own name",
        )

    @classmethod
    def of_application(cls, jobs: Jobs) -> Self | None:
        """The variable of some module that holds the application; None when there is none."""
        for here, module in [*sys.modules.items()]:
            for name, value in [*getattr(module, "__dict__", {}).items()]:
                if value is jobs and (importable := _importable(here)) is not None:
                    return cls(importable, name)
        return None

    def find(self) -> Any:
        """What stands there, once its module is imported."""
        return reduce(getattr, self.name.split("."), importlib.import_module(self.module))

    def find_handler(self) -> Any:
        """The same, where a decorated handler is a ``Job`` by now."""
        found = self.find()
        return found.handler if isinstance(found, Job) else found


def _is_at(handler: object, here: str, name: str) -> bool:
    try:
        return Place(here, name).find_handler() is handler
    except AttributeError:
        return False


def _importable(module: str) -> str | None:
    """The module as another process imports it. The program that runs has a name of its own there, the one that
    ``Jobs`` gives to its schedules; a program that no file holds has none."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file is not None and _is_imported_from(file) else None


def _is_imported_from(file: str) -> bool:
    try:
        spec = find_spec(Path(file).stem)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()
