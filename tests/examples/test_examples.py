"""The applications of docs/examples: their own tests, and then as they are used, with a worker, on each database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from servers.databases import Database

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PYJOBS = Path(sys.executable).with_name("pyjobs")

ORDER_FROM_FASTAPI = """
from fastapi.testclient import TestClient
from shop import app
with TestClient(app) as client:
    answer = client.post("/orders", json={"id": "6f9f5d0e-4c1a-4c3f-9d5b-1f2e3d4c5b6a", "item": "teapot"})
    assert answer.status_code == 202, answer
"""

ORDER_FROM_DJANGO = """
import shop.worker
from django.test import Client
answer = Client(headers={"host": "localhost"}).post("/orders", {"customer": "ada@example.org"})
assert answer.status_code == 201, answer
"""

SHIPPED = """
import shop.worker
from shop.models import Order
print([order.shipped for order in Order.objects.all()])
"""


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, so that nothing is left in the original."""
    folder = tmp_path / "example"
    ignored = shutil.ignore_patterns("__pycache__", "*.sqlite3*", "*.db*")
    return Path(shutil.copytree(EXAMPLES / request.param, folder, ignore=ignored))


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    ran = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("example", ["fastapi_shop"], indirect=True)
class TestFastapi:
    def test_its_own_tests(self, example: Path) -> None:
        assert "2 passed" in run(example, sys.executable, "-m", "pytest", "-q")

    def test_in_use(self, example: Path, database: Database) -> None:
        environment = {"PYJOBS_DATABASE_URL": database.url}
        run(example, sys.executable, "-c", ORDER_FROM_FASTAPI, **environment)
        told = run(example, PYJOBS, "worker", "--once", **environment)
        assert "shipped teapot of order 6f9f5d0e-4c1a-4c3f-9d5b-1f2e3d4c5b6a" in told
        assert "1 claimed: 1 done" in told


@pytest.mark.databases("sqlite", "postgresql")  # which the shop's settings know
@pytest.mark.parametrize("example", ["django_shop"], indirect=True)
class TestDjango:
    def test_its_own_tests(self, example: Path, empty_database: Database) -> None:
        told = run(example, sys.executable, "manage.py", "test", SHOP_DATABASE_URL=empty_database.url)
        assert "Ran 2 tests" in told

    def test_its_migrations_are_complete(self, example: Path) -> None:
        run(example, sys.executable, "manage.py", "makemigrations", "--check")

    def test_in_use(self, example: Path, empty_database: Database) -> None:
        environment = {
            "SHOP_DATABASE_URL": empty_database.url,
            "SHOP_EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
        }
        run(example, sys.executable, "manage.py", "migrate", **environment)
        run(example, PYJOBS, "migrate", "--app", "shop.worker:jobs", **environment)
        run(example, PYJOBS, "sync", "--app", "shop.worker:jobs", **environment)
        run(example, sys.executable, "-c", ORDER_FROM_DJANGO, **environment)
        assert "2 claimed: 2 done" in run(
            example, PYJOBS, "worker", "--once", "--app", "shop.worker:jobs", **environment
        )
        assert run(example, sys.executable, "-c", SHIPPED, **environment).strip() == "[True]"
        [sent] = example.joinpath("mail").iterdir()
        assert "Your order has the number 1." in sent.read_text()
