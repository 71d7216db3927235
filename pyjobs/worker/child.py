"""A process that performs jobs for a worker, one after another, until the line to its worker ends.

The worker may kill it at any moment; that is what it is for. Signals that stop a worker are nothing to it: they may
reach every process of a service, and its worker lets jobs finish. It does not outlive its worker either: one that
waits notices the end of the line, and one that is in a handler is killed by the kernel where there is such a thing, on
Linux; elsewhere it ends with the handler. What the handler has started goes with a child that is killed by its worker,
but not with a worker that is killed.

Handlers run on the main thread, performed by the same code as in a worker's thread.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from pyjobs.app import Jobs
from pyjobs.records import Outcome
from pyjobs.worker import outcomes
from pyjobs.worker.attempt import Attempt
from pyjobs.worker.line import BROKEN, Line, LogLine, Ready, Setup, Task
from pyjobs.worker.signals import STOP

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """The life of the process. ``sys.argv`` holds the number of its socket and the id of its worker."""
    number, worker = (int(each) for each in sys.argv[1:])
    _end_with(worker)
    for each in STOP:
        signal.signal(each, lambda number, frame: None)  # not SIG_IGN, which what a handler starts would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
    os.set_inheritable(number, False)
    line = Line(socket.socket(fileno=number))
    with suppress(*BROKEN):
        _serve(line)


def _serve(line: Line) -> None:
    setup: Setup = line.receive()
    sys.argv = setup.argv
    _log_over(line, setup.log_level)
    try:
        jobs = _jobs(setup)
    except BaseException as error:
        line.send(Ready(outcomes.told(error)))
        return
    line.send(Ready())
    while True:
        line.send(_perform(line.receive(), jobs))


def _jobs(setup: Setup) -> Jobs:
    """The jobs to perform, found where the worker found them; they enqueue to the worker's database."""
    jobs = Jobs(setup.database, name=__name__)
    if setup.application is not None:
        application: Jobs = setup.application.find()
        application.use(setup.database)
        jobs.tenant_scope = application.tenant_scope
    for name, place in setup.handlers.items():
        jobs.define(name, place.find_handler())
    return jobs


def _perform(task: Task, jobs: Jobs) -> Outcome:
    try:
        attempt = Attempt(task.claimed, jobs.definitions[task.claimed.name], task.worker)
    except Exception as error:
        return outcomes.raised(task.claimed, error).outcome
    return outcomes.perform(attempt).outcome


def _end_with(worker: int) -> None:
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):
            import ctypes  # there are builds without it

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it ended before it could be said
        os._exit(1)


def _log_over(line: Line, level: int) -> None:
    """Log by way of the worker, before anything is imported, as the worker has set up its own logging before."""
    handler = _ToWorker(line)
    logging.basicConfig(handlers=[handler], level=level)

    def in_fork() -> None:
        logging.root.removeHandler(handler)
        line.forget()

    os.register_at_fork(after_in_child=in_fork)


class _ToWorker(logging.Handler):
    """Sends each record to the worker, which decides by its own settings what becomes of it."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            told = LogLine(_plain(record))
        except Exception:
            self.handleError(record)
            return
        with suppress(OSError):  # the worker is gone, and so will be this process
            self._line.send(told)


def _plain(record: logging.LogRecord) -> dict[str, Any]:
    stack = logging.Formatter().formatException(record.exc_info) if record.exc_info else record.exc_text
    attributes = vars(record) | {"msg": record.getMessage(), "args": None, "exc_info": None, "exc_text": stack}
    return {name: value if _is_plain(value) else str(value) for name, value in attributes.items()}


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, float, str)
