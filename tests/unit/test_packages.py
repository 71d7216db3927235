"""Jobs that packages ship: distributions as an installer leaves them, found by their entry points."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyjobs import Jobs
from pyjobs.cli.main import main
from pyjobs.errors import InvalidConfiguration
from pyjobs.store.base import Store
from pyjobs.worker import Worker
from servers.databases import Database

BILLING = """
def define(jobs):
    @jobs.schedule(every="1h", name="billing")
    @jobs.job("billing/charge", queue="billing")
    def charge(order):
        jobs.enqueue("billing/receipt", {"order": order})

    @jobs.job("billing/receipt", queue="billing")
    def receipt(order): ...
"""

Install = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package of one module, with what it says in ``entry_points.txt``."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, source: str, points: str) -> None:
        tmp_path.joinpath(f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        information.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        information.joinpath("entry_points.txt").write_text(f"[pyjobs.jobs]\n{points}\n")

    return install


@pytest.fixture
def billing(installed: Install) -> None:
    installed("billing", BILLING, "billing = billing:define")


@pytest.mark.usefixtures("billing")
class TestShipped:
    def test_a_worker_performs_them(self, database: Database) -> None:
        jobs = Jobs(database.url, name="shop")
        jobs.sync()
        id = jobs.enqueue("billing/charge", {"order": 1})
        elsewhere = Jobs(database.url, name="shop")  # of another process, where nothing is loaded yet
        assert Worker(elsewhere).run(once=True).done == 2
        assert elsewhere.get(id).state == "done"  # type: ignore[union-attr]
        assert [job.name for job in elsewhere.list(queue="billing")] == ["billing/receipt", "billing/charge"]
        jobs.close()
        elsewhere.close()

    def test_sync_puts_them_into_the_database(self, store: Store) -> None:
        Jobs(name="shop").sync(store)
        assert {each.name for each in store.definitions()} == {"billing/charge", "billing/receipt"}
        assert [(each.name, each.source) for each in store.schedules()] == [("billing", "shop")]

    @pytest.mark.parametrize("first", ["application", "package"])
    def test_the_applications_own_of_a_name_wins(self, first: str) -> None:
        jobs = Jobs()
        if first == "package":
            jobs.load_packages()
        own = jobs.define("billing/receipt", lambda order: None, queue="own")
        jobs.recur("billing", every="2h", job=own)
        jobs.load_packages()
        assert jobs.definitions["billing/receipt"] is own
        assert jobs.definitions["billing/charge"].queue == "billing"
        assert jobs.schedules["billing"].every_ms == 7_200_000
        assert len(jobs.definitions) == 2

    def test_the_application_still_defines_a_name_once(self) -> None:
        jobs = Jobs()
        jobs.load_packages()
        jobs.define("billing/receipt", lambda: None)
        with pytest.raises(InvalidConfiguration, match="defined twice"):
            jobs.define("billing/receipt", lambda: None)

    def test_loading_again_changes_nothing(self) -> None:
        jobs = Jobs()
        jobs.load_packages()
        charge = jobs.definitions["billing/charge"]
        jobs.load_packages()
        assert jobs.definitions["billing/charge"] is charge

    def test_the_command_line_knows_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database
    ) -> None:
        tmp_path.joinpath("packaged.py").write_text(f"import pyjobs\njobs = pyjobs.Jobs({database.url!r})\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.delitem(sys.modules, "packaged", raising=False)

        def run(*command: str) -> str:
            return CliRunner().invoke(main, [*command, "--app", "packaged"], catch_exceptions=False).output

        assert "billing/charge" in run("sync")
        assert run("perform", "billing/receipt", '{"order": 1}') == ""
        assert "nothing to change: 2 jobs and 1 schedule declared" in run("sync")


@pytest.mark.parametrize(
    ("source", "point", "told"),
    [
        ("import nowhere_to_be_found", "ill = ill:define", "No module named 'nowhere_to_be_found'"),
        ("", "ill = ill:define", "AttributeError"),
        ("define = 7", "ill = ill:define", "names no function"),
        ("def define(jobs): raise RuntimeError('not today')", "ill = ill:define", "RuntimeError: not today"),
        ("def define(jobs): jobs.define('billing/charge', print)", "ill = ill:define", "defined twice"),
    ],
)
def test_a_broken_one_is_named_and_nothing_is_changed(
    installed: Install, billing: None, store: Store, source: str, point: str, told: str
) -> None:
    jobs = Jobs(name="shop")
    jobs.load_packages()
    jobs.sync(store)
    installed("ill", source, point)
    again = Jobs(name="shop")
    for attempt in (again.load_packages, lambda: again.sync(store), lambda: Worker(again).run(once=True)):
        with pytest.raises(InvalidConfiguration) as refusal:
            attempt()
        assert "'ill' of ill, ill:define, in the group pyjobs.jobs" in refusal.value.message
        assert told in refusal.value.message
        assert refusal.value.hint
    assert not again.definitions
    assert not again.schedules
    assert [each.name for each in store.schedules()] == ["billing"]


def test_what_another_thread_declares_meanwhile_is_the_applications_own() -> None:
    jobs = Jobs()

    def declare(jobs: Jobs) -> None:
        thread = threading.Thread(target=lambda: jobs.define("own", lambda: None))
        thread.start()
        thread.join()
        raise LookupError

    with pytest.raises(LookupError):
        jobs.include(declare)
    assert [*jobs.definitions] == ["own"]
