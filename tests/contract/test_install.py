"""install.py and the migrations: on, on again, newer, interrupted, refused, and off without a trace.

Other versions of the package are made by copying this one and changing the copy; each runs in a process of its own.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from yoyo.connections import parse_uri

from pyjobs import install
from pyjobs.errors import InvalidConfiguration, PyjobsError, StoreUnavailable
from pyjobs.store import open_store
from servers.databases import Database, Databases

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ROUTINES_ID = f"pyjobs-routines-{VERSION}"
CALL = """
import json, sys
from dataclasses import asdict
from pyjobs import install
print(json.dumps(asdict(getattr(install, sys.argv[1])(sys.argv[2]))))
"""


class Package:
    """A copy of the package, to be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("pyjobs", "sql", "migrations"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def is_version(self, version: str) -> None:
        for file in self.folder.glob("migrations/*/pyjobs-routines-*.py"):
            file.rename(file.with_name(f"pyjobs-routines-{version}.py"))

    def append(self, routine: str, text: str) -> None:
        for file in self.folder.glob(f"sql/*/{routine}.sql"):
            delimiter = "\nDELIMITER ;" if file.parent.name == "mysql" else ""
            file.write_text(f"{file.read_text()}{delimiter}\n{text}\n")

    def hangs_after_sending(self) -> None:
        """With every routine sent, and nothing committed."""
        module = self.folder / "pyjobs" / "install.py"
        line = "        version, digest = self.stamp\n"
        assert line in module.read_text()
        hang = "        print('sent', flush=True)\n        __import__('time').sleep(600)\n"
        module.write_text(module.read_text().replace(line, hang + line))

    def start(self, function: str, url: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CALL, function, url],
            cwd=self.folder,  # with -c, Python looks here first
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, function: str, url: str) -> Any:
        process = self.start(function, url)
        answer, complaint = process.communicate()
        assert process.returncode == 0, complaint
        return json.loads(answer)

    def fails(self, function: str, url: str) -> str:
        process = self.start(function, url)
        _, complaint = process.communicate()
        assert process.returncode == 1
        return [line for line in complaint.strip().splitlines() if not line.startswith("hint: ")][-1]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path / "package")


@pytest.fixture(params=["", "jobs", 'Odd "name" 100%'])
def schema(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OURS = "(SELECT oid FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)')"
HERE = "_schema = DATABASE()"
CATALOGUES = {
    "sqlite": ["SELECT type, name, sql FROM sqlite_master"],
    "mysql": [
        f"SELECT table_type, table_name, table_collation FROM information_schema.tables WHERE table{HERE}",
        "SELECT 'column', CONCAT(table_name, '.', column_name), column_type, column_default, collation_name,"
        f" is_nullable, ordinal_position FROM information_schema.columns WHERE table{HERE}",
        "SELECT 'index', CONCAT(table_name, '.', index_name), column_name, seq_in_index, non_unique"
        f" FROM information_schema.statistics WHERE table{HERE}",
        "SELECT 'check', constraint_name, check_clause"
        f" FROM information_schema.check_constraints WHERE constraint{HERE}",
        "SELECT 'view', table_name, REPLACE(view_definition, DATABASE(), '')"
        f" FROM information_schema.views WHERE table{HERE}",
        "SELECT routine_type, routine_name, routine_definition, sql_mode, collation_connection, security_type"
        f" FROM information_schema.routines WHERE routine{HERE}",
    ],
    "postgresql": [
        "SELECT relkind::text, relname, coalesce(pg_get_viewdef(oid), ''), coalesce(relacl::text, '')"
        f" FROM pg_class WHERE relnamespace IN {OURS}",
        "SELECT 'function', pg_get_functiondef(oid), coalesce(proacl::text, '')"
        f" FROM pg_proc WHERE pronamespace IN {OURS}",
        "SELECT 'trigger', pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
        f"SELECT 'type', typname FROM pg_type WHERE typrelid = 0 AND typelem = 0 AND typnamespace IN {OURS}",
        "SELECT 'role', rolname FROM pg_roles WHERE rolname ~ 'jobs'",
    ],
}


def catalogue(database: Database) -> set[tuple[str, ...]]:
    """Everything in the database but what is yoyo's."""
    connection = database.connect()
    rows = {tuple(row) for query in CATALOGUES[database.dialect] for row in connection.execute(query).fetchall()}
    connection.close()
    return {row for row in rows if not re.search(r"(^|_)yoyo_", row[1])}


def names(database: Database) -> set[str]:
    return {row[1] for row in catalogue(database)}


def account(database: Database) -> set[str]:
    """The ids in yoyo's account."""
    connection = database.connect()
    rows = connection.execute("SELECT migration_id FROM _yoyo_migration").fetchall()
    connection.close()
    return {row[0] for row in rows}


def migration_ids(database: Database) -> tuple[str, ...]:
    return tuple(migration.id for migration in install.status(database.url).migrations)


class TestMigrate:
    def test_installs_everything_and_then_nothing(self, empty_database: Database) -> None:
        ids = migration_ids(empty_database)

        assert install.migrate(empty_database.url) == install.MigrationReport(ids, VERSION)

        before = catalogue(empty_database)
        assert install.migrate(empty_database.url) == install.MigrationReport((), VERSION)
        assert catalogue(empty_database) == before
        assert account(empty_database) == set(ids)

    def test_the_tables_come_before_the_routines(self, empty_database: Database) -> None:
        ids = migration_ids(empty_database)

        assert ids[-1] == ROUTINES_ID
        assert "pyjobs-0001-tables" in ids

    @pytest.mark.databases("sqlite")
    def test_readers_and_the_writer_do_not_wait_for_each_other(self, database: Database) -> None:
        connection = database.connect()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()

    @pytest.mark.databases("sqlite")
    @pytest.mark.parametrize("name", ["with space.db", "100%25.db"])
    def test_the_file_may_have_any_name(self, empty_database: Database, tmp_path: Path, name: str) -> None:
        file = tmp_path / name

        install.migrate(f"sqlite:///{file}")

        assert [path.name for path in tmp_path.iterdir()] == [name]

    @pytest.mark.databases("postgresql")
    def test_a_schema_of_its_own_is_created(self, empty_database: Database, schema: str) -> None:
        url = in_schema(empty_database, schema or "fresh")

        install.migrate(url)

        connection = empty_database.connect()
        rows = connection.execute("SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'jobs'")
        assert [row[0].strip('"').replace('""', '"') for row in rows] == [schema or "fresh"]
        connection.close()
        assert install.status(url).current
        assert not install.status(empty_database.url).current

    @pytest.mark.databases("postgresql")
    def test_two_schemas_do_not_know_each_other(self, empty_database: Database) -> None:
        install.migrate(in_schema(empty_database, "one"))
        both = install.migrate(in_schema(empty_database, "two"))
        assert both.changed

        install.rollback(in_schema(empty_database, "one"))

        assert install.status(in_schema(empty_database, "two")).current

    @pytest.mark.databases("postgresql")
    def test_the_routines_look_for_temporary_tables_last(self, database: Database) -> None:
        connection = database.connect()
        rows = connection.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"
        ).fetchall()
        connection.close()
        assert rows
        assert {name: config for name, config in rows if "search_path=public, pg_temp" not in config} == {}

    @pytest.mark.slow
    def test_eight_at_once_take_turns(self, empty_database: Database, package: Package) -> None:
        processes = [package.start("migrate", empty_database.url) for _ in range(8)]
        answers = [(process.communicate(), process.returncode) for process in processes]

        assert [code for _, code in answers] == [0] * 8, answers
        changed = [json.loads(answer)["changed"] for (answer, _), _ in answers]
        assert sorted(map(len, changed)) == [0] * 7 + [len(migration_ids(empty_database))]
        assert install.status(empty_database.url).current

    def test_in_a_container_whose_user_has_no_name(
        self, empty_database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.setenv(variable, "")
        monkeypatch.setattr(os, "getuid", lambda: 54_321)
        with pytest.raises((KeyError, OSError)):
            getpass.getuser()

        assert install.migrate(empty_database.url).changed

    def test_an_applications_own_migrations_are_left_alone(self, empty_database: Database, tmp_path: Path) -> None:
        own = tmp_path / "own"
        own.mkdir()
        (own / "0001-tables.sql").write_text("CREATE TABLE orders (id integer);")
        yoyo("apply", empty_database.url, own)
        install.migrate(empty_database.url)
        install.rollback(empty_database.url)

        assert account(empty_database) == {"0001-tables"}
        assert "orders" in names(empty_database)


class TestRollback:
    def test_leaves_nothing_behind(self, empty_database: Database) -> None:
        before = catalogue(empty_database)
        ids = install.migrate(empty_database.url).changed

        assert install.rollback(empty_database.url) == install.MigrationReport(ids[::-1], None)

        assert catalogue(empty_database) == before
        assert account(empty_database) == set()

    def test_of_nothing_does_nothing(self, empty_database: Database) -> None:
        assert install.rollback(empty_database.url).changed == ()

    def test_can_be_followed_by_a_fresh_start(self, empty_database: Database) -> None:
        install.migrate(empty_database.url)
        first = catalogue(empty_database)
        install.rollback(empty_database.url)
        install.migrate(empty_database.url)

        assert catalogue(empty_database) == first

    @pytest.mark.databases("postgresql")
    def test_is_stopped_by_what_the_application_built_on_top(self, database: Database) -> None:
        connection = database.connect()
        connection.execute("CREATE VIEW shop_jobs AS SELECT * FROM jobs_status")
        before = catalogue(database)

        with pytest.raises(PyjobsError, match="view shop_jobs depends on view jobs_status"):
            install.rollback(database.url)

        assert catalogue(database) == before
        connection.close()


class TestVersions:
    def test_the_routines_are_named_after_the_version(self) -> None:
        named = {file.stem for file in ROOT.glob("migrations/*/pyjobs-routines-*")}

        assert named == {ROUTINES_ID}

    def test_a_newer_version_sends_its_routines(self, empty_database: Database, package: Package) -> None:
        package.is_version("0.0.9")
        package.append("sweep", "-- as it was in 0.0.9")
        assert package.call("migrate", empty_database.url)["version"] == "0.0.9"
        assert install.status(empty_database.url).pending == (ROUTINES_ID,)

        assert install.migrate(empty_database.url) == install.MigrationReport((ROUTINES_ID,), VERSION)

        assert install.status(empty_database.url).current
        with_account_of_both = catalogue(empty_database)
        install.rollback(empty_database.url)
        install.migrate(empty_database.url)
        assert with_account_of_both == catalogue(empty_database)

    def test_rolling_back_clears_up_after_versions_that_are_gone(
        self, empty_database: Database, package: Package
    ) -> None:
        before = catalogue(empty_database)
        package.is_version("0.0.9")
        package.call("migrate", empty_database.url)
        install.migrate(empty_database.url)

        install.rollback(empty_database.url)

        assert catalogue(empty_database) == before
        assert account(empty_database) == set()
        assert package.call("migrate", empty_database.url)["version"] == "0.0.9"
        assert package.call("status", empty_database.url)["routines_match"]

    def test_an_older_version_leaves_a_newer_one_alone(self, database: Database, package: Package) -> None:
        package.is_version("0.0.9")
        before = catalogue(database)

        assert package.call("migrate", database.url) == {"changed": [], "version": VERSION}

        assert catalogue(database) == before

    def test_changed_routines_are_sent_again(self, database: Database, package: Package) -> None:
        package.append("sweep", "-- changed without a new version")

        assert not package.call("status", database.url)["routines_match"]
        assert package.call("migrate", database.url)["changed"] == [ROUTINES_ID]
        assert package.call("status", database.url)["routines_match"]
        assert install.migrate(database.url).changed == (ROUTINES_ID,)

    @pytest.mark.databases("postgresql")
    def test_what_was_granted_stays_granted(self, database: Database, package: Package) -> None:
        connection = database.connect()
        with ExitStack() as users:
            for role in ("producer", "worker", "operator", "viewer"):
                user = users.enter_context(a_user(database, role))
                connection.execute(f"SELECT jobs_grant('{user}', '{role}')")
            connection.execute(f"GRANT SELECT ON jobs_payloads TO {user}")
            before = {row for row in catalogue(database) if row[1] != "jobs__installed"}
            package.append("sweep", "-- changed")

            assert package.call("migrate", database.url)["changed"] == [ROUTINES_ID]

            assert {row for row in catalogue(database) if row[1] != "jobs__installed"} == before
        connection.close()


class TestFailure:
    NONSENSE = "CREATE VIEW jobs_broken AS SELECT nonsense FROM nowhere_at_all;\nSELECT * FROM jobs_broken;"

    def test_of_a_routine_leaves_none(self, empty_database: Database, package: Package) -> None:
        package.append("sweep", self.NONSENSE)

        complaint = package.fails("migrate", empty_database.url)

        assert "nowhere_at_all" in complaint
        assert f"sweep.sql in {ROUTINES_ID}" in complaint
        left = (
            "jobs_(broken|_installed)"
            if empty_database.dialect == "mysql"
            else "jobs_(enqueue|claim|now|clock|_installed)"
        )
        assert not any(re.match(left, name) for name in names(empty_database))
        assert account(empty_database) == set(migration_ids(empty_database)) - {ROUTINES_ID}
        assert install.migrate(empty_database.url).changed == (ROUTINES_ID,)

    def test_of_a_newer_version_leaves_the_older_one_standing(self, database: Database, package: Package) -> None:
        before = catalogue(database)
        package.is_version("9.9.9")
        package.append("sweep", self.NONSENSE)

        package.fails("migrate", database.url)

        if database.dialect == "mysql":  # where nothing undoes it, so it is seen and put right
            assert not install.status(database.url).current
            assert install.migrate(database.url).changed == (ROUTINES_ID,)
        assert catalogue(database) == before
        assert install.status(database.url).current

    @pytest.mark.slow
    def test_by_a_kill_leaves_nothing_but_the_lock(
        self, empty_database: Database, package: Package, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package.hangs_after_sending()
        process = package.start("migrate", empty_database.url)
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        process.kill()
        process.communicate()
        monkeypatch.setattr(install, "LOCK_PATIENCE", 1)

        with pytest.raises(StoreUnavailable, match=f"process {process.pid} is migrating this database") as refused:
            install.migrate(empty_database.url)

        assert "yoyo break-lock" in refused.value.hint
        yoyo("break-lock", empty_database.url)
        install.migrate(empty_database.url)
        assert install.status(empty_database.url).current

    @pytest.mark.parametrize(
        ("url", "complaint"),
        [
            ("oracle://host/jobs", "oracle:// is not a database pyjobs knows"),
            ("jobs.db", "a URL without a scheme"),
            ("postgresql://host:port/jobs", "the database URL cannot be read"),
            ("mysql://host:port/jobs", "the database URL cannot be read"),
            ("mariadb://host", "the database URL names no database"),
        ],
    )
    def test_for_a_url_that_makes_no_sense(self, url: str, complaint: str) -> None:
        with pytest.raises(InvalidConfiguration, match=complaint):
            install.migrate(url)

    @pytest.mark.parametrize(
        ("url", "complaint"),
        [
            ("postgresql://127.0.0.1:1/jobs", "cannot be reached"),
            ("mysql://127.0.0.1:1/jobs", "cannot be reached"),
            ("sqlite:////no/such/folder/jobs.db", "there is no folder /no/such/folder"),
        ],
    )
    def test_for_a_database_that_cannot_be_reached(self, url: str, complaint: str) -> None:
        with pytest.raises(StoreUnavailable, match=complaint):
            install.migrate(url)

    def test_when_the_package_has_lost_its_migrations(self, empty_database: Database, package: Package) -> None:
        shutil.rmtree(package.folder / "migrations")

        assert "there are no migrations in" in package.fails("migrate", empty_database.url)

    def test_for_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        tmp_path.joinpath("notes.txt").write_text("to do: nothing")
        with pytest.raises(InvalidConfiguration, match="file is not a database") as refusal:
            install.migrate(f"sqlite:///{tmp_path}/notes.txt")
        assert "is it a SQLite database" in refusal.value.hint

    def test_for_a_server_that_is_too_old_comes_before_anything_is_made(
        self, empty_database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = catalogue(empty_database)
        kind = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "mysql": "MySQL", "mariadb": "MariaDB"}[
            empty_database.name.partition("-")[0]
        ]
        monkeypatch.setattr(install, "OLDEST", {kind: (999, 1)})
        with pytest.raises(InvalidConfiguration, match=rf"{kind} \d+[.\d]* is too old") as refused:
            install.migrate(empty_database.url)
        assert refused.value.hint == "pyjobs needs 999.1 or later"
        assert catalogue(empty_database) == before

    @pytest.mark.databases("postgresql")
    def test_for_a_user_who_may_not_create(self, empty_database: Database) -> None:
        with a_user(empty_database) as user:
            url = empty_database.url.replace("postgres@", f"{user}@")
            with pytest.raises(InvalidConfiguration, match="yoyo's tables can be neither created nor read here"):
                install.migrate(url)
            with pytest.raises(
                InvalidConfiguration, match='schema "mine" does not exist, and this user may not create it'
            ):
                install.migrate(f"{url}?schema=mine")


@pytest.mark.parametrize(
    ("server", "version", "told"),
    [
        ("MySQL", "8.0.16", "8.0.16"),
        ("MySQL", "5.7.44-log", "5.7.44"),
        ("MariaDB", "10.5.29-MariaDB-0+deb11u1", "10.5.29"),
        ("PostgreSQL", "14.19 (Debian 14.19-1.pgdg120+1)", "14.19"),
        ("SQLite", "3.37.2", "3.37.2"),
    ],
)
def test_a_version_that_is_too_old(server: str, version: str, told: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"{server} {told} is too old"):
        install.refuse_old(server, version)


@pytest.mark.parametrize(
    ("server", "version"),
    [
        ("MySQL", "8.0.17"),
        ("MySQL", "8.4.6-0ubuntu0.1"),
        ("MySQL", "9.7.4"),
        ("MariaDB", "10.6.0-MariaDB"),
        ("MariaDB", "11.8.3-MariaDB-1:11.8.3+maria~deb12"),
        ("PostgreSQL", "15.0"),
        ("PostgreSQL", "18beta1"),
        ("SQLite", "3.38.0"),
        ("SQLite", "4.0"),
    ],
)
def test_a_version_that_will_do(server: str, version: str) -> None:
    install.refuse_old(server, version)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("postgresql://localhost/shop", {"host": "localhost", "dbname": "shop"}),
        ("postgres:///shop", {"dbname": "shop"}),
        ("postgresql://", {}),
        ("postgresql://[::1]:5433/shop", {"host": "::1", "port": "5433", "dbname": "shop"}),
        ("postgresql://a:1,b,c:3/shop", {"host": "a,b,c", "port": "1,,3", "dbname": "shop"}),
        ("postgresql://%2Frun%2FPostgreSQL/my%20shop", {"host": "/run/PostgreSQL", "dbname": "my shop"}),
        ("postgresql:///shop?host=/run&sslmode=require", {"host": "/run", "sslmode": "require", "dbname": "shop"}),
        ("postgresql:///shop?schema=Jobs", {"dbname": "shop", "schema": '"Jobs"'}),
    ],
)
def test_yoyo_is_given_what_libpq_would_read(url: str, options: dict[str, str]) -> None:
    assert parse_uri(install.yoyo_url(url)).args == options


def test_yoyo_is_given_the_user_and_the_password() -> None:
    uri = parse_uri(install.yoyo_url("postgresql://me%40home:s%2F%40%3A@localhost/shop"))

    assert (uri.username, uri.password) == ("me@home", "s/@:")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_yoyo_is_given_what_pymysql_would_read(scheme: str) -> None:
    uri = parse_uri(
        install.yoyo_url(f"{scheme}://me%40home:s%2F%40%C3%A9@db:3307/my%20shop?ssl_ca=/ca.pem&ssl_disabled=0")
    )

    assert (uri.scheme, uri.hostname, uri.port) == ("mysql", "db", 3307)
    named = {"user": "me@home", "password": "s/@Ã©", "host": "db", "database": "my shop"}
    assert uri.args == named | {"autocommit": "1", "ssl_ca": "/ca.pem"}


class TestStatus:
    def test_reads_only(self, empty_database: Database) -> None:
        before = catalogue(empty_database)

        status = install.status(empty_database.url)

        assert (status.installed_version, status.package_version, status.current) == (None, VERSION, False)
        assert status.pending == tuple(migration.id for migration in status.migrations)
        assert catalogue(empty_database) == before
        if empty_database.dialect == "sqlite":
            assert not Path(empty_database.url.removeprefix("sqlite:///") + "-journal").exists()

    @pytest.mark.databases("sqlite")
    def test_makes_no_file(self, databases: Databases, empty_database: Database, tmp_path: Path) -> None:
        assert not install.status(f"sqlite:///{tmp_path / 'absent.db'}").current
        assert list(tmp_path.iterdir()) == []

    def test_of_an_installed_database(self, database: Database) -> None:
        status = install.status(database.url)

        assert (status.installed_version, status.pending, status.current) == (VERSION, (), True)
        assert install.pending(database.url) == ()


class TestYoyo:
    """yoyo by itself, without ``pyjobs migrate``."""

    def test_applies_and_rolls_back(self, empty_database: Database) -> None:
        before = catalogue(empty_database)
        source = ROOT / "migrations" / empty_database.dialect
        yoyo("apply", empty_database.url, source)
        by_yoyo = catalogue(empty_database)
        assert install.status(empty_database.url).current

        yoyo("apply", empty_database.url, source)
        assert catalogue(empty_database) == by_yoyo
        yoyo("rollback", empty_database.url, source, "--all")
        assert catalogue(empty_database) == before
        assert account(empty_database) == set()

        install.migrate(empty_database.url)
        assert catalogue(empty_database) == by_yoyo

    @pytest.mark.databases("postgresql")
    def test_installs_into_a_schema(self, empty_database: Database) -> None:
        connection = empty_database.connect()
        connection.execute("CREATE SCHEMA jobs")
        connection.close()
        url = f"{empty_database.url}?schema=jobs"

        yoyo("apply", url, ROOT / "migrations" / "postgresql")

        assert install.status(url).current
        assert not install.status(empty_database.url).current


def yoyo(command: str, url: str, source: Path | None = None, *options: str) -> None:
    """The yoyo command, as a user of it runs it."""
    database = url.replace("postgresql://", "postgresql+psycopg://")
    subprocess.run(
        [sys.executable, "-m", "yoyo", command, "--batch", "--no-config-file", "--database", database, *options]
        + ([str(source)] if source else []),
        check=True,
        capture_output=True,
    )


def in_schema(database: Database, schema: str) -> str:
    return f"{database.url}?{urlencode({'schema': schema})}"


@contextmanager
def a_user(database: Database, kind: str = "nobody") -> Iterator[str]:
    """The name of a user of the database who owns nothing in it."""
    name = f"{kind}_of_{database.url.rpartition('/')[2]}"
    connection = database.connect()
    connection.execute(f"CREATE ROLE {name} LOGIN")
    try:
        yield name
    finally:
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
        connection.close()


@pytest.mark.databases("mysql")
class TestOpenTransactions:
    """A transaction that has called a routine keeps MySQL and MariaDB from replacing it, or the clock that it read."""

    @pytest.fixture
    def caller(self, database: Database) -> Iterator[Any]:
        """A connection whose transaction has enqueued; what is installed is to be sent again."""
        connection = database.connect()
        connection.execute("DROP VIEW jobs__installed")
        connection.execute("CALL jobs_define('work', NULL)")
        connection.execute("BEGIN")
        connection.execute("CALL jobs_enqueue('work', '{}', '{\"unique_key\": \"k\"}')").fetchall()
        yield connection
        connection.close()

    def test_one_is_waited_for_and_nobody_else_is_stopped(self, database: Database, caller: Any) -> None:
        store = open_store(database.url)
        store.enqueue("work", "{}")
        waits = []
        with ThreadPoolExecutor() as threads:
            migrating = threads.submit(install.migrate, database.url)
            for _ in range(30):
                start = time.monotonic()
                store.enqueue("work", "{}")
                waits.append(time.monotonic() - start)
                time.sleep(0.1)
            assert not migrating.done()
            caller.execute("COMMIT")
            assert migrating.result().changed == (ROUTINES_ID,)

        assert 0.3 < max(waits) < 2  # somebody met the one who waited, which let go after a second
        assert install.status(database.url).current
        assert store.count() == 32
        store.close()

    def test_one_that_does_not_end_is_told_of(
        self, database: Database, caller: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(install, "REPLACE_PATIENCE", 2)
        with pytest.raises(StoreUnavailable, match="a transaction that has called a routine of pyjobs is open") as said:
            install.migrate(database.url)
        assert "migrate goes on from here" in said.value.hint
        assert not install.status(database.url).current

        caller.execute("COMMIT")
        assert install.migrate(database.url).changed == (ROUTINES_ID,)
        assert install.status(database.url).current
