"""For tests: a clock that stands still until it is moved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from pyjobs.install import connected

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TestClock:
    """The time of one database, for everyone who uses it: it stands still until it is moved.

    Making one replaces what the routines read the time from, and that stays: only for databases made for tests. Two
    on one database are the same clock. Raises as ``pyjobs.install.status`` does when the database cannot be reached.
    """

    __test__ = False  # or pytest takes it for a test

    def __init__(self, url: str) -> None:
        self.url = url
        self._sql = _SQLITE if urlsplit(url).scheme == "sqlite" else _POSTGRESQL
        self._execute(*self._sql.install)

    def now(self) -> datetime:
        """What the database takes for the present, to the millisecond, in UTC."""
        return _EPOCH + self._execute(self._sql.read) * _MILLISECOND

    def set(self, moment: datetime) -> None:
        """Move to ``moment``, forward or back; it must have a time zone."""
        self._execute(self._sql.write.format((moment - _EPOCH) // _MILLISECOND))

    def advance(self, seconds: float) -> datetime:
        """Move on by ``seconds``, and answer the new present."""
        moment = self.now() + timedelta(seconds=seconds)
        self.set(moment)
        return moment

    def _execute(self, *statements: str) -> int:
        """Execute them in one transaction; the value of the last, 0 if it has none."""
        with connected(self.url) as connection:
            connection.execute("BEGIN")
            for statement in statements:
                cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            connection.execute("COMMIT")
        return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class _ClockSql:
    """How a dialect's clock is replaced by the one row of a table, in milliseconds since the epoch, read and moved."""

    install: tuple[str, ...]
    read: str
    write: str


_SQLITE = _ClockSql(
    install=(
        "CREATE TABLE IF NOT EXISTS jobs__test_clock AS SELECT now FROM jobs_clock",
        "DROP VIEW jobs_clock",
        "CREATE VIEW jobs_clock AS SELECT now FROM jobs__test_clock",
    ),
    read="SELECT now FROM jobs_clock",
    write="UPDATE jobs__test_clock SET now = {}",
)

_POSTGRESQL = _ClockSql(
    install=(
        "CREATE TABLE IF NOT EXISTS jobs__test_clock AS SELECT date_trunc('milliseconds', jobs_now()) AS now",
        """
        CREATE OR REPLACE FUNCTION jobs_now()
        RETURNS timestamptz
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
        AS $$ SELECT now FROM jobs__test_clock $$
        """,
    ),
    read="SELECT floor(extract(epoch FROM jobs_now()) * 1000)::bigint",
    write="UPDATE jobs__test_clock SET now = timestamptz 'epoch' + {} * interval '1 millisecond'",
)
