"""What a worker refuses to start with."""

from __future__ import annotations

from typing import Any

import pytest

from pyjobs.app import Jobs
from pyjobs.errors import ContractMismatch, InvalidConfiguration, StoreUnavailable
from pyjobs.worker import Worker
from servers.databases import Database


@pytest.fixture
def application() -> Jobs:
    jobs = Jobs("sqlite:////nowhere/at/all.db", name="tests")
    jobs.define("work", lambda: None, timeout="1m")
    return jobs


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"prefetch": -1}, "prefetch"),
        ({"lease": "5ms"}, "lease"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"queues": []}, "queues"),
        ({"unknown": "ignore"}, "unknown"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(application: Jobs, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfiguration, match=named) as caught:
        Worker(application, **settings)
    assert caught.value.hint


def test_the_lease_must_be_longer_than_every_timeout(application: Jobs) -> None:
    with pytest.raises(InvalidConfiguration, match=r"lease of 1m.*'work', 1m"):
        Worker(application, lease="1m").run()


def test_an_application_without_jobs_is_a_mistake() -> None:
    with pytest.raises(InvalidConfiguration, match="no jobs"):
        Worker(Jobs("sqlite:////nowhere/at/all.db", name="tests")).run()


def test_a_database_that_cannot_be_reached_is_said_at_the_start(application: Jobs) -> None:
    with pytest.raises(StoreUnavailable):
        Worker(application).run()


def test_a_database_without_the_contract_is_said_at_the_start(empty_database: Database) -> None:
    jobs = Jobs(empty_database.url, name="tests")
    jobs.define("work", lambda: None)
    with pytest.raises(ContractMismatch):
        Worker(jobs).run()
