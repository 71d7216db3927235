"""The Python of docs/integrations.md is run, on SQLite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyjobs.config import DATABASE_VARIABLE
from pyjobs.testing import TestJobs
from servers.databases import Database

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")


@pytest.mark.databases("sqlite")
def test_the_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATABASE_VARIABLE, database.url)
    shown: dict[str, Any] = {}
    for text in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(text, "integrations.md", "exec"), shown)
    jobs = TestJobs(shown["jobs"])
    assert [job.queue for job in jobs.enqueued("mail/deliver")] == ["mailers", "mailers"]
    jobs.app.discard(name="mail/deliver")
    shown["define"](jobs.app)
    jobs.app.enqueue("billing/charge", {"order": 1})
    assert jobs.drain() == 2
    jobs.app.close()
