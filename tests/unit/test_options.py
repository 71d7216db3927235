from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from pyjobs.errors import InvalidArguments, InvalidOption
from pyjobs.options import contract_filter, contract_options

ID = uuid4()


def test_options_become_those_of_the_contract() -> None:
    assert contract_options(
        {
            "delay": "5m",
            "timeout": timedelta(seconds=30),
            "queue": "mail",
            "priority": -1,
            "max_attempts": 3,
            "unique_key": "k",
            "unique_for": "ever",
            "batch_id": ID,
            "meta": {"trace": "t"},
        }
    ) == {
        "delay_ms": 300_000,
        "timeout_ms": 30_000,
        "queue": "mail",
        "priority": -1,
        "max_attempts": 3,
        "unique_key": "k",
        "unique_for": "ever",
        "batch_id": str(ID),
        "meta": {"trace": "t"},
    }


def test_a_moment_keeps_its_offset() -> None:
    at = datetime(2026, 7, 1, 9, tzinfo=timezone(timedelta(hours=2)))
    assert contract_options({"at": at}) == {"run_at": "2026-07-01T09:00:00+02:00"}


def test_none_counts_as_left_out_but_for_the_tenant() -> None:
    assert contract_options({"at": None, "queue": None, "tenant": None}) == {"tenant": None}
    assert contract_options({}) == {}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dealy": "5m"}, "dealy"),
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"timeout": True}, "timeout"),
        ({"at": datetime(2026, 1, 1)}, "at"),
        ({"at": "2026-01-01T00:00:00Z"}, "at"),
        ({"at": datetime.now(UTC), "delay": 1}, "at and delay"),
    ],
)
def test_what_means_nothing_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named) as refusal:
        contract_options(options)
    assert refusal.value.hint


def test_meta_must_survive_json_too() -> None:
    with pytest.raises(InvalidArguments, match=r"meta\.at"):
        contract_options({"meta": {"at": datetime.now(UTC)}})


def test_a_filter_becomes_that_of_the_contract() -> None:
    before = datetime(2026, 1, 1, tzinfo=UTC)
    filter = {"ids": [ID], "batch_id": ID, "state": "dead", "queue": None, "before": before, "tenant": None}
    assert contract_filter(filter) == {
        "ids": [str(ID)],
        "batch_id": str(ID),
        "state": "dead",
        "tenant": None,
        "before": "2026-01-01T00:00:00+00:00",
    }


@pytest.mark.parametrize("filter", [{"sate": "dead"}, {"before": datetime(2026, 1, 1)}])
def test_an_unknown_filter_is_refused_by_name(filter: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(filter))):
        contract_filter(filter)


def test_an_unknown_state_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="no state 'deaf'"):
        contract_filter({"state": "deaf"})
