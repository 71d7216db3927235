"""The pytest plugin: the fixture ``jobs``, an application's jobs on a database that is thrown away after the test.

pytest loads it wherever pyjobs is installed, so it does nothing, and imports little, until a test asks for the fixture.
A fixture of that name in a conftest or a test module takes its place, as with any plugin.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyjobs.testing import TestJobs

_APPLICATION = "pyjobs_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_APPLICATION, "The application that the fixture jobs is about, such as shop.jobs:jobs.", default="")


@pytest.fixture(scope="session")
def _pyjobs_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with pyjobs installed, to be copied: that takes a millisecond."""
    from pyjobs.install import migrate

    file = tmp_path_factory.mktemp("pyjobs") / "jobs.db"
    migrate(f"sqlite:///{file}")
    return file


@pytest.fixture
def jobs(pytestconfig: pytest.Config, _pyjobs_installed: Path) -> Iterator[TestJobs]:
    """The application named by the ini option ``pyjobs_app``, or else a new one, as ``jobs.app``, on a database of the
    test's own; ``jobs.drain()``, ``jobs.assert_enqueued(…)``, ``jobs.clock``."""
    from pyjobs.app import Jobs
    from pyjobs.importing import imported
    from pyjobs.testing import TestJobs

    name = pytestconfig.getini(_APPLICATION)
    app = imported(name) if name else Jobs(name="tests")
    with TemporaryDirectory(prefix="pyjobs-") as folder:
        file = shutil.copyfile(_pyjobs_installed, Path(folder, "jobs.db"))
        with app.using(f"sqlite:///{file}"):
            app.sync()
            yield TestJobs(app)
