"""Every line of docs/comparison.md is backed by a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [
    line
    for line in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| there ")
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:50])
def test_a_line_names_a_test_that_exists(line: str) -> None:
    found = re.fullmatch(r"\| .+ \| .+ \| (tests/[\w/]+\.py)::(\w+) \|", line)
    assert found, line
    path, name = found.groups()
    assert re.search(rf"^\s*(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
