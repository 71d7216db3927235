"""MySQL servers: which one can be had here, and one of them running. MariaDB's are much the same (mariadb.py).

Its settings make it fast, not durable: it survives a killed process, not a machine that loses power. The binary log is
on, since what an owner without SUPER may create depends on it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from servers import process
from servers.process import Source, docker_runs

URL_VARIABLE = "PYJOBS_TEST_MYSQL_URL"
UNPACKED = Path(__file__).parents[2] / ".venv" / ".mysql"
IMAGE = "mysql:9"

SETTINGS = {
    "log-bin": "binary",
    "server-id": "1",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "2",  # a commit is with the system, not on the disk
    "max-connections": "300",
    # Far from UTC and off by half an hour: what reads a moment in the session's time zone shows it.
    "default-time-zone": "-03:30",
}
MYSQL_SETTINGS = SETTINGS | {"mysqlx": "OFF", "secure-file-priv": ""}


class LocalServer(process.LocalServer):
    """One of our own, started by ``program``."""

    kind = "MySQL"
    stopping = signal.SIGTERM
    crashing = signal.SIGKILL
    settings: Mapping[str, str] = MYSQL_SETTINGS

    def __init__(self, program: list[str]) -> None:
        self.program = program
        super().__init__()

    def prepare(self) -> None:
        self.run([*self.program, "--initialize-insecure", *self.common()])

    def command(self) -> list[str]:
        places = {
            "bind-address": "127.0.0.1",
            "port": self.port,
            "socket": self.folder / "socket",
            "pid-file": self.data / "server.pid",
        }
        given = {**self.settings, **places}
        return [*self.program, *self.common(), *(f"--{name}={value}" for name, value in given.items())]

    def common(self) -> list[str]:
        return [f"--datadir={self.data}", f"--tmpdir={self.temporary}", *(["--user=root"] if os.geteuid() == 0 else [])]

    def run(self, command: list[str]) -> None:
        """Run what makes the data folder."""
        done = subprocess.run(command, capture_output=True, text=True, **self.surroundings())
        if done.returncode:
            raise RuntimeError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-500:]}")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def temporary(self) -> Path:
        """A folder of its own: a server that starts removes all temporary tables from its folder, those of another that
        runs too, and MariaDB dies of that (``ha_maria::drop_table`` of one it could not open)."""
        folder = self.folder / "temporary"
        folder.mkdir(exist_ok=True)
        return folder

    def answers(self) -> bool:
        return answers(self.url("mysql"))

    def url(self, database: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{database}"


class ContainerServer(process.ContainerServer):
    """One in Docker. While it is set up it takes no connections over the network."""

    def __init__(self, image: str) -> None:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(image).with_exposed_ports(3306).with_env("MYSQL_ALLOW_EMPTY_PASSWORD", "1")
        super().__init__(container.with_command([f"--{name}={value}" for name, value in SETTINGS.items()]))
        deadline = time.monotonic() + process.PATIENCE
        while not answers(self.url("mysql")):
            if time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"the image {image} did not start")
            time.sleep(0.1)

    def url(self, database: str) -> str:
        place = f"{self.container.get_container_host_ip()}:{self.container.get_exposed_port(3306)}"
        return f"mysql://root@{place}/{database}"


def answers(url: str) -> bool:
    """Whether there is a server that takes connections."""
    try:
        connect(url).close()
    except pymysql.OperationalError:
        return False
    return True


class Cursor(pymysql.cursors.Cursor):  # type: ignore[misc]
    """One that answers a list, as those of the other databases do."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(super().fetchall())


class Connection(pymysql.Connection):  # type: ignore[misc]
    """With the shorthand that the drivers of the other databases have."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute one statement; the cursor to read its rows from."""
        cursor = self.cursor(Cursor)
        cursor.execute(statement, values or None)
        return cursor


def connect(url: str, client_flag: int = 0) -> Connection:
    """A plain connection, each statement its own transaction."""
    parts = urlsplit(url)
    return Connection(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=unquote(parts.path[1:]) or None,
        autocommit=True,
        client_flag=client_flag,
        connect_timeout=10,
    )


def find() -> Iterator[Source]:
    """The server that can be had, if one can be. Nothing is started yet."""
    if source := given("mysql", URL_VARIABLE):
        yield source
    elif (program := on_this_machine("mysqld", mariadb=False)) or (program := _unpacked()):
        yield Source("mysql", f"{version(program)}, {_place(program)}", partial(LocalServer, program))
    elif docker_runs():
        yield Source("mysql", f"Docker image {IMAGE}", partial(ContainerServer, IMAGE))


def where_looked() -> str:
    """For the report, when there is none."""
    return (
        f"{URL_VARIABLE} is not set, there is no mysqld on the PATH, none was unpacked in {UNPACKED} "
        "(on Debian, make .venv/.mysql does that), and Docker does not answer"
    )


def given(name: str, variable: str) -> Source | None:
    """The server that a variable of the environment names."""
    url = os.environ.get(variable)
    if not url:
        return None
    with connect(url) as connection:
        return Source(name, f"{connection.get_server_info()}, {variable}", partial(process.GivenServer, url))


def on_this_machine(name: str, mariadb: bool) -> list[str] | None:
    """How an installed server is started. MariaDB's is also called by MySQL's name."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if path is None:
        return None
    program = [path, "--no-defaults"]
    return program if ("MariaDB" in _said(program)) is mariadb else None


def version(program: list[str]) -> str:
    """Which version it is."""
    found = re.search(r"Ver (\d+\.\d+\.\d+)", _said(program))
    return found[1] if found else "of an unknown version"


def _place(program: list[str]) -> str:
    return str(UNPACKED if str(UNPACKED) in program[0] else Path(program[0]).parent)


def _said(program: list[str]) -> str:
    return subprocess.run([*program, "--version"], capture_output=True, text=True, check=True).stdout


def _unpacked() -> list[str] | None:
    """How the server in ``UNPACKED`` is started: through the loader that came with it, for the system's may be older
    than what it needs."""
    usr = UNPACKED / "usr"
    if not usr.is_dir():
        return None
    [loader] = usr.glob("lib/*-linux-gnu*/ld-linux-*.so.*")
    return [
        str(loader),
        *("--library-path", str(loader.parent)),
        str(usr / "sbin" / "mysqld"),
        "--no-defaults",
        f"--basedir={usr}",
        f"--lc-messages-dir={usr / 'share' / 'mysql'}",
        f"--character-sets-dir={usr / 'share' / 'mysql' / 'charsets'}",
        f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
    ]
