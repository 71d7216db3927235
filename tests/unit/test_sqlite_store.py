"""What the SQLite store does beside the contract: URLs, the caller's connections, forks, threads, sleeping, waking."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pyjobs.errors import ContractMismatch, InvalidConfiguration, InvalidOption, PyjobsError, StoreUnavailable
from pyjobs.records import ClaimRequest, Enqueued, NewJob
from pyjobs.store import open_store
from pyjobs.store.base import Store
from pyjobs.store.sqlite_line import Line, Place

pytestmark = pytest.mark.databases("sqlite")


def request(max_jobs: int = 10, **how: Any) -> ClaimRequest:
    return ClaimRequest("worker-1", uuid4(), max_jobs=max_jobs, **how)


@pytest.fixture
def file(database: Any) -> str:
    return str(database.url.removeprefix("sqlite:///"))


@pytest.fixture
def defined(store: Store) -> Store:
    store.define("work", {})
    return store


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "sqlite://",
            "sqlite:///",
            "sqlite://file.db",
            "sqlite:file.db",
            "sqlite:////tmp/",
            "sqlite:///file.db?synchronous=off",
            "sqlite:///file.db?mode=ro",
        ],
    )
    def test_one_that_names_no_file_or_a_strange_option_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidConfiguration) as caught:
            open_store(url)

        assert caught.value.hint

    @pytest.mark.parametrize(
        ("options", "lasting", "waits"),
        [
            ("", True, 2),
            ("", False, 1),
            ("?synchronous=full", True, 2),
            ("?synchronous=NORMAL", True, 1),
            ("?synchronous=normal", False, 1),
        ],
    )
    def test_it_says_whether_what_must_last_waits_for_the_disk(
        self, database: Any, options: str, lasting: bool, waits: int
    ) -> None:
        line = Line(Place(database.url + options))
        for _ in range(2):
            with line.connection(lasting=lasting) as connection:
                assert connection.execute("PRAGMA synchronous").fetchone() == (waits,)
        line.close()

    def test_a_relative_one_stays_where_it_was(
        self, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.copyfile(file, tmp_path / "my jobs ü%20.db")
        monkeypatch.chdir(tmp_path)
        store = open_store("sqlite:///my jobs ü%20.db")
        monkeypatch.chdir("/")

        assert store.contract() == 1
        store.close()


class TestWhatCannotBeOpened:
    @pytest.mark.parametrize(
        ("name", "content", "error"),
        [
            ("nowhere/jobs.db", None, StoreUnavailable),
            ("jobs.db", None, ContractMismatch),
            ("jobs.db", "", ContractMismatch),
            ("jobs.db", "this is no database, but long enough to be taken for one" * 20, StoreUnavailable),
        ],
    )
    def test_it_is_told_plainly_and_nothing_is_created(
        self, tmp_path: Path, name: str, content: str | None, error: type[PyjobsError]
    ) -> None:
        if content is not None:
            (tmp_path / name).write_text(content)
        before = sorted(tmp_path.iterdir())
        store = open_store(f"sqlite:///{tmp_path / name}")

        with pytest.raises(error) as caught:
            store.contract()
        assert caught.value.hint
        assert not store.wait(0)
        store.close()
        assert sorted(tmp_path.iterdir()) == before

    def test_a_folder_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable):
            open_store(f"sqlite:///{tmp_path}").contract()

    def test_it_can_be_there_later(self, tmp_path: Path, file: str) -> None:
        store = open_store(f"sqlite:///{tmp_path}/jobs.db")
        with pytest.raises(ContractMismatch):
            store.contract()
        shutil.copyfile(file, tmp_path / "jobs.db")

        assert store.contract() == 1
        store.close()


class TestTheCallersConnection:
    @pytest.fixture
    def connection(self, file: str) -> Iterator[sqlite3.Connection]:
        """As applications open it: Python begins a transaction before the first write."""
        connection = sqlite3.connect(file)
        yield connection
        connection.close()

    def test_nothing_is_committed_before_the_caller_does(self, defined: Store, connection: sqlite3.Connection) -> None:
        joined = defined.join(connection)
        one = joined.enqueue("work", "{}")
        many = joined.enqueue_many([NewJob("work")] * 3)
        batch = joined.seal_batch(joined.open_batch({}))
        assert (defined.count(), joined.count(), joined.batch(batch.id)) == (0, 4, batch)

        connection.commit()
        assert {job.id for job in defined.jobs()} == {one, *(job.id for job in many)}

    @pytest.mark.parametrize("first", ["enqueue", "enqueue_many"])
    def test_it_is_undone_with_the_caller(self, defined: Store, connection: sqlite3.Connection, first: str) -> None:
        joined = defined.join(connection)
        joined.enqueue("work", "{}") if first == "enqueue" else joined.enqueue_many([NewJob("work")])
        connection.rollback()

        assert defined.count() == 0

    def test_a_refusal_leaves_the_rest_of_the_transaction(self, defined: Store, connection: sqlite3.Connection) -> None:
        joined = defined.join(connection)
        joined.enqueue("work", "{}")
        with pytest.raises(InvalidOption, match=r"jobs\[1\]: .*prioritty"):
            joined.enqueue_many([NewJob("work"), NewJob("work", options={"prioritty": 1})])
        connection.commit()

        assert defined.count() == 1

    def test_by_itself_each_call_is_whole(self, defined: Store, file: str) -> None:
        connection = sqlite3.connect(file, isolation_level=None)
        answers = defined.join(connection).enqueue_many([NewJob("work")] * 2)
        connection.close()

        assert {answer.id for answer in answers} == {job.id for job in defined.jobs()}

    def test_its_own_row_factory_is_left_alone(self, defined: Store, connection: sqlite3.Connection) -> None:
        connection.row_factory = lambda cursor, row: {"row": row}
        joined = defined.join(connection.cursor())

        assert joined.enqueue_many([NewJob("work", id=id) for id in [uuid4()] * 2])[1].inserted is False
        assert len(joined.jobs()) == 1
        assert "row" in connection.execute("SELECT 1").fetchone()

    def test_another_kind_of_connection_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidConfiguration, match="object"):
            store.join(object())

    def test_one_that_read_before_somebody_wrote_is_told_what_to_do(
        self, defined: Store, connection: sqlite3.Connection
    ) -> None:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM jobs").fetchone()
        defined.enqueue("work", "{}")

        with pytest.raises(StoreUnavailable) as caught:
            defined.join(connection).enqueue("work", "{}")
        assert "BEGIN IMMEDIATE" in caught.value.hint


class TestWhoeverWrites:
    def test_is_waited_for(self, defined: Store, file: str) -> None:
        writer = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        writer.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, writer.execute, ["COMMIT"])
        timer.start()

        assert defined.count({"id": str(defined.enqueue("work", "{}"))}) == 1
        timer.join()
        writer.close()

    def test_threads_take_turns(self, defined: Store) -> None:
        def enqueue() -> None:
            for _ in range(25):
                defined.enqueue("work", "{}")
                assert len(defined.claim(request(1))) == 1

        threads = [threading.Thread(target=enqueue) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (defined.count({"state": "running"}), defined.count()) == (200, 200)


class TestForks:
    def test_what_a_child_commits_outlives_its_parent(self, database: Any, tmp_path: Path) -> None:
        """The parent is gone first, and would clear away the log that an inherited connection writes into."""
        program = """
import os, sys, time
from pyjobs.store import open_store
store = open_store(sys.argv[1])
store.define("work", {})
store.enqueue("work", "0")
store.wait(0)
parent = os.getpid()
if os.fork():
    store.enqueue("work", "1")
    store.close() if sys.argv[2] == "closes" else None
else:
    store.enqueue("work", "2")
    while os.getppid() == parent:
        time.sleep(0.01)
    store.enqueue("work", "3")
os._exit(0)
"""
        for how in ("closes", "is killed"):
            subprocess.run([sys.executable, "-c", program, database.url, how], check=True, timeout=30)
        deadline = time.monotonic() + 10
        store = open_store(database.url)
        while store.count() < 8 and time.monotonic() < deadline:
            store.wait(0.1)

        assert sorted(job.args for job in store.claim(request())) == sorted("0123" * 2)
        store.close()

    def test_one_that_happens_during_a_call_waits_for_it(self, defined: Store) -> None:
        """So that no child is born while a lock is held that nobody there would ever release."""
        stop = threading.Event()

        def enqueue() -> None:
            while not stop.is_set():
                defined.enqueue_many([NewJob("work")] * 50)

        thread = threading.Thread(target=enqueue)
        thread.start()
        try:
            for _ in range(5):
                child = os.fork()
                if not child:
                    os._exit(0 if defined.count() >= 0 and defined.enqueue("work", "{}") else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            thread.join()


class TestSleeping:
    def test_a_commit_elsewhere_wakes(self, defined: Store, database: Any) -> None:
        defined.wait(0)
        other = open_store(database.url)
        timer = threading.Timer(0.1, other.enqueue, ["work", "{}"])
        timer.start()
        start = time.monotonic()

        assert defined.wait(10)
        assert time.monotonic() - start < 5
        timer.join()
        other.close()

    def test_what_came_before_the_wait_is_not_slept_through(self, defined: Store, database: Any) -> None:
        assert defined.claim(request()) == []
        assert not defined.wait(0)
        other = open_store(database.url)
        other.enqueue("work", "{}")
        other.close()

        assert defined.wait(10)

    def test_a_ring_wakes_and_is_not_lost(self, defined: Store) -> None:
        defined.wake()
        assert defined.wait(10)

        threading.Timer(0.1, defined.wake).start()
        assert defined.wait(10)
        assert not defined.wait(0.05)

    def test_a_commit_that_brings_no_work_does_not_wake(self, defined: Store, database: Any) -> None:
        other = open_store(database.url)
        timer = threading.Timer(0.05, other.enqueue, ["work", "{}", {"delay_ms": 60_000}])
        timer.start()

        assert not defined.wait(0.3)
        timer.join()
        assert other.count() == 1
        other.close()

    def test_a_claim_that_finds_nothing_writes_nothing(self, defined: Store, file: str) -> None:
        """Or idle workers would wake one another for ever."""
        watcher = sqlite3.connect(file)
        before = watcher.execute("PRAGMA data_version").fetchone()
        for _ in range(3):
            assert defined.claim(request(names=("work", "other"))) == []

        assert watcher.execute("PRAGMA data_version").fetchone() == before
        watcher.close()


class TestTurns:
    def test_buckets_are_served_one_after_the_other(self, store: Store) -> None:
        store.define("work", {"concurrency": {"limit": 9, "key": "k"}})
        store.enqueue_many([NewJob("work", json.dumps({"k": k})) for k in "aabbcc" * 3])

        served = [json.loads(store.claim(request(1))[0].args)["k"] for _ in range(9)]
        assert served == ["a", "b", "c"] * 3

        served = [json.loads(job.args)["k"] for job in store.claim(request(2)) + store.claim(request(2))]
        assert sorted(served[:2]) == ["a", "b"]
        assert sorted(served[2:]) == ["a", "c"]


class TestTheShell:
    """Everything can be done with nothing but the sqlite3 program."""

    def sqlite(self, file: str, *statements: str) -> list[str]:
        program = ["sqlite3", "-bail", file, *statements]
        return subprocess.run(program, check=True, capture_output=True, text=True).stdout.splitlines()

    @pytest.mark.sql
    @pytest.mark.skipif(not shutil.which("sqlite3"), reason="the sqlite3 program is not installed")
    def test_define_enqueue_claim_settle_and_look(self, store: Store, file: str) -> None:
        token = str(uuid4())
        self.sqlite(file, """INSERT INTO jobs_define (name, options) VALUES ('work', '{"max_attempts": 3}')""")
        [id] = self.sqlite(
            file, "INSERT INTO jobs_enqueue (name) VALUES ('work') RETURNING (SELECT id FROM jobs_enqueued)"
        )
        [claimed] = self.sqlite(
            file,
            f"INSERT INTO jobs_claim (worker, token) VALUES ('shell', '{token}')"
            f" RETURNING (SELECT id || ' ' || args FROM jobs_claimed WHERE token = '{token}')",
        )
        assert claimed == f"{id} {{}}"
        assert self.sqlite(
            file,
            "BEGIN",
            f"INSERT INTO jobs_settle (id, token, outcome) VALUES ('{id}', '{token}', 'done')",
            "SELECT accepted, state FROM jobs_settled",
            "COMMIT",
        ) == ["1|done"]
        assert self.sqlite(file, "SELECT queue, state, count FROM jobs_status") == ["default|done|1"]

    @pytest.mark.sql
    def test_elements_may_have_their_args_as_json_too(self, defined: Store, file: str) -> None:
        connection = sqlite3.connect(file, isolation_level=None)
        written = ['{"big" : 1e22, "s":"\\ud800"}', '"[1 , 2]"', "null"]
        jobs = ", ".join(f'{{"name": "work", "args": {args}}}' for args in written)
        connection.execute("INSERT INTO jobs_enqueue_many (jobs) VALUES (?)", (f"[{jobs}]",))
        connection.close()

        assert [job.args for job in defined.claim(request())] == ['{"big":1e22,"s":"\\ud800"}', "[1 , 2]", "{}"]


class TestWhatIsNoText:
    @pytest.mark.parametrize("name", ["a\0b", "\ud800", "é\udc00"])
    def test_it_is_refused_before_it_is_sent(self, defined: Store, name: str) -> None:
        with pytest.raises(InvalidOption, match="character"):
            defined.enqueue(name, "{}")
        with pytest.raises(InvalidOption, match="character"):
            defined.claim(ClaimRequest(name, uuid4()))

    @pytest.mark.sql
    @pytest.mark.parametrize(
        "call",
        [
            "jobs_define (name) VALUES (?)",
            "jobs_enqueue (name) VALUES (?)",
            "jobs_claim (token, worker) VALUES ('6f9f5d0e-0000-4000-8000-000000000000', ?)",
            "jobs_heartbeat (worker) VALUES (?)",
            "jobs_put_schedule (name) VALUES (?)",
            "jobs_pause_queue (queue) VALUES (?)",
            "jobs_resume_queue (queue) VALUES (?)",
        ],
    )
    def test_the_routines_refuse_a_nul_too_which_ends_what_sqlite_counts(self, sql: Any, call: str) -> None:
        with pytest.raises(sqlite3.IntegrityError, match="PJ010"):
            sql(f"INSERT INTO {call}", "a\0" + 500 * "b")

    @pytest.mark.sql
    @pytest.mark.parametrize("options", [r'{"\u0070riority": "x"}', r'{"tenant": "a\u0000b"}', r'{"tenant": "\ud800"}'])
    def test_options_that_sqlite_would_not_read_as_they_are_written_are_refused(
        self, defined: Store, sql: Any, options: str
    ) -> None:
        with pytest.raises(sqlite3.IntegrityError, match="PJ003"):
            sql("INSERT INTO jobs_enqueue (name, options) VALUES ('work', ?)", options)

    def test_a_row_that_holds_some_stops_nobody(self, defined: Store, file: str) -> None:
        """Another language may have written it."""
        first = defined.enqueue("work", '"?"')
        second = defined.enqueue("work", "{}")
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("UPDATE jobs SET args = CAST(x'22ff22' AS TEXT) WHERE id = ?", (str(first),))
        connection.close()

        assert [job.args for job in defined.claim(request())] == ['"\ufffd"', "{}"]
        assert {job.id for job in defined.jobs()} == {first, second}

    def test_half_a_pair_costs_as_much_in_a_long_stack_as_in_a_short_one(self, defined: Store) -> None:
        """It is put right under the write lock. Bytes that only look like a half (of "." and "ڂ") are none."""
        id, request_ = defined.enqueue("work", "{}"), request()
        defined.claim(request_)
        stack = 50_000 * "\ud800a.ڂ\0\\u0000\ufffd😀"

        started = time.monotonic()
        defined.settle(id, request_.token, "failed", {"stack": stack})

        assert time.monotonic() - started < 20  # a second or so; going from character to character it would be an hour
        [failure] = defined.failures(id)
        assert failure.stack == stack.replace("\ud800", "\ufffd").replace("\0", "\ufffd")


def test_the_same_id_twice_in_one_call_goes_in_once(defined: Store) -> None:
    id = uuid4()

    assert defined.enqueue_many([NewJob("work", id=id)] * 2) == [Enqueued(id, True), Enqueued(id, False)]
