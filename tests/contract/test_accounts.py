"""Accounts on MySQL and MariaDB: what each role may do, and what an owner needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pymysql
import pytest

from pyjobs import install
from pyjobs.errors import InvalidConfiguration, InvalidOption
from pyjobs.store import open_store
from pyjobs.store.base import Store
from steps import claim_one, define, enqueue, perform
from test_roles import MAY_CALL

pytestmark = pytest.mark.databases("mysql")

ROLES = sorted(MAY_CALL)


@pytest.fixture
def account(sql: Any) -> Iterator[str]:
    """A user without rights."""
    name = f"pyjobs_{uuid4().hex[:8]}"
    sql(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'")
    yield name
    sql(f"DROP USER '{name}'@'%'")


def url_of(database: Any, account: str) -> str:
    parts = urlsplit(database.url)
    return f"mysql://{account}:secret@{parts.hostname}:{parts.port}{parts.path}"


@pytest.fixture
def theirs(database: Any, account: str) -> Iterator[Store]:
    store = open_store(url_of(database, account))
    yield store
    store.close()


@pytest.mark.parametrize("role", ROLES)
def test_each_may_call_its_own_routines_and_no_other(sql: Any, account: str, role: str) -> None:
    sql("CALL jobs_grant(?, ?)", account, role)

    rows = sql("SELECT routine_name AS name FROM mysql.procs_priv WHERE db = DATABASE() AND user = ?", account)
    assert {row["name"] for row in rows} - {"jobs_contract", "jobs_enqueue_with_id"} == MAY_CALL[role]


@pytest.mark.parametrize("role", ROLES)
def test_none_may_touch_a_table_or_read_arguments(sql: Any, account: str, role: str) -> None:
    sql("CALL jobs_grant(?, ?)", account, role)

    rows = sql(
        "SELECT p.table_name AS name, p.table_priv AS rights, t.table_type AS type FROM mysql.tables_priv p"
        " JOIN information_schema.tables t ON t.table_schema = p.db AND t.table_name = p.table_name"
        " WHERE p.db = DATABASE() AND p.user = ?",
        account,
    )
    assert {(str(row["rights"]), row["type"]) for row in rows} == {("Select", "VIEW")}
    assert "jobs_payloads" not in {row["name"] for row in rows}


def test_a_producer_produces_and_does_not_claim(store: Store, sql: Any, account: str, theirs: Store) -> None:
    define(store)
    sql("CALL jobs_grant(?, 'producer')", account)
    batch_id = theirs.open_batch({"callback": {"name": "work"}})
    id = enqueue(theirs, batch_id=str(batch_id), unique_key="k")
    theirs.seal_batch(batch_id)

    with pytest.raises(InvalidConfiguration, match="may not"):
        claim_one(theirs)
    assert perform(store) == id


def test_a_worker_works(store: Store, sql: Any, account: str, theirs: Store) -> None:
    define(store, concurrency={"limit": 1})
    id = enqueue(store)
    sql("CALL jobs_grant(?, 'worker')", account)

    assert perform(theirs) == id
    assert theirs.sweep().total == 0


@pytest.mark.parametrize(("whom", "role"), [(None, "emperor"), ("nobody_at_all", "viewer")])
def test_an_unknown_role_or_account_is_refused(sql: Any, account: str, whom: str | None, role: str) -> None:
    with pytest.raises(pymysql.MySQLError, match=whom or role):
        sql("CALL jobs_grant(?, ?)", whom or account, role)


def test_an_owner_needs_no_rights_on_the_server(empty_database: Any, databases: Any) -> None:
    """The binary log is on (servers/mysql.py), which would forbid functions and triggers of theirs."""
    root = empty_database.connect()
    name, schema = f"owner_{uuid4().hex[:8]}", urlsplit(empty_database.url).path[1:]
    assert root.execute("SELECT @@log_bin").fetchall() == [(1,)]
    root.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'")
    root.execute(f"GRANT ALL ON `{schema}`.* TO '{name}'@'%' WITH GRANT OPTION")
    try:
        url = url_of(empty_database, name)
        install.migrate(url)
        store = open_store(url)
        define(store, concurrency={"limit": 2})
        assert enqueue(store, unique_key="k") == perform(store)
        with pytest.raises(InvalidOption):
            enqueue(store, nonsense=1)
        store.close()
    finally:
        root.execute(f"DROP USER '{name}'@'%'")
        root.close()
