"""A worker as a process of its own, for tests that send it signals. It writes a line an event to its output.

Run as ``python worker_process.py URL LEASE GRACE``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading

from pyjobs.app import Jobs
from pyjobs.context import JobContext
from pyjobs.worker import Worker, run_with_signals

jobs = Jobs(sys.argv[1], name="process")
output = threading.Lock()


def say(word: str) -> None:
    with output:
        print(word, flush=True)


@jobs.job
def short(*, context: JobContext) -> None:
    say(f"began {context.id}")
    context.cancelled.wait(0.2)


@jobs.job
def long(*, context: JobContext) -> None:
    say(f"began {context.id}")
    threading.Event().wait()


@jobs.job
async def coroutine(*, context: JobContext) -> None:
    say(f"began {context.id}")
    await asyncio.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda number, frame: say("heard"))  # the application's own affair
    worker = Worker(jobs, lease=sys.argv[2], grace=sys.argv[3], poll_interval="200ms")
    say(str(run_with_signals(worker)))
