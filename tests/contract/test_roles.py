"""roles.sql: what each of the four roles may do, and that none may do more (PostgreSQL; SQLite has no users)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql as quoting

from pyjobs.store.base import Store
from steps import claim_one, define, enqueue

pytestmark = pytest.mark.databases("postgresql")

ROLES_FILE = Path(__file__).parents[2] / "sql" / "postgresql" / "roles.sql"
EVERYONE = {"jobs_contract", "jobs_now"}
MAY_CALL = {
    "producer": {"jobs_enqueue", "jobs_enqueue_many", "jobs_open_batch", "jobs_seal_batch"},
    "worker": {
        "jobs_define",
        "jobs_forget",
        "jobs_claim",
        "jobs_heartbeat",
        "jobs_settle",
        "jobs_settle_many",
        "jobs_take_slot",
        "jobs_free_slot",
        "jobs_advance_batch",
        "jobs_put_schedule",
        "jobs_prune_schedules",
        "jobs_tick_schedule",
        "jobs_sweep",
    },
    "operator": {
        "jobs_retry",
        "jobs_cancel",
        "jobs_discard",
        "jobs_pause_queue",
        "jobs_resume_queue",
        "jobs_set",
        "jobs_advance_batch",
    },
    "viewer": set[str](),
}
SEES_VIEWS = {"operator", "viewer"}
ROLES = sorted(MAY_CALL)


@pytest.fixture(params=ROLES)
def role(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def principal(sql: Any, role: str) -> Iterator[str]:
    """A login of its own that has been granted the role."""
    name = f"pyjobs_{role}_{uuid4().hex[:8]}"
    sql(f"CREATE ROLE {name} LOGIN")
    sql("SELECT jobs_grant(?, ?)", name, role)
    yield name
    sql(f"DROP OWNED BY {name}")
    sql(f"DROP ROLE {name}")


@pytest.fixture
def theirs(database: Any, principal: str) -> Iterator[Any]:
    """What that login can do: a connection whose rights are its own."""
    connection = database.connect()
    connection.execute(quoting.SQL("SET SESSION AUTHORIZATION {}").format(quoting.Identifier(principal)))
    yield connection
    connection.close()


def test_each_may_call_its_own_routines_and_no_other(sql: Any, role: str, principal: str) -> None:
    routines = sql(
        """
        SELECT p.proname AS name, bool_or(has_function_privilege(?, p.oid, 'EXECUTE')) AS allowed
        FROM pg_proc p
        WHERE p.proname LIKE 'jobs\\_%'
        GROUP BY p.proname
        """,
        principal,
    )

    assert {row["name"] for row in routines if row["allowed"]} - EVERYONE == MAY_CALL[role]


def test_none_may_touch_a_table(sql: Any, principal: str) -> None:
    rights = sql(
        """
        SELECT c.relname AS name
        FROM pg_class c
        WHERE c.relname LIKE 'jobs%' AND c.relkind IN ('r', 'p', 'S', 'v', 'm')
          AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege(?, c.oid, 'USAGE, SELECT, UPDATE')
                             ELSE has_table_privilege(?, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
                               OR has_any_column_privilege(?, c.oid, 'INSERT, UPDATE, REFERENCES')
                               OR c.relkind IN ('r', 'p') AND has_table_privilege(?, c.oid, 'SELECT') END
        """,
        *[principal] * 4,
    )

    assert rights == []


def test_the_views_are_for_operators_and_viewers_and_payloads_apart(sql: Any, role: str, principal: str) -> None:
    rows = sql(
        """
        SELECT c.relname AS name, has_table_privilege(?, c.oid, 'SELECT') AS allowed
        FROM pg_class c
        WHERE c.relname LIKE 'jobs\\_%' AND c.relname NOT LIKE 'jobs\\_\\_%' AND c.relkind = 'v'
        """,
        principal,
    )
    allowed = {row["name"] for row in rows if row["allowed"]}

    assert "jobs_payloads" in {row["name"] for row in rows} - allowed
    if role in SEES_VIEWS:
        assert allowed == {row["name"] for row in rows} - {"jobs_payloads"}


@pytest.mark.parametrize("role", ["producer"], indirect=True)
def test_a_producer_produces(store: Store, theirs: Any) -> None:
    define(store)
    joined = store.join(theirs)
    batch_id = joined.open_batch({"callback": {"name": "work"}})
    id = joined.enqueue("work", "{}", {"batch_id": str(batch_id), "unique_key": "k"})
    joined.seal_batch(batch_id)

    assert claim_one(store).id == id
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        theirs.execute("SELECT * FROM jobs_claim('w', gen_random_uuid(), '{}')")


@pytest.mark.parametrize("role", ["worker"], indirect=True)
def test_a_worker_works(store: Store, theirs: Any) -> None:
    define(store, concurrency={"limit": 1})
    enqueue(store)
    joined = store.join(theirs)
    job = claim_one(joined)
    joined.heartbeat("worker-1", [])

    assert joined.settle(job.id, job.token, "done", {}).accepted
    assert joined.sweep().total == 0


@pytest.mark.parametrize("role", ["operator"], indirect=True)
def test_an_operator_operates(store: Store, theirs: Any) -> None:
    define(store)
    id = enqueue(store)
    theirs.execute("SELECT jobs_pause_queue('default')")
    theirs.execute("SELECT jobs_cancel(%s)", [f'{{"id": "{id}"}}'])

    assert theirs.execute("SELECT state FROM jobs_list").fetchall() == [("cancelled",)]


@pytest.mark.parametrize("role", ["viewer"], indirect=True)
def test_a_viewer_views(store: Store, theirs: Any) -> None:
    define(store)
    enqueue(store)

    assert theirs.execute('SELECT "count" FROM jobs_status').fetchall() == [(1,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        theirs.execute("SELECT * FROM jobs_payloads")


def test_an_unknown_role_or_principal_is_refused(sql: Any) -> None:
    with pytest.raises(psycopg.Error) as raised:
        sql("SELECT jobs_grant(?, ?)", "postgres", "emperor")
    assert "emperor" in str(raised.value)

    with pytest.raises(psycopg.Error) as raised:
        sql("SELECT jobs_grant(?, ?)", "nobody at all", "viewer")
    assert "nobody at all" in str(raised.value)


@pytest.mark.parametrize("role", ["viewer"], indirect=True)
def test_granting_twice_is_granting_once(sql: Any, principal: str) -> None:
    sql("SELECT jobs_grant(?, ?)", principal, "viewer")


@pytest.mark.parametrize("grantee", ["PUBLIC", "somebody"])
def test_nothing_is_granted_where_others_may_create(sql: Any, grantee: str) -> None:
    """A function of theirs that fits a call better would run with the rights of the routines' owner."""
    creator, producer = (f"pyjobs_{kind}_{uuid4().hex[:8]}" for kind in ("creator", "producer"))
    grantee = "PUBLIC" if grantee == "PUBLIC" else creator
    sql(f"CREATE ROLE {creator}")
    sql(f"CREATE ROLE {producer}")
    sql(f"GRANT CREATE ON SCHEMA public TO {grantee}")
    try:
        with pytest.raises(psycopg.Error) as raised:
            sql("SELECT jobs_grant(?, 'producer')", producer)
        assert raised.value.sqlstate == "PJ003"
        assert raised.value.diag.message_hint == f"REVOKE CREATE ON SCHEMA public FROM {grantee}"
        assert not sql.value("SELECT has_function_privilege(?, 'jobs_enqueue_many(text)', 'EXECUTE')", producer)

        sql(raised.value.diag.message_hint)
        sql("SELECT jobs_grant(?, 'producer')", producer)
        assert sql.value("SELECT has_function_privilege(?, 'jobs_enqueue_many(text)', 'EXECUTE')", producer)
    finally:
        sql(f"DROP OWNED BY {creator}, {producer}")
        sql(f"DROP ROLE {creator}, {producer}")


@pytest.mark.parametrize("role", ["producer"], indirect=True)
def test_routines_of_others_are_let_alone(sql: Any, principal: str) -> None:
    """The application's, and a namesake that belongs to somebody else."""
    stranger = f"pyjobs_stranger_{uuid4().hex[:8]}"
    sql("CREATE FUNCTION jobs_of_mine() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$")
    sql("CREATE FUNCTION jobs_enqueue(integer) RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$")
    sql(f"CREATE ROLE {stranger}")
    sql(f"ALTER FUNCTION jobs_enqueue(integer) OWNER TO {stranger}")
    sql("REVOKE EXECUTE ON FUNCTION jobs_enqueue(integer) FROM PUBLIC")
    try:
        sql(ROLES_FILE.read_text(encoding="utf-8"))
        sql("SELECT jobs_grant(?, 'producer')", principal)

        assert sql.value("SELECT has_function_privilege(?, 'jobs_of_mine()', 'EXECUTE')", principal)
        assert not sql.value("SELECT has_function_privilege(?, 'jobs_enqueue(integer)', 'EXECUTE')", principal)
    finally:
        sql("DROP FUNCTION jobs_enqueue(integer)")
        sql(f"DROP ROLE {stranger}")


@pytest.mark.parametrize("role", ["producer"], indirect=True)
class TestDisguises:
    """Routines run with their owner's rights, so what they find must not be the caller's to choose."""

    def test_a_table_of_the_same_name_does_not_stand_in(self, store: Store, theirs: Any, sql: Any) -> None:
        define(store)
        theirs.execute("CREATE TEMPORARY TABLE jobs (id uuid)")
        theirs.execute("CREATE TEMPORARY TABLE jobs_definitions (name text)")
        id = store.join(theirs).enqueue("work", "{}")

        assert sql.value("SELECT id FROM public.jobs") == id

    def test_neither_does_a_function_of_a_schema_put_in_front(
        self, store: Store, theirs: Any, sql: Any, principal: str, database: Any
    ) -> None:
        define(store)
        sql(f"CREATE SCHEMA disguise AUTHORIZATION {principal}")
        theirs.execute("SET search_path = disguise, public")
        theirs.execute(
            "CREATE FUNCTION disguise.jobs_now() RETURNS timestamptz"
            " LANGUAGE sql AS $$ SELECT timestamptz '2999-01-01Z' $$"
        )
        theirs.execute("CREATE FUNCTION disguise.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT 'changed' $$")
        id = store.join(theirs).enqueue("work", "{}")

        assert sql.value("SELECT run_at < timestamptz '2900-01-01Z' FROM public.jobs WHERE id = ?", id)
