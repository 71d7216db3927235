"""The servers of the tests: that they end, come back, and are missed when they are asked for and not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pymysql
import pytest

from servers import folders, mysql, sharing
from servers.databases import REQUIRE_VARIABLE, Database
from servers.postgresql import LocalServer

ROOT = Path(__file__).parents[2]
HOLD_A_SERVER = """
import sys
from servers import folders
from servers.databases import Databases
databases = Databases()
with databases.fresh(sys.argv[1], installed=False) as database:
    print(database.dialect, database.url, getattr(database.server, "folder", None), flush=True)
    sys.stdin.read()
databases.close()
"""


LOST = (psycopg.OperationalError, pymysql.OperationalError)


def reachable(database: Database) -> bool:
    try:
        database.connect().close()
    except LOST:
        return False
    return True


@pytest.mark.slow
@pytest.mark.databases("postgresql", "mysql")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_server_ends_when_its_tests_are_killed(database_name: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_SERVER, database_name],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests"), REQUIRE_VARIABLE: database_name},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    dialect, url, folder = holder.stdout.readline().split()
    database, server = Database(database_name, dialect, url), Path(folder)
    try:
        if folder == "None":
            holder.communicate()  # it takes its database away
            pytest.skip("this server is not of our own")
        assert reachable(database)
        holder.kill()
        holder.wait()
        deadline = time.monotonic() + 20
        while any((server / "data").glob("*.pid")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not reachable(database)
        while server.exists():  # another process may be clearing up too, and be half way through
            assert time.monotonic() < deadline
            folders.in_memory().rmdir()
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.databases("postgresql", "mysql")
@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_ends_connections_and_keeps_what_was_committed(database: Database, crash: bool) -> None:
    if database.server is None or not database.server.restartable:
        pytest.skip("this server cannot be restarted from here")
    before = database.connect()
    before.execute("CREATE TABLE kept AS SELECT 1 AS one")

    database.server.restart(crash=crash)

    with pytest.raises(LOST):
        before.execute("SELECT 1")
    after = database.connect()
    assert after.execute("SELECT one FROM kept").fetchone() == (1,)
    after.close()


@pytest.mark.databases("mysql")
def test_servers_do_not_share_the_folder_of_their_temporary_tables(database: Database) -> None:
    if not isinstance(database.server, mysql.LocalServer):
        pytest.skip("this server is not of our own")
    [folder] = database.connect().execute("SELECT @@tmpdir").fetchone()
    assert Path(folder) == database.server.folder / "temporary"


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for program in ("initdb", "postgres"):
        (binaries / program).write_text("#!/bin/sh\necho cannot be run >&2\nexit 1\n")
        (binaries / program).chmod(0o755)
    before = set(folders.made_by(os.getpid()))

    with pytest.raises(RuntimeError, match="initdb failed: cannot be run"):
        LocalServer(binaries)

    assert set(folders.made_by(os.getpid())) == before


APART = ["-n2"]


def run(required: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The tests of this repository, in a run of their own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=ROOT,
        env=os.environ | {REQUIRE_VARIABLE: required},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("how", [[], APART], ids=["here", "apart"])
def test_what_is_required_and_not_there_fails_the_run(how: list[str]) -> None:
    done = run("sqlite,postgresql-9", *how, "tests/unit/test_duration.py")

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{REQUIRE_VARIABLE} asks for postgresql-9; to be had are sqlite" in done.stderr
    assert "passed" not in done.stdout


@pytest.mark.parametrize("how", [[], APART], ids=["here", "apart"])
def test_the_report_tells_what_was_tested(how: list[str]) -> None:
    done = run("sqlite", *how, "tests/contract/test_names.py", "-k", "sqlite")

    assert done.returncode == pytest.ExitCode.OK
    assert re.search(r"^sqlite \(.*\): tested$", done.stdout, re.MULTILINE)
    assert not re.search(r"^(?!sqlite).*: tested$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("how", [[], APART], ids=["here", "apart"])
def test_the_report_tells_what_was_not_tested(how: list[str]) -> None:
    done = run("sqlite", *how, "tests/unit/test_duration.py")

    assert done.returncode == pytest.ExitCode.OK
    assert re.search(r"^sqlite \(.*\): not tested: no test of this run asked for it$", done.stdout, re.MULTILINE)


def test_all_tests_on_one_kind_of_database_are_one_processes() -> None:
    done = run("sqlite", *APART, "-vv", "tests/contract/test_heartbeat.py", "-k", "sqlite")

    assert done.returncode == pytest.ExitCode.OK
    by = re.findall(r"^\[(gw\d)\].* PASSED .*\[sqlite", done.stdout, re.MULTILINE)
    assert len(by) > 10
    assert len(set(by)) == 1


@pytest.mark.databases("sqlite")
def test_the_kind_is_known_by_the_id_of_each_test(database_name: str, request: pytest.FixtureRequest) -> None:
    parameters = {item.nodeid: item.callspec.params for item in request.session.items if hasattr(item, "callspec")}
    kinds = {test: given["database_name"] for test, given in parameters.items() if "database_name" in given}

    assert {test: sharing.group(test) for test in kinds} == kinds
