"""The whole story by plain SQL: what another language, or a person at a shell, can do without this package.

Defining, enqueueing, claiming, settling and reading the views, by the database's own shell run as a process.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest

from pyjobs.install import ROUTINES, migrate

pytestmark = pytest.mark.sql

TOKEN = str(uuid4())
ROOT = Path(__file__).parents[2]
WHAT_ROUTINES_KEEP = """
    SELECT routine_name, sql_mode, character_set_client, collation_connection, SHA2(routine_definition, 256)
      FROM information_schema.routines
     WHERE routine_schema = DATABASE()
     ORDER BY routine_name;
"""
FROM_COLUMNS = [  # each routine of PostgreSQL that is given text
    ("jobs_define(a, b)", "work", '{"concurrency": {"limit": 9, "key": "k"}}'),
    ("jobs_open_batch(a)", '{"name": "b", "callback": {"name": "work", "args": {"k": 1}}}'),
    ("jobs_enqueue(a, b, c)", "work", '{"k": "\\u00e9"}', '{"unique_key": "u"}'),
    ("jobs_enqueue(a, b)", "work", '{"k": 1}'),
    ("jobs_enqueue_many(a)", '[{"name": "work", "args": {"k": 2}, "options": {"unique_key": "v"}}, {"name": "work"}]'),
    (f"jobs_claim(a, '{TOKEN}', b)", "me", '{"max_jobs": 9, "queues": ["default"], "names": ["work"]}'),
    ("jobs_heartbeat(a, b, c)", "me", f'[{{"id": "{TOKEN}", "token": "{TOKEN}"}}]', '{"info": {"pid": 1}}'),
    ("jobs_heartbeat(a, options => b)", "me", '{"leaving": true}'),
    (f"jobs_settle((SELECT id FROM jobs LIMIT 1), '{TOKEN}', a, b)", "failed", '{"type": "E", "message": "m"}'),
    ("jobs_settle_many(a)", f'[{{"id": "{TOKEN}", "token": "{TOKEN}", "outcome": "failed", "detail": {{}}}}]'),
    (f"jobs_take_slot(a, '{TOKEN}', '{TOKEN}')", "work:1"),
    (f"jobs_free_slot(a, 0, '{TOKEN}')", "work:1"),
    ("jobs_put_schedule(a, b, now())", "daily", '{"job": "work", "every_ms": 60000, "source": "s"}'),
    ("jobs_tick_schedule(a, now(), now())", "daily"),
    ("jobs_prune_schedules(a, b)", "s", '["daily"]'),
    ("jobs_cancel(a)", '{"name": "work", "state": "pending", "queue": "default"}'),
    ("jobs_retry(a, b)", '{"name": "work", "state": "cancelled"}', '{"delay_ms": 5}'),
    ("jobs_discard(a)", '{"name": "work", "tenant": "t"}'),
    ("jobs_sweep(a)", '{"limit": 5}'),
    ("jobs_pause_queue(a)", "default"),
    ("jobs_resume_queue(a)", "default"),
    ("jobs_set(a, b)", "notify", "true"),
    ("jobs_forget(a)", "work"),
]
ARGS: list[Any] = ['{"n": 1e22}', {"n": 2}, []]  # as text, which is kept verbatim, or as they are


def sqlite3_shell(database: Any, script: str) -> list[str]:
    return lines(["sqlite3", "-bail", "-cmd", ".timeout 5000", database.url.removeprefix("sqlite:///")], script)


def psql(database: Any, script: str) -> list[str]:
    program = shutil.which("psql") or str(next(Path("/usr/lib/postgresql").glob("*/bin/psql")))
    return lines([program, database.url, "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1"], script)


def mysql_client(database: Any, script: str) -> list[str]:
    program = shutil.which("mariadb") or shutil.which("mysql")
    assert program, "neither the client mariadb nor mysql is on the PATH"
    parts = urlsplit(database.url)
    place = [f"--host={parts.hostname}", f"--port={parts.port or 3306}", f"--user={parts.username}", parts.path[1:]]
    password = [f"--password={unquote(parts.password)}"] if parts.password else []
    how = ["--no-defaults", "--batch", "--raw", "--skip-column-names", "--comments"]
    return lines([program, *how, *password, *place], script)


def lines(command: list[str], script: str) -> list[str]:
    done = subprocess.run(command, input=script, text=True, capture_output=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


@pytest.mark.databases("postgresql")
class TestPsql:
    def test_from_a_definition_to_the_views(self, database: Any) -> None:
        assert psql(database, "SELECT jobs_contract();") == ["1"]

        [_, enqueued] = psql(
            database,
            """
            SELECT jobs_define('welcome', '{"max_attempts": 3, "queue": "mailers"}');
            SELECT jobs_enqueue('welcome', '{"user_id": 1e22}', '{"unique_key": "w1"}');
            """,
        )
        [again] = psql(database, """SELECT jobs_enqueue('welcome', '{"user_id": 2}', '{"unique_key": "w1"}');""")
        assert again == enqueued

        [claimed] = psql(
            database,
            f"""SELECT id, name, args, attempt FROM jobs_claim('a shell', '{TOKEN}', '{{"queues": ["mailers"]}}');""",
        )
        assert claimed == f'{enqueued}|welcome|{{"user_id": 1e22}}|1'
        assert psql(database, "SELECT queue, state, count FROM jobs_status;") == ["mailers|running|1"]

        [settled] = psql(database, f"SELECT accepted, state FROM jobs_settle('{enqueued}', '{TOKEN}', 'done', '{{}}');")
        assert settled == "t|done"
        [settled] = psql(database, f"SELECT accepted, state FROM jobs_settle('{enqueued}', '{TOKEN}', 'done', '{{}}');")
        assert settled == "t|done"
        assert psql(database, "SELECT name, state FROM jobs_list;") == ["welcome|done"]

    def test_what_has_a_default_can_be_left_out(self, database: Any) -> None:
        psql(database, "SELECT jobs_define('welcome');")
        [enqueued] = psql(database, "SELECT jobs_enqueue('welcome');")
        assert psql(database, f"SELECT id FROM jobs_claim('a shell', '{TOKEN}');") == [enqueued]
        assert psql(database, f"SELECT state FROM jobs_settle('{enqueued}', '{TOKEN}', 'failed');") == ["scheduled"]
        assert len(psql(database, "SELECT * FROM jobs_sweep();")) == 1

    @pytest.mark.parametrize("collation", ["POSIX", "any_case"])
    def test_what_comes_from_a_column_with_a_collation_of_its_own(self, sql: Any, collation: str) -> None:
        if collation == "any_case":
            if not sql("SELECT FROM pg_collation WHERE collname = 'und-x-icu'"):
                pytest.skip("this server was built without ICU")
            sql("CREATE COLLATION any_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false)")
        columns = ", ".join(f'{name} text COLLATE "{collation}"' for name in "abc")
        sql(f"CREATE TABLE said ({columns})")
        for call, *texts in FROM_COLUMNS:
            sql("DELETE FROM said")
            sql("INSERT INTO said VALUES (?, ?, ?)", *texts, *[None] * (3 - len(texts)))
            sql(f"SELECT {call} FROM said")  # which was refused (42P22) where the two collations met
        assert sql.value("SELECT count(*) FROM jobs") == 4

    def test_many_at_once(self, database: Any) -> None:
        jobs = json.dumps([{"name": "welcome", "args": args} for args in ARGS])
        answers = psql(
            database, f"SELECT jobs_define('welcome');\nSELECT position, inserted FROM jobs_enqueue_many('{jobs}');"
        )
        assert answers[1:] == ["0|t", "1|t", "2|t"]

        held = psql(database, f"SELECT id FROM jobs_claim('a shell', '{TOKEN}', '{{\"max_jobs\": 3}}');")
        payloads = psql(database, "SELECT args FROM jobs_payloads ORDER BY id;")
        assert payloads[0] == ARGS[0]
        assert list(map(json.loads, payloads[1:])) == ARGS[1:]
        outcomes = json.dumps([{"id": id, "token": TOKEN, "outcome": "done"} for id in held])
        assert psql(database, f"SELECT accepted FROM jobs_settle_many('{outcomes}');") == ["t", "t", "t"]

    def test_a_batch_and_a_callback(self, database: Any) -> None:
        [_, _, batch, _] = psql(
            database,
            """
            SELECT jobs_define('row');
            SELECT jobs_define('finished');
            SELECT jobs_open_batch('{"callback": {"name": "finished", "args": "[1]"}}') AS batch \\gset
            SELECT :'batch';
            SELECT length(jobs_enqueue('row', '{}', format('{"batch_id": "%s"}', :'batch'))::text);
            """,
        )
        psql(database, f"SELECT * FROM jobs_seal_batch('{batch}');")
        [id] = psql(database, f"SELECT id FROM jobs_claim('a shell', '{TOKEN}', '{{}}');")
        psql(database, f"SELECT * FROM jobs_settle('{id}', '{TOKEN}', 'done', '{{}}');")

        [callback] = psql(database, f"SELECT name, args FROM jobs_claim('a shell', '{uuid4()}', '{{}}');")
        assert callback == "finished|[1]"

    def test_a_refusal_says_what_to_do(self, database: Any) -> None:
        with pytest.raises(RuntimeError, match=r"(?s)wrok.*HINT"):
            psql(database, "SELECT jobs_enqueue('wrok', '{}', '{}');")

    def test_an_enqueue_is_part_of_the_transaction(self, database: Any) -> None:
        psql(
            database,
            """
            SELECT jobs_define('welcome');
            BEGIN;
            SELECT jobs_enqueue('welcome');
            ROLLBACK;
            """,
        )
        assert psql(database, "SELECT id FROM jobs_list;") == []


@pytest.mark.databases("mysql")
class TestMysqlClient:
    """The client that comes with MySQL or MariaDB; ``@jobs_hint`` is what a person would look at after a refusal."""

    def test_from_a_definition_to_the_views(self, database: Any) -> None:
        [version, enqueued] = mysql_client(
            database,
            """
            CALL jobs_contract();
            CALL jobs_define('welcome', '{"max_attempts": 3, "queue": "mailers"}');
            CALL jobs_enqueue('welcome', '{"user_id": 1}', '{"unique_key": "w1"}');
            """,
        )
        assert version == "1"
        again = """CALL jobs_enqueue('welcome', '{"user_id": 2}', '{"unique_key": "w1"}');"""
        assert mysql_client(database, again) == [enqueued]

        [claimed] = mysql_client(database, f"CALL jobs_claim('a shell', '{TOKEN}', NULL);")
        assert claimed.split("\t")[:5] == [enqueued, "welcome", "mailers", '{"user_id": 1}', "1"]
        assert mysql_client(database, "SELECT queue, state, `count` FROM jobs_status;") == ["mailers\trunning\t1"]

        settle = f"CALL jobs_settle('{enqueued}', '{TOKEN}', 'done', NULL);"
        assert mysql_client(database, settle) == ["1\tdone"]
        assert mysql_client(database, settle) == ["1\tdone"]
        assert mysql_client(database, "SELECT name, state FROM jobs_list;") == ["welcome\tdone"]

    def test_a_refusal_says_what_to_do(self, database: Any) -> None:
        with pytest.raises(RuntimeError, match=r"ERROR 20001 \(PJ001\).*wrok"):
            mysql_client(database, "CALL jobs_enqueue('wrok', '{}', NULL);")

    def test_an_enqueue_is_part_of_the_transaction(self, database: Any) -> None:
        mysql_client(
            database,
            """
            CALL jobs_define('welcome', NULL);
            BEGIN;
            CALL jobs_enqueue('welcome', '{}', NULL);
            ROLLBACK;
            """,
        )
        assert mysql_client(database, "SELECT id FROM jobs_list;") == []

    def test_what_the_page_shows(self, database: Any) -> None:
        page = (ROOT / "sql" / "README.md").read_text()
        [block] = re.findall(r"^```sql\n(-- mysql .*?)^```", page, re.DOTALL | re.MULTILINE)
        told = mysql_client(database, block)
        assert [line.split("\t")[:2] for line in told[-3:]] == [
            ["1", "scheduled"],
            ["letters", "pending"],
            ["letters", "scheduled"],
        ]
        assert [line.rpartition("\t")[2] for line in told[-2:]] == ["1", "2"]

    def test_the_files_can_be_sent_by_hand(self, databases: Any, database_name: str, empty_database: Any) -> None:
        """Nothing but the stamp is missing of what ``pyjobs migrate`` installs."""
        tables = ROOT / "migrations" / "mysql" / "pyjobs-0001-tables.sql"
        files = [tables, *(ROOT / "sql" / "mysql" / f"{name}.sql" for name in ROUTINES)]
        exact = "utf8mb4_nopad_bin" if database_name == "mariadb" else "utf8mb4_0900_bin"
        text = "".join(f"{file.read_text()}\nDELIMITER ;\n" for file in files)
        mysql_client(empty_database, text.replace("COLLATE utf8mb4_bin", f"COLLATE {exact}"))

        with databases.fresh(database_name, installed=False) as other:
            migrate(other.url)
            by_hand, by_us = (mysql_client(each, WHAT_ROUTINES_KEEP) for each in (empty_database, other))
        assert by_hand == by_us


@pytest.mark.databases("sqlite")
class TestSqliteShell:
    def test_from_a_definition_to_the_views(self, database: Any) -> None:
        assert sqlite3_shell(database, "SELECT * FROM jobs_contract;") == ["1"]

        [enqueued] = sqlite3_shell(
            database,
            """
            INSERT INTO jobs_define (name, options) VALUES ('welcome', '{"max_attempts": 3, "queue": "mailers"}');
            BEGIN IMMEDIATE;
            INSERT INTO jobs_enqueue (name, args, options)
                VALUES ('welcome', '{"user_id": 1e22}', '{"unique_key": "w1"}');
            SELECT id FROM jobs_enqueued;
            COMMIT;
            """,
        )
        again = sqlite3_shell(
            database,
            """
            INSERT INTO jobs_enqueue (name, args, options) VALUES ('welcome', '{"user_id": 2}', '{"unique_key": "w1"}')
                RETURNING (SELECT id || ' ' || inserted FROM jobs_enqueued);
            """,
        )
        assert again == [f"{enqueued} 0"]

        [claimed] = sqlite3_shell(
            database,
            f"""
            BEGIN IMMEDIATE;
            INSERT INTO jobs_claim (worker, token, options) VALUES ('a shell', '{TOKEN}', '{{"queues": ["mailers"]}}');
            SELECT id, name, args, attempt FROM jobs_claimed WHERE token = '{TOKEN}';
            COMMIT;
            """,
        )
        assert claimed == f'{enqueued}|welcome|{{"user_id": 1e22}}|1'
        assert sqlite3_shell(database, "SELECT queue, state, count FROM jobs_status;") == ["mailers|running|1"]

        for _ in range(2):
            settled = sqlite3_shell(
                database,
                f"""
                INSERT INTO jobs_settle (id, token, outcome, detail) VALUES ('{enqueued}', '{TOKEN}', 'done', '{{}}')
                    RETURNING (SELECT accepted || ' ' || state FROM jobs_settled);
                """,
            )
            assert settled == ["1 done"]
        assert sqlite3_shell(database, "SELECT name, state FROM jobs_list;") == ["welcome|done"]

    def test_what_has_a_default_can_be_left_out(self, database: Any) -> None:
        assert sqlite3_shell(
            database,
            f"""
            INSERT INTO jobs_define (name) VALUES ('welcome');
            INSERT INTO jobs_enqueue (name) VALUES ('welcome');
            INSERT INTO jobs_claim (worker, token) VALUES ('a shell', '{TOKEN}');
            INSERT INTO jobs_settle (id, token, outcome)
                SELECT id, token, 'failed' FROM jobs_claimed WHERE token = '{TOKEN}';
            SELECT state FROM jobs_list;
            INSERT INTO jobs_sweep (options) VALUES (NULL);
            SELECT promoted FROM jobs_swept;
            """,
        ) == ["scheduled", "0"]

    def test_many_at_once(self, database: Any) -> None:
        jobs = json.dumps([{"name": "welcome", "args": args} for args in ARGS])
        answers = sqlite3_shell(
            database,
            f"""
            INSERT INTO jobs_define (name) VALUES ('welcome');
            BEGIN IMMEDIATE;
            INSERT INTO jobs_enqueue_many (jobs) VALUES ('{jobs}');
            SELECT position, inserted FROM jobs_enqueued ORDER BY position;
            INSERT INTO jobs_claim (worker, token, options) VALUES ('a shell', '{TOKEN}', '{{"max_jobs": 3}}');
            INSERT INTO jobs_settle_many (outcomes)
                SELECT json_group_array(json_object('id', id, 'token', token, 'outcome', 'done'))
                FROM jobs_claimed WHERE token = '{TOKEN}';
            SELECT accepted FROM jobs_settled;
            COMMIT;
            """,
        )
        assert answers == ["0|1", "1|1", "2|1", "1", "1", "1"]
        payloads = sqlite3_shell(database, "SELECT args FROM jobs_payloads ORDER BY id;")
        assert payloads[0] == ARGS[0]
        assert list(map(json.loads, payloads[1:])) == ARGS[1:]

    def test_a_refusal_says_what_to_do(self, database: Any) -> None:
        with pytest.raises(RuntimeError, match=r"PJ001 .*; "):
            sqlite3_shell(database, "INSERT INTO jobs_enqueue (name) VALUES ('wrok');")

    def test_an_enqueue_is_part_of_the_transaction(self, database: Any) -> None:
        sqlite3_shell(
            database,
            """
            INSERT INTO jobs_define (name) VALUES ('welcome');
            BEGIN IMMEDIATE;
            INSERT INTO jobs_enqueue (name) VALUES ('welcome');
            ROLLBACK;
            """,
        )
        assert sqlite3_shell(database, "SELECT id FROM jobs_list;") == []
