"""What it was measured on, as far as it matters to a reader: no names and no folders."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


def describe(python: Path) -> dict[str, str]:
    """Processor, memory, system and the versions of the languages."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": _said(str(python), "--version"),
        "node": _said("node", "--version"),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists() and (found := re.search(r"model name\s*: (.+)", information.read_text())):
        return found[1]
    return platform.processor() or platform.machine()


def _said(program: str, option: str) -> str:
    if not shutil.which(program):
        return "none"
    return subprocess.run([program, option], capture_output=True, text=True, check=False).stdout.strip()
