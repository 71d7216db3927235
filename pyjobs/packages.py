"""The jobs that installed packages ship, found by their entry points. In a package's pyproject.toml:

```toml
[project.entry-points."pyjobs.jobs"]
billing = "billing.background:define"     # def define(jobs: Jobs) -> None
```

Nothing is imported before somebody asks. A package that cannot be loaded is an error, named together with its entry
point: whoever goes on without it would take its jobs and schedules for removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from pyjobs.errors import InvalidConfiguration

GROUP = "pyjobs.jobs"


@dataclass(frozen=True, slots=True)
class Package:
    """One entry point of the group."""

    point: metadata.EntryPoint

    def declare(self, jobs: Any) -> None:
        """Let it define its jobs. ``InvalidConfiguration`` when it cannot be imported, called, or understood."""
        try:
            define = self.point.load()
        except Exception as error:
            raise self._broken("cannot be imported", error) from error
        if not callable(define):
            raise InvalidConfiguration(f"{self} names no function", "name one that takes the Jobs and defines on it")
        try:
            define(jobs)
        except Exception as error:
            raise self._broken("failed", error) from error

    def __str__(self) -> str:
        of = f" of {self.point.dist.name}" if self.point.dist else ""
        return f"the entry point {self.point.name!r}{of}, {self.point.value}, in the group {GROUP}"

    def _broken(self, what: str, error: Exception) -> InvalidConfiguration:
        return InvalidConfiguration(
            f"{self}, {what}: {type(error).__name__}: {error}", "repair the package, or uninstall it"
        )


def shipped() -> Iterator[Package]:
    """What is installed, in the order of names, so that every process meets it in the same."""
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        yield Package(point)
