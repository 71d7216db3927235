"""MariaDB servers: which one can be had here, and one of them running."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from servers import mysql
from servers.process import Source, docker_runs

URL_VARIABLE = "PYJOBS_TEST_MARIADB_URL"
INSTALL = "mariadb-install-db"
IMAGE = "mariadb:10.11"


class LocalServer(mysql.LocalServer):
    """One of our own, started by ``program``."""

    kind = "MariaDB"
    settings = mysql.SETTINGS

    def prepare(self) -> None:
        root = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        self.run([str(shutil.which(INSTALL)), "--no-defaults", *self.common(), *root])


def find() -> Iterator[Source]:
    """The server that can be had, if one can be. Nothing is started yet."""
    if source := mysql.given("mariadb", URL_VARIABLE):
        yield source
    elif (program := mysql.on_this_machine("mariadbd", mariadb=True)) and shutil.which(INSTALL):
        yield Source("mariadb", f"{mysql.version(program)}, {Path(program[0]).parent}", partial(LocalServer, program))
    elif docker_runs():
        yield Source("mariadb", f"Docker image {IMAGE}", partial(mysql.ContainerServer, IMAGE))


def where_looked() -> str:
    """For the report, when there is none."""
    return f"{URL_VARIABLE} is not set, there is no mariadbd on the PATH, and Docker does not answer"
