"""The processes of a peer: its workers, and its producer. They end with the block that started them, and with us."""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.environments import Environment, without_places
from benchmarks.records import Executions, count
from servers import folders

START = 90  # seconds for workers to get ready; sixty-four of them share the processors
CALL = 1_200  # seconds for one call of a producer
CONCURRENCY = 10

Range = tuple[int, int, int]


class Failed(Exception):
    """A cell that could not be measured, and why."""


@dataclass(frozen=True)
class Team:
    """Some workers of a peer, waiting for the word."""

    processes: Sequence[subprocess.Popen[bytes]]
    files: Sequence[Path]
    word: Path

    def start(self) -> int:
        """Give the word; the moment."""
        self.word.touch()
        return time.monotonic_ns()

    def done(self) -> int:
        return count(self.files)

    def executions(self) -> Executions:
        return Executions.read([file for file in self.files if file.exists()])

    def check(self) -> None:
        """``Failed`` when one has died: nobody has ended them yet."""
        if any(process.poll() is not None for process in self.processes):
            raise Failed("a worker died")


class Host:
    """Starts what host.py and host.mjs do. What they say on standard error is kept in ``log``."""

    def __init__(self, environment: Environment, log: Path) -> None:
        self.environment = environment
        self.log = log

    def install(self, url: str) -> None:
        with self._started("install", url) as process:
            try:
                code = process.wait(CALL)
            except subprocess.TimeoutExpired:
                raise Failed(f"its installation did not end in {CALL} s") from None
        if code:
            raise Failed(f"its tables cannot be installed: {self._last_words()}")

    @contextmanager
    def workers(self, url: str, how_many: int = 1, hold: float = 0.0) -> Iterator[Team]:
        """Workers that are ready to start."""
        folder = folders.in_memory()
        word, files = folder / "go", [folder / f"records-{number}" for number in range(how_many)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number, file in enumerate(files):
                ready = folder / f"ready-{number}"
                processes.append(self._start("work", url, file, ready, word, CONCURRENCY, hold))
            team = Team(processes, files, word)
            deadline = time.monotonic() + START
            while len(list(folder.glob("ready-*"))) < how_many:
                if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
                    raise Failed(f"its worker did not get ready: {self._last_words()}")
                time.sleep(0.01)
            yield team
        finally:
            for process in processes:
                _end(process)
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def producer(self, url: str) -> Iterator[Producer]:
        with self._started("produce", url) as process:
            yield Producer(process, self)

    @contextmanager
    def _started(self, task: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
        process = self._start(task, *arguments)
        try:
            yield process
        finally:
            _end(process)

    def _start(self, task: str, *arguments: object) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.environment.command, task, *map(str, arguments)],
                env=self.environment.variables,
                stdin=subprocess.PIPE if task == "produce" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if task == "produce" else log,  # a pipe that nobody reads would fill up
                stderr=log,
                cwd=self.log.parent,
                start_new_session=True,  # Ctrl-C is for us, who end them
                preexec_fn=partial(_end_with_parent, os.getpid()),
            )

    def _last_words(self) -> str:
        """What its log ends with: the last line that names an exception, or else the last line."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        named = [line for line in lines[-20:] if re.match(r"[\w.]*[A-Z]\w+: ", line)]
        return without_places([*lines[-1:], *named[-1:]][-1]) if lines else "it said nothing"


class Producer:
    """A process that enqueues what it is asked for."""

    def __init__(self, process: subprocess.Popen[bytes], host: Host) -> None:
        self.process = process
        self.host = host

    def call(self, do: str, *ranges: Range, chunk: int | None = None, gap: float = 0.0, **extra: Any) -> dict[str, Any]:
        """Let it enqueue the numbers in ``ranges`` by its method ``do``; its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"do": do, "ranges": ranges, "chunk": chunk, "gap": gap, "extra": extra}
        with suppress(BrokenPipeError):  # its end is told below
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], CALL)[0]:
            raise Failed(f"{do} did not end in {CALL} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise Failed(f"{do} failed: {self.host._last_words()}")
        told: dict[str, Any] = json.loads(answer)
        return told


def _end(process: subprocess.Popen[bytes]) -> None:
    """At once, with all it has started: it is a session of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()


def _end_with_parent(parent: int) -> None:
    """In the new process: be killed when we are gone, however that comes."""
    if sys.platform == "linux":
        set_pdeathsig = 1
        ctypes.CDLL(None).prctl(set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
