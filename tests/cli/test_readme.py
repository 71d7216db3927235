"""The README's ten lines do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """The README's code in that language, from the section of the ten lines on."""
    section = README.read_text(encoding="utf-8").partition("## Ten lines")[2]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def test_the_ten_lines(elsewhere: Path) -> None:
    elsewhere.joinpath("shop.py").write_text(blocks("python")[0])
    commands = [line.partition(" #")[0] for line in blocks("sh")[0].splitlines() if not line.startswith("pip ")]
    assert len(commands) >= 4
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = ""
    for command in commands:
        ran = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=60, env=os.environ | {"PATH": path}
        )
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        told += ran.stdout
    assert "Welcome, user 1!" in told
    assert "1 claimed: 1 done" in told
    assert re.search(r"mailers +- +- +- +1 ", told), told
