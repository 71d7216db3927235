"""Building a batch: jobs that are counted together, and a callback once all of them are terminal.

Why its callback can run neither early nor without the whole: the database refuses to finish an unsealed
batch, and only a block that ends without an exception seals it. Jobs travel in chunks, each with an id made
beforehand, so a chunk that is sent twice counts once and a million jobs need no more memory than one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack
from uuid import UUID

from pyjobs.options import EnqueueOptions
from pyjobs.records import BatchRecord, NewJob, Options
from pyjobs.store.base import Store

T = TypeVar("T")

MOST_JOBS = 1_000
MOST_CHARACTERS = 4_000_000


class Calls(Protocol):
    """How a call gets to the database: ``Jobs.call``."""

    def __call__(self, call: Callable[[Store], T], connection: Any) -> T: ...


class Named(Protocol):
    """A job, as far as naming it goes."""

    @property
    def name(self) -> str: ...


class NewJobs(Protocol):
    """How an application makes a job to send: ``Jobs.new_job``."""

    def __call__(self, job: str | Named, args: Mapping[str, Any] | None, options: EnqueueOptions) -> NewJob: ...


class Batch:
    """An open batch. Use it as a context manager::

        with jobs.batch(callback="import/finished") as batch:
            for row in rows:
                batch.add("import/row", {"id": row.id})

    It is sealed when the block ends. When the block raises, it is left open: what was sent already runs, what
    was not yet sent is forgotten, and the callback never runs.

    In a transaction of yours (``connection=``) let the block be the last thing before the commit: from the seal on,
    workers that end a job of this batch wait for that.
    """

    def __init__(self, id: UUID, options: Options, new_job: NewJobs, call: Calls, connection: Any) -> None:
        self.id = id
        self.record: BatchRecord | None = None
        """The sealed batch with its total; None while it is open."""
        self._options = options
        self._new_job = new_job
        self._call = call
        self._connection = connection
        self._waiting: list[NewJob] = []
        self._characters = 0

    def add(self, job: str | Named, args: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]) -> UUID:
        """Add one job, by name or by its definition; its id (unless its unique key is held by another)."""
        options["batch_id"] = self.id
        new = self._new_job(job, args, options)
        self._waiting.append(new)
        self._characters += len(new.args)
        if len(self._waiting) >= MOST_JOBS or self._characters >= MOST_CHARACTERS:
            self._send()
        assert new.id is not None
        return new.id

    def open(self) -> Self:
        """Open it in the database; ``UnknownJob`` when its callback is not defined. Calls ``jobs_open_batch``."""
        self._call(lambda store: store.open_batch(self._options), self._connection)
        return self

    def seal(self) -> BatchRecord:
        """Fix its total; from now on it refuses jobs. Calls ``jobs_seal_batch``."""
        self._send()
        self.record = self._call(lambda store: store.seal_batch(self.id), self._connection)
        return self.record

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.record is None:
            self.seal()

    def _send(self) -> None:
        if self._waiting:
            self._call(lambda store: store.enqueue_many(self._waiting), self._connection)
            self._waiting, self._characters = [], 0
