"""What a user installs: built as for a release, installed into an environment of its own, with no checkout in sight."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from pyjobs.install import ROUTINES
from servers.databases import Database

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from nothing but the source distribution."""
    folder = tmp_path_factory.mktemp("build")
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder, cwd=ROOT)
    [archive] = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    source = folder / archive.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=source)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with the wheel installed; what it depends on is lent by this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel),
        cwd=folder,
    )
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def test_the_wheel_holds_every_routine_and_migration(wheel: Path) -> None:
    held = {name.removeprefix("pyjobs/") for name in zipfile.ZipFile(wheel).namelist()}

    for folder in ("sql", "migrations"):
        files = {str(file.relative_to(ROOT)) for file in ROOT.glob(f"{folder}/*/*.*")}
        assert len(files) > len(ROUTINES) * (folder == "sql")
        assert files <= held


def test_pyjobs_migrate(environment: Path, empty_database: Database, tmp_path: Path) -> None:
    def migrate(*options: str) -> str:
        return run(environment / "pyjobs", "migrate", "--database", empty_database.url, *options, cwd=tmp_path)

    assert "pyjobs is not installed" in migrate("--list")
    first, again = json.loads(migrate("--json")), json.loads(migrate("--json"))
    assert first["changed"][-1].startswith("pyjobs-routines-")
    assert again == {"changed": [], "version": first["version"]}
    assert "up to date" in migrate("--list")
    assert migrate("--rollback").startswith("taken off")


def test_yoyo(environment: Path, empty_database: Database, tmp_path: Path) -> None:
    def yoyo(command: str, *options: str) -> None:
        url = empty_database.url.replace("postgresql://", "postgresql+psycopg://")
        source = f"package:pyjobs:migrations/{empty_database.dialect}"
        run(environment / "python", "-m", "yoyo", command, "--batch", *options, "--database", url, source, cwd=tmp_path)

    def current() -> bool:
        listed = run(
            *(environment / "pyjobs", "migrate", "--list", "--json", "--database", empty_database.url), cwd=tmp_path
        )
        return bool(json.loads(listed)["current"])

    yoyo("apply")
    assert current()
    yoyo("apply")
    assert current()
    yoyo("rollback", "--all")
    assert not current()
