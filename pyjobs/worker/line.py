"""The line between a worker and a child process, and what goes over it.

All of it is plain data: what a handler raised crosses as the outcome it came to, a log record as text, so nothing
that a handler made has to be picklable, and nothing of it comes to life in the worker.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from pyjobs.app import Jobs
from pyjobs.errors import InvalidConfiguration
from pyjobs.records import ClaimedJob, Outcome
from pyjobs.worker.places import Place

BROKEN = (EOFError, OSError, pickle.UnpicklingError)
"""What sending and receiving raise when the other side is gone, or has got the line into disorder."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child is told first: how to become like the worker."""

    argv: list[str]
    log_level: int
    database: str
    application: Place | None
    """Where it is not to be found, handlers must know by themselves which database they enqueue to."""
    handlers: Mapping[str, Place]

    @classmethod
    def of(cls, jobs: Jobs) -> Self:
        """``InvalidConfiguration`` for a job whose handler or tenant scope a child would not find."""
        apart = [job for job in jobs.definitions.values() if job.isolation == "process"]
        application = Place.of_application(jobs) if apart else None
        if apart and application is None and jobs.tenant_scope is not None:
            raise InvalidConfiguration(
                f"the job {apart[0].name!r} asks for isolation='process', but no other process can find the"
                " application, whose tenant_scope it is to be called in",
                "make the Jobs a variable of a module that can be imported",
            )
        return cls(
            argv=sys.argv,
            log_level=logging.root.level,
            database=jobs.url,
            application=application,
            handlers={job.name: Place.of_handler(job) for job in apart},
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """A child's answer to its setup. ``failure``: why it cannot perform anything, as the detail of a failed attempt."""

    failure: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt to perform. The child answers with an ``Outcome``, and before it with any number of log lines."""

    claimed: ClaimedJob
    worker: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log record: the attributes it is made again from."""

    attributes: Mapping[str, Any]


Message = Setup | Ready | Task | Outcome | LogLine


class Line:
    """Messages over a socket. Any thread sends, one receives; when the line is closed, that one hears so at once."""

    def __init__(self, wire: socket.socket) -> None:
        wire.settimeout(None)  # whatever the application's default is
        self._wire = wire
        self._stream = wire.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        content = pickle.dumps(message)
        with self._sending:
            self._wire.sendall(content)

    def receive(self) -> Any:
        return pickle.load(self._stream)

    def close(self) -> None:
        with suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)
        self._wire.close()

    def forget(self) -> None:
        """Close this process's end and leave the line as it is: for a fork, which shares it with its parent."""
        os.close(self._wire.detach())
