"""A short way for the one call that applications wait for: what a cursor does around a statement takes as long as the
server needs for an enqueue.

Why it is safe: it knows no errors. Where there is no answer, because the call was refused or because whoever stands
between here and the server has forgotten the statement, the caller makes the call once more in the ordinary way, and so
does what it would have done and hears what it would have heard. Only a call that can be repeated may go this way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from uuid import UUID

from psycopg import Connection, generators
from psycopg.abc import PQGen
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

Value = str | UUID | None

UNKNOWN_STATEMENT = b"26000"


class Shortcut:
    """A statement that answers one id, prepared once on a connection."""

    def __init__(self, connection: Connection[tuple[object, ...]], statement: str) -> None:
        self._connection = connection
        self._statement = statement
        # The name is nobody else's, where connections to the server are shared.
        self._name = b"pyjobs_" + os.urandom(8).hex().encode()
        self._prepared = False

    def answer(self, values: Sequence[Value]) -> UUID | None:
        """What it answers; None where it does not."""
        encoding = self._connection.info.encoding
        answer = self._connection.wait(self._asked([_binary(value, encoding) for value in values]))
        return None if answer is None else UUID(bytes=answer)

    def _asked(self, values: list[bytes | None]) -> PQGen[bytes | None]:
        pgconn = self._connection.pgconn
        if not self._prepared:
            marks = tuple(f"${number}" for number in range(1, len(values) + 1))
            pgconn.send_prepare(self._name, (self._statement % marks).encode())
            self._prepared = (yield from self._result()).status == ExecStatus.COMMAND_OK
        pgconn.send_query_prepared(self._name, values, [Format.BINARY] * len(values), result_format=Format.BINARY)
        result = yield from self._result()
        if result.error_field(DiagnosticField.SQLSTATE) == UNKNOWN_STATEMENT:
            self._prepared = False
        return result.get_value(0, 0) if result.status == ExecStatus.TUPLES_OK else None

    def _result(self) -> PQGen[PGresult]:
        result: PGresult
        [result] = yield from generators.execute(self._connection.pgconn)
        return result


def _binary(value: Value, encoding: str) -> bytes | None:
    """A value as the server reads it in binary."""
    if isinstance(value, str):
        return value.encode(encoding)
    return None if value is None else value.bytes
