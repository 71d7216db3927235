"""``pyjobs perform``: a handler called from the shell, with no database in sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import Pyjobs
from cli.test_failing import assert_told

MORE = """
import datetime

from pyjobs import JobContext


@jobs.job
def add(a: int, b: int = 1) -> int:
    print("adding")
    return a + b


@jobs.job
async def later(of: datetime.datetime) -> datetime.datetime:
    return of


@jobs.job
def whose(*, context: JobContext) -> str | None:
    return context.tenant
"""


@pytest.fixture
def app(shop: str, elsewhere: Path) -> list[str]:
    with elsewhere.joinpath("shop.py").open("a") as file:
        file.write(MORE)
    return ["--app", shop]


@pytest.mark.parametrize("stdin", [None, '{"a": 1, "b": 2}'])
def test_it_prints_what_the_handler_prints_and_returns(pyjobs: Pyjobs, app: list[str], stdin: str | None) -> None:
    ran = pyjobs("perform", "add", "-" if stdin else '{"a": 1, "b": 2}', *app, stdin=stdin)
    assert (ran.status, ran.out, ran.err) == (0, "adding\n3\n", "")


def test_arguments_come_as_the_handler_says(pyjobs: Pyjobs, app: list[str]) -> None:
    ran = pyjobs("perform", "later", '{"of": "2026-01-31T09:00:00Z"}', *app)
    assert ran.out == "datetime.datetime(2026, 1, 31, 9, 0, tzinfo=datetime.timezone.utc)\n"


def test_nothing_returned_is_nothing_said(pyjobs: Pyjobs, app: list[str]) -> None:
    ran = pyjobs("perform", "welcome", '{"user_id": 1}', *app)
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_for_a_tenant(pyjobs: Pyjobs, app: list[str]) -> None:
    assert pyjobs("perform", "whose", "--tenant", "acme", *app).out == '"acme"\n'
    assert pyjobs("perform", "whose", *app).out == ""


@pytest.mark.parametrize(
    ("args", "code", "mention"),
    [
        (["explode"], "PYJOBS_FAILED", "RuntimeError: boom"),
        (["bury"], "PYJOBS_FAILED", "Permanent: gone for good"),
        (["ad"], "PYJOBS_UNKNOWN_JOB", "add"),
        (["add", '{"c": 1}'], "PYJOBS_INVALID_ARGUMENTS", "do not fit 'add'"),
        (["add", "[1, 2]"], "PYJOBS_INVALID_ARGUMENTS", "not a JSON object"),
        (["add", "{"], "PYJOBS_INVALID_ARGUMENTS", "write them as"),
    ],
)
def test_how_it_fails(pyjobs: Pyjobs, app: list[str], args: list[str], code: str, mention: str) -> None:
    assert_told(pyjobs("perform", *args, *app), 1, code, mention)


def test_debug_shows_where_the_handler_failed(pyjobs: Pyjobs, app: list[str]) -> None:
    ran = pyjobs("perform", "explode", "--debug", *app)
    assert "in explode" in ran.err
