from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.running import Pyjobs, Ran
from pyjobs.cli.application import APP_VARIABLE
from pyjobs.cli.main import main
from pyjobs.config import DATABASE_VARIABLE

APPLICATION = """
import asyncio
import os

from pyjobs import Jobs, Permanent

jobs = Jobs(os.environ.get("SHOP_DATABASE_URL"), name="shop")


@jobs.job(queue="mail")
def welcome(user_id: int) -> None: ...


@jobs.job
async def rebuild(tenant: str) -> None:
    await asyncio.sleep(0)


@jobs.job(max_attempts=1)
def explode(secret: str = "") -> None:
    raise RuntimeError("boom")


@jobs.job
def bury() -> None:
    raise Permanent("gone for good")
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in, with nothing said by the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)
    monkeypatch.delenv(APP_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def pyjobs() -> Pyjobs:
    """The command, in this process."""

    def run(*args: object, stdin: str | None = None) -> Ran:
        result = CliRunner().invoke(main, [str(each) for each in args], input=stdin)
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def shop(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application, as ``--app`` takes it."""
    elsewhere.joinpath("shop.py").write_text(APPLICATION)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return "shop:jobs"
