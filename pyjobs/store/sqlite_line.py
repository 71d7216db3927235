"""A line to a SQLite database: how it is opened, whose turn it is, and why no fork inherits it.

The locks on a file belong to the process that took them, while what SQLite remembers of them is copied by a fork: a
child would go on in the belief that it holds them, and write into a log that its parent, as the last one out, has
cleared away. So before this process forks, each line waits for its call to end and is closed; parent and child open
it anew when they next need it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from pyjobs.errors import ContractMismatch, InvalidConfiguration, PyjobsError, StoreUnavailable
from pyjobs.store import common

OLDEST = (3, 38, 0)  # the version whose JSON operators the routines use
BUSY_SECONDS = 5  # how long SQLite itself waits for whoever writes
HINT_MIGRATE = "run: pyjobs migrate"
HINT_URL = "use sqlite:///file.db, or sqlite:////folder/file.db for an absolute path"


class Place:
    """Where the database is, by its URL, and whether commits wait for the disk."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        synchronous = options.pop("synchronous", "full").lower()
        if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2 or parts.path.endswith("/"):
            raise InvalidConfiguration("the database URL names no file", HINT_URL)
        if options or synchronous not in ("full", "normal"):
            raise InvalidConfiguration(
                "the database URL has an option that SQLite does not take", "it takes ?synchronous=normal or =full"
            )
        self.waits_for_disk = synchronous == "full"
        self._file = Path(parts.path[1:]).absolute()

    def connect(self) -> sqlite3.Connection:
        """A new connection in autocommit mode. It never creates a file: that is for ``pyjobs migrate``."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise common.too_old("SQLite", sqlite3.sqlite_version, OLDEST)
        try:
            connection = sqlite3.connect(
                f"{self._file.as_uri()}?mode=rw",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.OperationalError as error:
            raise self._unopened(error) from error
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # what undoes a single statement needs no file
        return connection

    def _unopened(self, error: sqlite3.OperationalError) -> PyjobsError:
        if not self._file.parent.is_dir():
            return StoreUnavailable(f"there is no folder {self._file.parent}", "create it, or correct the database URL")
        if not self._file.exists():
            return ContractMismatch(f"there is no database {self._file}", HINT_MIGRATE)
        return StoreUnavailable(
            f"the database {self._file} cannot be opened: {error}", "may this user read and write it and its folder?"
        )


class Line:
    """One connection, made when needed, which one thread uses at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._waits_for_disk = False
        _FORKS.add(self)

    @contextmanager
    def connection(self, *, lasting: bool = False) -> Iterator[sqlite3.Connection]:
        """The connection, for this block alone. ``lasting``: its commits wait for the disk."""
        waits_for_disk = lasting and self._place.waits_for_disk
        with self._turn:
            if self._connection is None:
                self._connection = self._place.connect()
                self._waits_for_disk = False
            if self._waits_for_disk is not waits_for_disk:
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if waits_for_disk else 'NORMAL'}")
                self._waits_for_disk = waits_for_disk
            yield self._connection

    def close(self) -> None:
        """Give the connection back. A closed line opens a new one when it is used again."""
        with self._turn:
            self._hang_up()

    def hold(self) -> None:
        """Wait for the call that is under way, hang up, and let nobody call."""
        self._turn.acquire()
        self._hang_up()

    def release(self) -> None:
        """Let calls be made again."""
        self._turn.release()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Forks:
    """All lines of this process, each held while it forks."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._held: list[Line] = []

    def add(self, line: Line) -> None:
        with self._changing:
            self._lines.add(line)

    def before(self) -> None:
        self._changing.acquire()
        self._held = list(self._lines)
        for line in self._held:
            line.hold()

    def after(self) -> None:
        while self._held:
            self._held.pop().release()
        self._changing.release()


_FORKS = _Forks()
if hasattr(os, "register_at_fork"):  # where processes can fork at all
    os.register_at_fork(before=_FORKS.before, after_in_parent=_FORKS.after, after_in_child=_FORKS.after)
