"""Temporary folders for databases. One whose maker was killed is removed when the next one is made.

Databases are kept in memory where there is plenty: each test makes one and drops it, and file systems are slow at
creating hundreds of files right after hundreds were deleted (ext4 passes over what was freed in the last minute).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PREFIX = "pyjobs-test-"
MEMORY = Path("/dev/shm")
PLENTY = 4 << 30  # bytes


def in_memory() -> Path:
    """A new folder for data: in memory, or else on disk."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > PLENTY:
        return _make(MEMORY)
    return on_disk()


def on_disk() -> Path:
    """A new folder for programs, which may not be run from memory everywhere."""
    return _make(Path(tempfile.gettempdir()))


def made_by(process: int | str) -> Iterator[Path]:
    """The folders there are of one process; ``*`` for all."""
    for place in {MEMORY, Path(tempfile.gettempdir())}:
        yield from place.glob(f"{PREFIX}{process}-*")


def _make(place: Path) -> Path:
    _clear_up_after_the_killed()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))


def _clear_up_after_the_killed() -> None:
    for folder in made_by("*"):
        maker = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):  # another may be at it too, or it may be another user's
            if maker.isdigit() and not _alive(int(maker)) and not any((folder / "data").glob("*.pid")):
                shutil.rmtree(folder)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
