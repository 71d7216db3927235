"""Puts the tables, routines and views onto a database, brings them up to date, and takes them off again.

yoyo applies the migrations and keeps the account of them. What this module adds makes a deploy safe:

- A migration and its line in yoyo's account are one transaction: a kill at any moment leaves both or neither.
  (Only SQLite's switch to WAL cannot be in one; it may be repeated.)
- The routines go in whole, in one transaction: if a file is refused, the old ones stand. They are a migration
  of their own for each release, whose id carries the version.
- MySQL and MariaDB know no transactions for this. There every migration can be run again on top of what it has done,
  and enters its line when all of it is there; and what says which routines are in place is taken away first and put
  back last. So what stopped half way is seen to be, and is finished by the next ``migrate``.
- A server that is older than what the routines need is refused before anything is made on it.
- The view ``jobs__installed`` says which version's routines are in place, and the digest of their text. It is
  written with them, so it cannot tell a lie an account kept elsewhere could. Where it differs from the
  package, ``migrate`` sends the routines again; where it names a newer version, ``migrate`` leaves everything
  alone, so an old process that starts during a deploy undoes nothing.

Any number of processes may migrate one database at once: they take turns behind yoyo's lock.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from yoyo import exceptions as yoyo_errors
from yoyo import read_migrations
from yoyo.backends import get_backend_class
from yoyo.connections import parse_uri
from yoyo.migrations import default_migration_table as ACCOUNT

from pyjobs.errors import DriverMissing, InvalidConfiguration, PyjobsError, StoreUnavailable
from pyjobs.store import common, mysql_url, sqlite_line

# The routine files in the order in which they are sent.
ROUTINES = (
    "clock",
    "define",
    "enqueue",
    "slot",
    "batch",
    "claim",
    "heartbeat",
    "settle",
    "schedule",
    "operate",
    "sweep",
    "views",
    "roles",
)
OLDEST = {
    "SQLite": sqlite_line.OLDEST,
    "PostgreSQL": (15,),
    "MySQL": (8, 0, 17),  # the collation that compares names exactly
    "MariaDB": (10, 6),  # SKIP LOCKED, JSON_TABLE
}
ROUTINES_ID = "pyjobs-routines-"
LOCK_PATIENCE = 30  # seconds to wait for another migration
REPLACE_PATIENCE = 30  # seconds to wait for transactions that keep MySQL and MariaDB from replacing what they called
CREATED = re.compile(
    r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:SQL\s+SECURITY\s+\w+\s+)?(VIEW|FUNCTION|PROCEDURE|TRIGGER)\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)",
    re.MULTILINE | re.IGNORECASE,
)
DEPENDED_ON = "2BP01"
INCOMPLETE = "this installation of pyjobs is incomplete: install it again"

Stamp = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration of the package, and whether the database has it."""

    id: str
    applied: bool


@dataclass(frozen=True, slots=True)
class Status:
    """What a database has, next to what the package holds. The versions are those of the routines."""

    migrations: tuple[MigrationState, ...]
    installed_version: str | None
    package_version: str
    routines_match: bool

    @property
    def pending(self) -> tuple[str, ...]:
        """Ids of the migrations the database lacks, in order."""
        return tuple(migration.id for migration in self.migrations if not migration.applied)

    @property
    def newer(self) -> bool:
        """A newer pyjobs than this one has brought the database up to date."""
        return self.installed_version is not None and _order(self.installed_version) > _order(self.package_version)

    @property
    def current(self) -> bool:
        """There is nothing for ``migrate`` to do."""
        return self.newer or (self.routines_match and not self.pending)


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What one call changed: ids in the order of the work, and the version that is installed now."""

    changed: tuple[str, ...]
    version: str | None


def migrate(url: str) -> MigrationReport:
    """Bring the database at ``url`` up to date; changes nothing if it is. A schema the URL names is created.

    Raises ``InvalidConfiguration`` and ``DriverMissing`` for the URL, ``InvalidConfiguration`` also when the server is
    too old, ``StoreUnavailable`` when the database cannot be reached or another migration holds the lock,
    ``PyjobsError`` when it refuses a statement.
    """
    package = _package(url)
    with _opened(url) as backend:
        refuse_old(*package.server(backend.connection))
        package.make_room(backend)
        with _locked(backend):
            before = _status(backend, package)
            if before.newer:
                return MigrationReport((), before.installed_version)
            changed = []
            for migration in backend.to_apply(package.migrations):
                _carry_out(backend, migration, "apply")
                changed.append(migration.id)
            if package.installed(backend.connection) != package.stamp:
                with backend.transaction():
                    package.send(backend.connection)
                changed.append(package.routines_id)
            return MigrationReport(tuple(changed), package.version)


def rollback(url: str) -> MigrationReport:
    """Take everything off the database at ``url``, all jobs included. yoyo's own tables stay. Raises as ``migrate``."""
    package = _package(url)
    with _opened(url) as backend, _locked(backend):
        changed = []
        for migration in backend.to_rollback(package.migrations):
            _carry_out(backend, migration, "rollback")
            changed.append(migration.id)
        return MigrationReport(tuple(changed), None)


def status(url: str) -> Status:
    """What the database at ``url`` has. Reads only. Raises as ``migrate``."""
    package = _package(url)
    if isinstance(package, _Sqlite) and not Path(urlsplit(url).path[1:]).exists():
        return _compare(package, frozenset(), None)  # connecting would create the file
    with _opened(url) as backend:
        return _status(backend, package)


def pending(url: str) -> tuple[str, ...]:
    """Ids of the migrations the database at ``url`` lacks, in order. Raises as ``migrate``."""
    return status(url).pending


def routines(dialect: str) -> tuple[Callable[[Any], None], Callable[[Any], None]]:
    """The step of a routines migration: what sends them and what drops them, given yoyo's connection."""
    package = _PACKAGES[dialect]()
    return package.send, package.drop


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A plain connection to the database at ``url``, each statement its own transaction. Raises as ``migrate``."""
    with _opened(url) as backend:
        yield backend.connection


def data_folder(name: str) -> Path:
    """The folder ``sql`` or ``migrations``: within the package once it is installed, beside it in a checkout."""
    package = Path(__file__).parent
    return package / name if (package / name).is_dir() else package.parent / name


class _Package:
    """What this package holds for one dialect, and how it gets onto a connection."""

    dialect: ClassVar[str]
    publish: ClassVar[str] = ""

    @cached_property
    def migrations(self) -> Any:
        folder = data_folder("migrations") / self.dialect
        found = read_migrations(str(folder))
        if not found:  # yoyo takes a folder that is missing for one that is empty, and is content
            raise InvalidConfiguration(f"there are no migrations in {folder}", INCOMPLETE)
        return found

    @cached_property
    def routines_id(self) -> str:
        """Id of the migration that sends the routines."""
        found = [migration.id for migration in self.migrations if migration.id.startswith(ROUTINES_ID)]
        if len(found) != 1:
            raise InvalidConfiguration(
                f"there must be one routines migration for {self.dialect}, not {found}", INCOMPLETE
            )
        return str(found[0])

    @property
    def version(self) -> str:
        return self.routines_id.removeprefix(ROUTINES_ID)

    @cached_property
    def files(self) -> dict[str, str]:
        """The text of each routine file by name, in the order of sending."""
        folder = data_folder("sql") / self.dialect
        return {name: (folder / f"{name}.sql").read_text(encoding="utf-8") for name in ROUTINES}

    @cached_property
    def stamp(self) -> Stamp:
        """What ``jobs__installed`` shows when the routines in place are those of this package."""
        return self.version, hashlib.sha256("\0".join(self.files.values()).encode()).hexdigest()[:16]

    def installed(self, connection: Any) -> Stamp | None:
        """The stamp of the routines in place."""
        if not self.has(connection, "jobs__installed"):
            return None
        version, digest = execute(connection, "SELECT version, digest FROM jobs__installed").fetchone()
        return version, digest

    def send(self, connection: Any) -> None:
        """Create or replace the routines and views, and stamp them, within the transaction that is open."""
        refuse_old(*self.server(connection))  # again, since yoyo by itself comes here only
        self.prepare(connection)
        for name, text in self.files.items():
            try:
                self.run(connection, text)
            except Exception as error:
                error.add_note(f"sql/{self.dialect}/{name}.sql")
                raise
        version, digest = self.stamp
        self.run(
            connection,
            "DROP VIEW IF EXISTS jobs__installed;\n"
            f"CREATE VIEW jobs__installed AS SELECT '{version}' AS version, '{digest}' AS digest;\n{self.publish}",
        )

    def drop(self, connection: Any) -> None:
        """Drop what ``send`` creates, and strike the routines of every version from yoyo's account: the line of an
        older one would tell that version, should it come back, that there is nothing to do."""
        created = [(kind.upper(), name) for text in self.files.values() for kind, name in CREATED.findall(text)]
        self.remove(connection, [*created, ("VIEW", "jobs__installed")])
        if self.has(connection, ACCOUNT):
            execute(connection, f"DELETE FROM {ACCOUNT} WHERE migration_id LIKE '{ROUTINES_ID}%'")

    def server(self, connection: Any) -> tuple[str, str]:
        """What the server is, as ``OLDEST`` calls it, and its version."""
        raise NotImplementedError

    def has(self, connection: Any, name: str) -> bool:
        """Whether there is a table or view of that name."""
        raise NotImplementedError

    def make_room(self, backend: Any) -> None:
        """Create the schema to install into, where there are schemas and the URL names one."""

    def prepare(self, connection: Any) -> None:
        """Set what the routines are to be created with."""

    def run(self, connection: Any, text: str) -> None:
        """Execute every statement in ``text``."""
        raise NotImplementedError

    def remove(self, connection: Any, created: Sequence[tuple[str, str]]) -> None:
        """Drop the objects, given as (kind, name), that exist. Never more: an object of the application's own that
        uses one of them stops the rollback instead of vanishing with it."""
        raise NotImplementedError


class _Postgresql(_Package):
    dialect = "postgresql"
    publish = "GRANT SELECT ON jobs__installed TO PUBLIC;"

    def server(self, connection: Any) -> tuple[str, str]:
        return "PostgreSQL", execute(connection, "SHOW server_version").fetchone()[0]

    def has(self, connection: Any, name: str) -> bool:
        return bool(_column(connection, f"SELECT 1 {_RELATIONS}", [name]))

    def make_room(self, backend: Any) -> None:
        there = "SELECT current_schema() WHERE current_schema() IS NOT NULL"
        if _column(backend.connection, there):
            return
        with suppress(backend.DatabaseError):  # another may create it in the same instant
            backend.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {backend.schema}")
        if not _column(backend.connection, there):
            raise InvalidConfiguration(
                f"the schema {backend.schema or 'on the search path'} does not exist, and this user may not create it",
                "let the owner of the database create it, and grant this user CREATE and USAGE on it",
            )

    def prepare(self, connection: Any) -> None:
        """The routines keep this search path. Without pg_temp at its end, PostgreSQL puts that in front, and a
        caller's own temporary table named ``jobs`` would be taken for ours, with the owner's rights."""
        connection.execute("SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)")

    def run(self, connection: Any, text: str) -> None:
        connection.execute(text)

    def remove(self, connection: Any, created: Sequence[tuple[str, str]]) -> None:
        # One statement for all views and one for all routines, since they use each other.
        views = [name for kind, name in created if kind == "VIEW"]
        functions = [name for kind, name in created if kind != "VIEW"]
        if found := _column(connection, f"SELECT c.oid::regclass::text {_RELATIONS}", views):
            connection.execute(f"DROP VIEW {', '.join(found)}")
        if found := _column(connection, f"SELECT p.oid::regprocedure::text {_FUNCTIONS}", functions):
            connection.execute(f"DROP ROUTINE {', '.join(found)}")


class _Mysql(_Package):
    """MySQL and MariaDB. Each statement that creates or drops something commits by itself."""

    dialect = "mysql"

    def server(self, connection: Any) -> tuple[str, str]:
        [version] = execute(connection, "SELECT VERSION()").fetchone()
        return "MariaDB" if "MariaDB" in version else "MySQL", version

    def has(self, connection: Any, name: str) -> bool:
        found = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"
        return bool(execute(connection, found, (name,)).fetchone())

    def prepare(self, connection: Any) -> None:
        """The routines keep this mode, character set and collation, whatever those of their callers are."""
        self.run(connection, _MYSQL_SESSION)
        self.run(connection, "DROP VIEW IF EXISTS jobs__installed;")

    def run(self, connection: Any, text: str) -> None:
        server, _ = self.server(connection)
        for statement in mysql_statements(mysql_exact(text, server)):
            _replace(connection, statement)

    def drop(self, connection: Any) -> None:
        super().drop(connection)
        connection.commit()  # or yoyo, which takes no transaction for this, loses it

    def remove(self, connection: Any, created: Sequence[tuple[str, str]]) -> None:
        for kind, name in reversed(created):
            execute(connection, f"DROP {kind} IF EXISTS {name}")


class _Sqlite(_Package):
    dialect = "sqlite"

    def server(self, connection: Any) -> tuple[str, str]:
        return "SQLite", execute(connection, "SELECT sqlite_version()").fetchone()[0]

    def has(self, connection: Any, name: str) -> bool:
        return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone())

    def run(self, connection: Any, text: str) -> None:
        statement = ""
        for piece in re.split("(?<=;)", text):
            statement += piece
            if sqlite3.complete_statement(statement):  # knows where a trigger ends
                connection.execute(statement)
                statement = ""
        connection.execute(statement)

    def remove(self, connection: Any, created: Sequence[tuple[str, str]]) -> None:
        for kind, name in sorted(created):  # triggers before views, which would take theirs along
            connection.execute(f"DROP {kind} IF EXISTS {name}")


_PACKAGES: dict[str, type[_Package]] = {
    "postgresql": _Postgresql,
    "postgres": _Postgresql,
    "mysql": _Mysql,
    "mariadb": _Mysql,
    "sqlite": _Sqlite,
}
_MYSQL_SESSION = """
SET SESSION sql_mode =
    'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';
SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin';
SET SESSION time_zone = '+00:00';
SET SESSION lock_wait_timeout = 1;
"""
_MYSQL_LOCK_WAIT_TIMEOUT = 1205
_RELATIONS = (
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = current_schema() AND c.relname = ANY(%s)"
)
_FUNCTIONS = (
    "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
    " WHERE n.nspname = current_schema() AND p.proname = ANY(%s)"
)


def execute(connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
    """Execute one statement on a DB-API connection of whatever driver; the cursor to read its rows from."""
    cursor = connection.cursor()
    cursor.execute(statement, *([values] if values else []))
    return cursor


def _replace(connection: Any, statement: str) -> None:
    """Execute a statement that others may keep from what it replaces: on MySQL and MariaDB a routine or view stays as
    it is for a transaction that has used it. Whoever uses it next queues up behind one who waits, so this waits for
    a second at a time (``lock_wait_timeout``) and lets them pass in between."""
    deadline, pause = time.monotonic() + REPLACE_PATIENCE, 1.0
    while True:
        try:
            execute(connection, statement)
            return
        except Exception as error:
            if error.args[:1] != (_MYSQL_LOCK_WAIT_TIMEOUT,):
                raise
            if time.monotonic() + pause > deadline:
                raise StoreUnavailable(
                    "a transaction that has called a routine of pyjobs is open, so that it cannot be replaced",
                    "wait until it has ended, or end it (SHOW PROCESSLIST); then migrate goes on from here",
                ) from error
        time.sleep(pause)
        pause *= 1.5


def refuse_old(server: str, version: str) -> None:
    """Raise ``InvalidConfiguration`` if that version of a server lacks what the routines need."""
    if _order(version) < OLDEST[server]:
        raise common.too_old(server, re.split("[- ]", version)[0], OLDEST[server])


def mysql_exact(text: str, server: str) -> str:
    """The routines with the collation that pads nothing with spaces, which each server calls otherwise."""
    exact = "utf8mb4_nopad_bin" if "MariaDB" in server else "utf8mb4_0900_bin"
    return text.replace("COLLATE utf8mb4_bin", f"COLLATE {exact}")


def mysql_statements(text: str) -> Iterator[str]:
    """The statements in a file, which end where the mysql client has them end: ``DELIMITER`` says at what."""
    delimiter, lines = ";", list[str]()
    for line in map(str.rstrip, text.splitlines()):
        if line.startswith("DELIMITER "):
            delimiter = line.split()[1]
        elif line.endswith(delimiter):
            yield "\n".join([*lines, line.removesuffix(delimiter)])
            lines.clear()
        else:
            lines.append(line)


def _package(url: str) -> _Package:
    scheme = urlsplit(url).scheme
    if scheme not in _PACKAGES:
        raise InvalidConfiguration(
            f"{scheme + '://' if scheme else 'a URL without a scheme'} is not a database pyjobs knows",
            "use postgresql://…, mysql://…, mariadb://… or sqlite:///file.db",
        )
    if scheme == "sqlite":
        _check_file(url)
    return _PACKAGES[scheme]()


def _check_file(url: str) -> None:
    """Refuse what yoyo would make a file of some other name of, and a place where no file can be."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.path.endswith("/"):
        raise InvalidConfiguration(
            "the database URL names no file", "use sqlite:///file.db, or sqlite:////folder/file.db for an absolute path"
        )
    file = Path(parts.path[1:]).absolute()
    if file.is_dir() or not file.parent.is_dir():
        told = f"{file} is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise StoreUnavailable(told, "create it, or correct the database URL")


def yoyo_url(url: str) -> str:
    """Our URL as yoyo takes it. yoyo knows fewer URLs than libpq, and does not decode all parts; but what stands among
    the options it hands to psycopg as it is, so hosts, ports and the database's name go there."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return f"sqlite://{quote(parts.path)}"
    if parts.scheme in mysql_url.SCHEMES:
        return _yoyo_mysql_url(url)
    credentials, at, places = parts.netloc.rpartition("@")
    hosts = [_host_and_port(place) for place in places.split(",")]
    options = {
        "host": ",".join(host for host, _ in hosts),
        "port": ",".join(port for _, port in hosts),
        "dbname": unquote(parts.path.removeprefix("/")),
    } | dict(parse_qsl(parts.query))
    if schema := options.get("schema"):
        options["schema"] = '"{}"'.format(schema.replace('"', '""'))
    given = {name: value for name, value in options.items() if value.strip(",")}
    return urlunsplit(("postgresql+psycopg", credentials + at, "", urlencode(given), ""))


def _yoyo_mysql_url(url: str) -> str:
    """The same for MySQL, where each statement is to commit by itself: a transaction that has read something keeps
    others, and yoyo's second connection, from replacing it."""
    settings = mysql_url.settings(url)
    port = settings.pop("port", None)
    if "password" in settings:  # PyMySQL would encode it as Latin-1, where servers expect UTF-8
        settings["password"] = settings["password"].encode().decode("latin-1")
    options = {name: int(value) if isinstance(value, bool) else value for name, value in settings.items() if value}
    _, _, place = urlsplit(url).netloc.rpartition("@")
    path = f"/{settings['database']}"  # by which yoyo looks for its tables; it connects to the one among the options
    return urlunsplit(("mysql", place if port else "", path, urlencode({"autocommit": 1, **options}), ""))


def _host_and_port(place: str) -> tuple[str, str]:
    read = re.fullmatch(r"(\[.*\]|[^:]*)(?::(\d*))?", place)
    if read is None:
        raise ValueError(f"{place} is not a host and a port")
    return unquote(read[1].strip("[]")), read[2] or ""


@contextmanager
def _opened(url: str) -> Iterator[Any]:
    """A yoyo backend on the database at ``url``. Its errors come out as ours."""
    _have_a_name()
    try:
        uri = parse_uri(yoyo_url(url))
    except ValueError as error:
        raise InvalidConfiguration(f"the database URL cannot be read: {error}") from error
    try:
        backend = get_backend_class(uri.scheme)(uri, ACCOUNT)
    except ModuleNotFoundError as error:
        extra = "mysql" if uri.scheme == "mysql" else "postgresql"
        raise DriverMissing(f"the package {error.name} is not installed", f"pip install 'pyjobs[{extra}]'") from error
    except tuple(yoyo_errors.DatabaseErrors) as error:
        raise StoreUnavailable(
            f"the database cannot be reached: {_told(error)}",
            "is the server up, and does the URL name its host, port, user and database?",
        ) from error
    with backend:
        try:
            yield backend
        except backend.DatabaseError as error:
            raise PyjobsError(f"the database refused: {_told(error)}") from error


def _have_a_name() -> None:
    """yoyo notes who migrated, and fails where nobody can tell: in a container whose user is a mere number."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())


@contextmanager
def _locked(backend: Any) -> Iterator[None]:
    """yoyo's lock: a row, which a killed process leaves behind. It names the process but not its machine, so
    nothing here can know that it is dead, and nothing here breaks it."""
    backend.create_lock_table()
    try:
        backend.execute(f"SELECT 1 FROM {backend.lock_table}")
    except backend.DatabaseError as error:  # yoyo says nothing when it could not create it
        raise InvalidConfiguration(
            f"yoyo's tables can be neither created nor read here: {_told(error)}",
            "is it a SQLite database, and whole, and may this user write to it?"
            if backend.uri.scheme == "sqlite"
            else "migrate as the owner of the database or of the schema",
        ) from error
    try:
        with backend.lock(timeout=LOCK_PATIENCE):
            yield
    except yoyo_errors.LockTimeout as error:
        holder = backend.execute(f"SELECT pid FROM {backend.lock_table}").fetchone()
        raise StoreUnavailable(
            f"process {holder[0] if holder else '(gone by now)'} is migrating this database, or was killed doing so",
            f"wait for it; if it is dead: yoyo break-lock --database {backend.uri.scheme}://"
            + ("/FILE" if backend.uri.scheme == "sqlite" else "…"),
        ) from error


def _carry_out(backend: Any, migration: Any, direction: str) -> None:
    """Apply or roll back one migration, together with its line in the account."""
    migration.load()
    enter = backend.mark_one if direction == "apply" else backend.unmark_one
    try:
        if not migration.use_transactions:
            backend.apply_one(migration) if direction == "apply" else backend.rollback_one(migration)
            return
        with backend.transaction():
            migration.process_steps(backend, direction)
            backend.log_migration(migration, direction)
            enter(migration, log=False)
    except backend.DatabaseError as error:
        error.add_note(migration.id)
        raise


def _status(backend: Any, package: _Package) -> Status:
    connection = backend.connection
    applied = _column(connection, f"SELECT migration_hash FROM {ACCOUNT}") if package.has(connection, ACCOUNT) else ()
    return _compare(package, frozenset(applied), package.installed(connection))


def _compare(package: _Package, applied: frozenset[str], stamp: Stamp | None) -> Status:
    states = (MigrationState(migration.id, migration.hash in applied) for migration in package.migrations)
    return Status(tuple(states), stamp and stamp[0], package.version, stamp == package.stamp)


def _column(connection: Any, query: str, *values: Sequence[str]) -> list[str]:
    return [row[0] for row in execute(connection, query, values)]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _told(error: BaseException) -> str:
    """What the database said, in a line, and where it happened. Details may hold what is in the rows, so they are
    left out; all but the names of the objects that stop a rollback."""
    said = error.args[-1] if error.args else ""  # PyMySQL puts a number first
    lines = str(said).strip().split("\n")
    told = lines[: 2 if getattr(error, "sqlstate", None) == DEPENDED_ON else 1]
    if place := " in ".join(getattr(error, "__notes__", ())):
        told.append(f"({place})")
    return " ".join(told)
