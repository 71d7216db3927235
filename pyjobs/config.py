"""Where settings come from: the argument given, then the environment, then ``[tool.pyjobs]`` in pyproject.toml.

```toml
[tool.pyjobs]
database = "postgresql:///shop"
app = "shop.jobs:jobs"
```
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from pyjobs.errors import InvalidConfiguration

DATABASE_VARIABLE = "PYJOBS_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``[tool.pyjobs]`` may say."""

    database: str | None = None
    app: str | None = None


def database_url(given: str | None = None) -> str:
    """The database's URL; ``InvalidConfiguration`` when nobody names one."""
    url = given or os.environ.get(DATABASE_VARIABLE) or read_settings().database
    if not url:
        raise InvalidConfiguration(
            "no database is named",
            f'pass its URL (sqlite:///jobs.db, postgresql:///shop), set {DATABASE_VARIABLE}, or write database = "…" '
            "under [tool.pyjobs] in pyproject.toml",
        )
    return url


def read_settings(folder: Path | None = None) -> Settings:
    """``[tool.pyjobs]`` of the nearest pyproject.toml, from ``folder`` (the current one) upwards."""
    start = (folder or Path.cwd()).resolve()
    for place in (start, *start.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            return _settings(file)
    return Settings()


def redacted(url: str) -> str:
    """The URL as it may be shown: without its password."""
    without = re.sub(r"(://[^:/?#]*):[^/?#]*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&]\w*password=)[^&]*", r"\1***", without)


def _settings(file: Path) -> Settings:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("pyjobs", {})
        entries = table.items()
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidConfiguration(f"{file} cannot be read: {error}") from None
    known = {each.name for each in fields(Settings)}
    for name, value in entries:
        if name not in known:
            raise InvalidConfiguration(
                f"{file} has {name!r} under [tool.pyjobs]", "it takes " + ", ".join(sorted(known))
            )
        if not isinstance(value, str):
            raise InvalidConfiguration(f"{file}: {name} under [tool.pyjobs] is not text", f'write {name} = "…"')
    return Settings(**table)
