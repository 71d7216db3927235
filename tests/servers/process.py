"""What all servers have in common: one that is found somewhere, and one of our own that runs.

A server that is started here ends with the process that started it, however that one ends: at a normal end it is
stopped and its folder removed; if the process is killed, Linux signals the server (PR_SET_PDEATHSIG) and it shuts
down by itself. Its folder then remains until the next run (see folders.py); on other systems than Linux also the
server.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit, urlunsplit

from servers import folders

PATIENCE = 60  # seconds for a server to come up or go down


class Server(Protocol):
    """A running server."""

    restartable: bool

    def url(self, database: str) -> str:
        """The URL of one of its databases, as its superuser."""

    def restart(self, crash: bool = False) -> None:
        """End all its connections and come back at the same address; ``crash``: as if it had been killed."""

    def close(self) -> None:
        """End it, and leave nothing behind."""


@dataclass(frozen=True)
class Source:
    """A server that can be had here: ``name`` is its kind, for PostgreSQL also the major version."""

    name: str
    origin: str
    start: Callable[[], Server]


class GivenServer:
    """One that runs elsewhere; it is used, never started or stopped."""

    restartable = False

    def __init__(self, url: str) -> None:
        self.given = url

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self.given)._replace(path=f"/{database}"))

    def restart(self, crash: bool = False) -> None:
        raise NotImplementedError("a server given by URL is not restarted")

    def close(self) -> None:
        pass


class ContainerServer:
    """One in Docker, through testcontainers, which also sees to it that it ends."""

    restartable = False

    def __init__(self, container: Any) -> None:
        self.container = container
        self.container.start()

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self.container.get_connection_url())._replace(path=f"/{database}"))

    def restart(self, crash: bool = False) -> None:
        raise NotImplementedError("a container comes back on another port")

    def close(self) -> None:
        self.container.stop()


class LocalServer:
    """One of our own, in a temporary folder, on a free port of 127.0.0.1."""

    restartable = True
    kind: ClassVar[str]
    stopping: ClassVar[signal.Signals]
    crashing: ClassVar[signal.Signals]

    def __init__(self) -> None:
        self.folder = folders.in_memory()
        self.process: subprocess.Popen[Any] | None = None
        try:
            self.prepare()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def prepare(self) -> None:
        """Make the data folder."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What starts it on ``self.port``."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it takes connections."""
        raise NotImplementedError

    def surroundings(self) -> dict[str, Any]:
        """The folder, environment and user its programs run with."""
        return {"cwd": "/", "env": {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}}

    def url(self, database: str) -> str:
        raise NotImplementedError

    def restart(self, crash: bool = False) -> None:
        self._stop(self.crashing if crash else self.stopping)
        self._start()

    def close(self) -> None:
        self._stop(self.stopping)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_on_a_free_port(self) -> None:
        """A port that was free a moment ago can be taken by now: then the server ends at once, and another is tried."""
        for attempt in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            try:
                return self._start()
            except RuntimeError:
                if attempt == 4:
                    raise

    def _start(self) -> None:
        log = self.folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the tests, which still need the server to tidy up
                preexec_fn=self._end_with_parent,
                **self.surroundings(),
            )
        self.process = process
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self._stop(signal.SIGQUIT)
                raise RuntimeError(f"{self.kind} did not start: {log.read_text(errors='replace').strip()[-500:]}")
            time.sleep(0.02)

    def _stop(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _end_with_parent(self) -> None:
        """In the new process, after it became the other user: be told to shut down when the parent is gone."""
        if sys.platform == "linux":
            set_pdeathsig = 1
            ctypes.CDLL(None).prctl(set_pdeathsig, self.stopping)


def docker_runs() -> bool:
    try:
        import docker  # type: ignore[import-untyped]

        docker.from_env(timeout=5).ping()
    except Exception:  # whatever keeps it from answering, the answer is no
        return False
    return True
