"""``jobs`` is the fixture that comes with pyjobs; pyproject.toml tells it which application."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from shop import app

from pyjobs.testing import TestJobs


@pytest.fixture
def client(jobs: TestJobs) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def test_an_order_is_shipped(client: TestClient, jobs: TestJobs, capsys: pytest.CaptureFixture[str]) -> None:
    order = {"id": str(uuid4()), "item": "teapot"}
    accepted = client.post("/orders", json=order)
    assert accepted.status_code == 202
    job = accepted.json()["job"]
    assert client.get(f"/jobs/{job}").json() == {"state": "pending"}
    jobs.drain()
    assert "shipped teapot" in capsys.readouterr().out
    assert client.get(f"/jobs/{job}").json() == {"state": "done"}
    assert client.post("/orders", json=order).json() == {"job": job}
    assert jobs.drain() == 0


def test_nobody_ships_nonsense(client: TestClient, jobs: TestJobs) -> None:
    assert client.post("/orders", json={"item": "teapot"}).status_code == 422
    assert client.get(f"/jobs/{uuid4()}").status_code == 404
    jobs.assert_nothing_enqueued()
