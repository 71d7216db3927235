"""Temporary folders for databases. One whose maker was killed is removed when the next one is made."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "pyjobs-test-"


def make() -> Path:
    """A new folder, for this process's databases; its end is up to the caller."""
    _clear_up_after_the_killed()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def _clear_up_after_the_killed() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        maker = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):  # another may be at it too, or it may be another user's
            still_runs = (folder / "data" / "postmaster.pid").exists()
            if maker.isdigit() and not _alive(int(maker)) and not still_runs:
                shutil.rmtree(folder)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
