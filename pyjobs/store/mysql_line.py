"""A line to a MySQL or MariaDB database: how it is opened, how a call goes over it, and what an error that comes back
means.

PyMySQL tells the number of an error but not its SQLSTATE, so the routines give theirs a number that says the same:
20001 is PJ001. A message is cut at 128 characters; the whole of it, and the hint, are left in two variables of the
session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import pymysql
from pymysql.constants import CR, ER
from pymysql.converters import encoders

from pyjobs.errors import (
    FROM_CONTRACT,
    ContractMismatch,
    InvalidConfiguration,
    InvalidOption,
    PyjobsError,
    StoreUnavailable,
)
from pyjobs.store import common, mysql_url

Row = tuple[Any, ...]

CONNECT_SECONDS = 10
REFUSED = 20000
HINT_REACH = "is the server up, and does the URL name its host, port, user and database?"
HINT_MIGRATE = "run: pyjobs migrate"
IN_A_TRANSACTION = 1568
NO_TEMPORARY_TABLES = 4091  # MySQL, in an XA transaction

# Another transaction was in the way; what this one did is undone. (1020: MariaDB, what was read has changed since.)
ABORTED = {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD}
# The server is going down, coming up, full, read-only as the replica of one that failed, or has hung up on us.
AWAY = {
    ER.SERVER_SHUTDOWN,
    ER.CON_COUNT_ERROR,
    ER.TOO_MANY_USER_CONNECTIONS,
    ER.OPTION_PREVENTS_STATEMENT,
    ER.QUERY_INTERRUPTED,
    ER.UNKNOWN_ERROR,  # what some steps say of a call that was killed: this,
    ER.SP_FETCH_NO_DATA,  # this,
    1467,  # and this
    1836,  # read-only mode
    1927,  # MariaDB: the connection was killed
    3169,  # the session was killed
    4031,  # idle for too long
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    CR.CR_SERVER_LOST_EXTENDED,
    0,  # PyMySQL: the connection is closed
}
# The server gave up: it took too long, or there is no room. That says nothing of what was sent. Whoever set a time does
# not want it spent again and again. (1969: MariaDB, 3024: MySQL.)
GAVE_UP = {1969, 3024, ER.DISK_FULL, ER.OUTOFMEMORY, ER.OUT_OF_RESOURCES, ER.RECORD_FILE_FULL}
LACKING = {ER.SP_DOES_NOT_EXIST, ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.BAD_FIELD_ERROR, ER.SP_WRONG_NO_OF_ARGS}
FORBIDDEN = {
    ER.PROCACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}
TOO_LARGE = {ER.NET_PACKET_TOO_LARGE, ER.WARN_ALLOWED_PACKET_OVERFLOWED}
UNREADABLE = {ER.TRUNCATED_WRONG_VALUE_FOR_FIELD, ER.INVALID_CHARACTER_STRING, 3854, 3988}


@dataclass(frozen=True, slots=True)
class Call:
    """One statement with its values."""

    statement: str
    values: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one result and the names of their columns."""

    names: tuple[str, ...]
    rows: Sequence[Row]


class Place:
    """Where the database is, by its URL."""

    def __init__(self, url: str) -> None:
        self._settings = mysql_url.settings(url)
        if password := self._settings.get("password"):
            self._settings["password"] = password.encode()

    def connect(self) -> Any:
        """A new connection, each statement its own transaction; ``StoreUnavailable`` when there is none to be had."""
        try:
            return pymysql.connect(
                **self._settings,
                autocommit=True,
                charset="utf8mb4",
                connect_timeout=CONNECT_SECONDS,
                conv=_CONVERSIONS,
            )
        except pymysql.MySQLError as error:
            raise StoreUnavailable(f"the database cannot be reached: {_said(error)}", HINT_REACH) from error
        except (RuntimeError, OSError) as error:  # a way of logging in that needs another package; a certificate
            raise InvalidConfiguration(f"the database cannot be connected to: {error}", mysql_url.HINT_URL) from error


# Only numbers are read from what the server writes; the rest is text, and what it means the records know.
_CONVERSIONS: dict[Any, Callable[..., Any]] = {
    **encoders,
    pymysql.FIELD_TYPE.TINY: int,
    pymysql.FIELD_TYPE.SHORT: int,
    pymysql.FIELD_TYPE.LONG: int,
    pymysql.FIELD_TYPE.LONGLONG: int,
    pymysql.FIELD_TYPE.INT24: int,
    pymysql.FIELD_TYPE.FLOAT: float,
    pymysql.FIELD_TYPE.DOUBLE: float,
    pymysql.FIELD_TYPE.NEWDECIMAL: float,
}


class Driver:
    """The driver of a connection: PyMySQL or mysqlclient, which are used alike."""

    def __init__(self, name: str) -> None:
        self.error: type[Exception] = sys.modules[name].Error
        self._cursor = sys.modules[f"{name}.cursors"].Cursor

    @classmethod
    def of(cls, connection: Any) -> Self:
        """The driver this connection is of, as its class or one that it was made from says."""
        known = {"pymysql.connections": "pymysql", "MySQLdb.connections": "MySQLdb"}
        name = next((known[each.__module__] for each in type(connection).__mro__ if each.__module__ in known), None)
        if name is None:
            raise InvalidConfiguration(
                f"a {type(connection).__name__} is not a connection of PyMySQL or mysqlclient",
                "pass such a connection; from SQLAlchemy or Django, the one they wrap",
            )
        return cls(name)

    def answer(self, connection: Any, call: Call) -> Answer:
        """What a call answers: one result, which is empty where it has none."""
        with connection.cursor(self._cursor) as cursor:
            cursor.execute(call.statement, [_sent(value) for value in call.values])
            answer = Answer((), ())
            while True:
                if cursor.description is not None:
                    answer = Answer(tuple(column[0] for column in cursor.description), cursor.fetchall())
                if not cursor.nextset():
                    return answer

    def told(self, connection: Any, error: Exception) -> PyjobsError:
        """What a caller is told of an error. The engine's own messages may hold what is in the rows or the arguments,
        so they are passed on only where they cannot."""
        number = number_of(error)
        code = f"PJ{number - REFUSED:03}"
        if code in FROM_CONTRACT:
            message, hint = self._refusal(connection) or (_said(error), "")
            return common.refusal(code, message, hint)
        if number in ABORTED | GAVE_UP:
            return StoreUnavailable(f"the database could not finish the call: {_said(error)}", "try again")
        if number in AWAY:
            return StoreUnavailable(f"the connection was lost: {_said(error)}", HINT_REACH)
        if number in LACKING:
            return ContractMismatch(f"the database lacks a part of the contract: {_said(error)}", HINT_MIGRATE)
        if number in FORBIDDEN:
            return InvalidConfiguration(
                f"this database user may not: {_said(error)}",
                "let the owner call jobs_grant(user, role): producer, worker, operator or viewer",
            )
        if number in UNREADABLE:
            return unkept()
        if number in TOO_LARGE:
            return InvalidOption("the call is larger than the server takes", "send fewer, or raise max_allowed_packet")
        if number == IN_A_TRANSACTION:
            return InvalidOption(
                "this is a transaction of its own, and cannot be part of another", "call it outside of a transaction"
            )
        if number == NO_TEMPORARY_TABLES:
            return InvalidOption(
                "MySQL takes no list of jobs within an XA transaction",
                "enqueue them one by one, or in another transaction",
            )
        return PyjobsError("the database refused", f"MySQL calls this {number}")

    def _refusal(self, connection: Any) -> tuple[str, str] | None:
        """The message and the hint of the refusal that has just come, in full."""
        [(message, hint)] = self.answer(connection, Call("SELECT @jobs_message, @jobs_hint")).rows
        return (_text(message), _text(hint or "")) if message else None


def number_of(error: Exception) -> int:
    """The number MySQL gives an error; −1 where it has none."""
    number = error.args[0] if error.args else -1
    return number if isinstance(number, int) else -1


def unkept() -> PyjobsError:
    """The refusal of a text that no database can be sent."""
    return InvalidOption("a text holds a character that MySQL cannot keep", "leave out NUL and half surrogate pairs")


def _said(error: BaseException) -> str:
    return str(error.args[-1] if error.args else error).strip().partition("\n")[0]


def _sent(value: Any) -> Any:
    """A value as it is sent: moments in UTC without saying so, as the columns are."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def hang_up(connection: Any) -> None:
    """Close a connection that may be closed already."""
    with suppress(pymysql.MySQLError):
        connection.close()
