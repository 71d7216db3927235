"""``pyjobs sync``: what it says it changed, and that it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.running import Pyjobs
from cli.test_failing import assert_told
from pyjobs import Backoff, Concurrency, Jobs
from pyjobs.store.base import Store
from servers.databases import Database


def declare(folder: Path, *lines: str) -> None:
    """Add to what the application declares."""
    with folder.joinpath("shop.py").open("a") as file:
        file.write("\n".join(["", *lines, ""]))


def changes(pyjobs: Pyjobs, shop: str, database: Database) -> list[tuple[str, str, str]]:
    ran = pyjobs("sync", "--app", shop, "--database", database.url, "--json")
    assert ran.status == 0, ran.err
    return [(each["kind"], each["name"], each["change"]) for each in ran.json["changes"]]


def test_once_all_is_new_and_then_nothing_changes(pyjobs: Pyjobs, shop: str, database: Database, store: Store) -> None:
    names = ["bury", "explode", "rebuild", "welcome"]
    assert changes(pyjobs, shop, database) == [("job", name, "new") for name in names]
    assert [each.name for each in store.definitions()] == names
    ran = pyjobs("sync", "--app", shop, "--database", database.url)
    assert (ran.status, ran.out) == (0, "nothing to change: 4 jobs and 0 schedules declared\n")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({"queue": "post"}, "queue: post → mail"),
        ({"priority": 7}, "priority: 7 → 0"),
        ({"timeout": "90s"}, "timeout_ms: 90s → none"),
        ({"max_attempts": 2}, "max_attempts: 2 → 5"),
        ({"backoff": Backoff(base="1s", jitter=0.5)}, "backoff.base_ms: 1s → 5s, backoff.jitter: 0.5 → 0.15"),
        ({"keep_done": "2d"}, "keep_done_ms: 2d → 1d"),
        ({"keep_dead": "1w"}, "keep_dead_ms: 1w → none"),
        (
            {"concurrency": Concurrency(3, key="user_id")},
            "concurrency.limit: 3 → none, concurrency.group: welcome → none, concurrency.key: user_id → none",
        ),
    ],
)
def test_what_is_changed_is_said(
    pyjobs: Pyjobs, shop: str, database: Database, before: dict[str, Any], said: str
) -> None:
    changes(pyjobs, shop, database)
    other = Jobs(database.url)
    other.define("welcome", lambda user_id: None, **({"queue": "mail"} | before))
    other.sync()
    other.close()
    out = pyjobs("sync", "--app", shop, "--database", database.url).out
    assert out.splitlines()[1:] == [f"job   welcome  changed  {said}"]
    assert changes(pyjobs, shop, database) == []


def test_its_own_schedules_come_change_and_go(
    pyjobs: Pyjobs, shop: str, elsewhere: Path, database: Database, store: Store
) -> None:
    earlier = Jobs(database.url, name="shop")
    office = Jobs(database.url, name="office")
    for jobs in (earlier, office):
        jobs.define("bury", lambda: None)
        jobs.recur(f"of the {jobs.name}", job="bury", every="1h")
        if jobs is office:
            jobs.recur("both", job="bury", every="1h")
        jobs.sync()
        jobs.close()

    declare(
        elsewhere, 'jobs.recur("both", job="bury", cron="0 3 * * *")', 'jobs.recur("fresh", job="bury", every="1h")'
    )
    ran = pyjobs("sync", "--app", shop, "--database", database.url, "--json")
    assert {*ran.json} == {"application", "jobs", "schedules", "changes"}
    assert (ran.json["application"], ran.json["jobs"], ran.json["schedules"]) == ("shop", 4, 2)
    both, fresh, old = ran.json["changes"][-3:]
    assert both == {
        "kind": "schedule", "name": "both", "change": "changed",
        "fields": {"cron": [None, "0 3 * * *"], "every_ms": [3_600_000, None], "source": ["office", "shop"]},
    }  # fmt: skip
    assert (fresh["name"], fresh["change"]) == ("fresh", "new")
    assert (old["name"], old["change"]) == ("of the shop", "gone")
    assert {each.name for each in store.schedules()} == {"both", "fresh", "of the office"}


def test_a_schedule_of_a_job_that_nobody_defines(
    pyjobs: Pyjobs, shop: str, elsewhere: Path, database: Database, store: Store
) -> None:
    declare(elsewhere, 'jobs.recur("hourly", job="burry", every="1h")')
    ran = pyjobs("sync", "--app", shop, "--database", database.url)
    assert_told(ran, 1, "PYJOBS_UNKNOWN_JOB", "hourly", "burry")
    assert store.definitions() == []


def test_it_needs_an_application(pyjobs: Pyjobs, database: Database) -> None:
    assert_told(pyjobs("sync", "--database", database.url), 1, "PYJOBS_INVALID_CONFIGURATION", "no application")
