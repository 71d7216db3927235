"""An application whose jobs run in processes of their own. They tell what happens to them in files."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyjobs.app import Jobs
from pyjobs.context import JobContext, Permanent, RetryAfter, Snooze
from pyjobs.definition import Backoff

tenants: list[str] = []


@contextmanager
def tenancy(name: str) -> Iterator[None]:
    """The application's own scope of a tenant."""
    tenants.append(name)
    yield
    tenants.remove(name)


jobs = Jobs(name="apart", tenant_scope=tenancy)

NAP = 60.0  # nothing here is to sleep to the end of it


def write(path: str, text: object) -> None:
    """All of it at once, for who waits for the file."""
    draft = Path(f"{path}.draft-{os.getpid()}")
    draft.write_text(str(text))
    draft.rename(path)


class Unpicklable(Exception):
    retryable = False

    def __init__(self) -> None:
        self.cannot_go = (each for each in [1])
        super().__init__("made of what cannot go elsewhere")

    def __reduce__(self) -> Any:
        raise TypeError("no")


@jobs.job(isolation="process")
def tell(path: str, *, context: JobContext) -> None:
    told = [os.getpid(), context.id, context.name, context.attempt, context.worker, context.tenant, context.meta]
    write(path, "|".join(map(str, told)))


def slow(pid: str, late: str) -> None:
    write(pid, os.getpid())
    time.sleep(NAP)
    write(late, "too late")


jobs.define("slow", slow, isolation="process", max_attempts=1)
jobs.define("bounded", slow, isolation="process", max_attempts=1, timeout="500ms")


@jobs.job(isolation="process", max_attempts=1, timeout="500ms")
def family(pids: str) -> None:
    """It does not give way, and neither does what it has started."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sleeper = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({NAP})"])
    write(pids, f"{os.getpid()} {sleeper.pid}")
    while True:
        time.sleep(NAP)


@jobs.job(isolation="process", max_attempts=2, backoff=Backoff(base=0))
def dies_once(how: str, *, context: JobContext) -> None:
    if context.attempt > 1:
        return
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.job(isolation="process", backoff=Backoff(base="1h", max="1h"))
def raises(what: str) -> None:
    match what:
        case "error":
            raise ValueError("no such user")
        case "permanent":
            raise Permanent("the account is closed")
        case "snooze":
            raise Snooze("10m")
        case "retry":
            raise RetryAfter("2h", "busy")
        case "exit":
            sys.exit(3)
        case "unpicklable":
            raise Unpicklable
        case "long":
            raise ValueError("\0 \ud800 " + "x" * 100_000)


@jobs.job(isolation="process")
def logs(times: int, *, context: JobContext) -> None:
    for number in range(times):
        context.log.info("line %d", number, extra={"odd": object()})
    try:
        raise ValueError("inside")
    except ValueError:
        logging.getLogger("apart").warning("it happened", exc_info=True)


@jobs.job(isolation="process")
def shouts(megabytes: int) -> None:
    for _ in range(megabytes):
        print("x" * 1_000_000)


@jobs.job(isolation="process")
def scoped(path: str) -> None:
    write(path, tenants)


@jobs.job(isolation="process")
def enqueues() -> None:
    jobs.enqueue("plain")


@jobs.job(isolation="process")
def forks() -> None:
    """What it forks logs too, and then returns from the handler like its parent."""
    pid = os.fork()
    logging.getLogger("apart").error("after the fork")
    if pid:
        os.waitpid(pid, 0)


@jobs.job
def plain() -> None: ...


@jobs.job
def waits(began: str, go: str, *, context: JobContext) -> None:
    """It takes until the file ``go`` is there, on a thread of the worker."""
    write(began, os.getpid())
    while not Path(go).exists():
        context.cancelled.wait(0.02)


if __name__ == "__main__":
    from pyjobs.worker import run_with_signals
    from pyjobs.worker.worker import Worker

    jobs.use(sys.argv[1])
    print(run_with_signals(Worker(jobs, poll_interval="200ms", grace=sys.argv[2])))
