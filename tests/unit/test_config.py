from __future__ import annotations

from pathlib import Path

import pytest

from pyjobs.config import DATABASE_VARIABLE, Settings, database_url, read_settings, redacted
from pyjobs.errors import InvalidConfiguration


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> None:
    folder.joinpath("pyproject.toml").write_text(text, encoding="utf-8")


def test_the_argument_wins_over_the_environment_and_that_over_the_file(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(elsewhere, '[tool.pyjobs]\ndatabase = "sqlite:///file.db"')
    assert database_url() == "sqlite:///file.db"
    monkeypatch.setenv(DATABASE_VARIABLE, "sqlite:///environment.db")
    assert database_url() == "sqlite:///environment.db"
    assert database_url("sqlite:///argument.db") == "sqlite:///argument.db"


def test_naming_no_database_is_refused_with_the_ways_to_name_one() -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        database_url()
    assert DATABASE_VARIABLE in refusal.value.hint
    assert "pyproject.toml" in refusal.value.hint


def test_the_nearest_file_counts(elsewhere: Path) -> None:
    inner = elsewhere / "a" / "b"
    inner.mkdir(parents=True)
    write(elsewhere, '[tool.pyjobs]\napp = "shop:jobs"')
    assert read_settings(inner) == Settings(app="shop:jobs")
    write(inner, "[project]\n")
    assert read_settings(inner) == Settings()


@pytest.mark.parametrize(
    "text", ["[tool.pyjobs]\ndatabas = 'x'", "[tool.pyjobs]\ndatabase = 5", "[tool", "[tool]\npyjobs = 5", "tool = 1"]
)
def test_a_file_that_says_something_else_is_refused(elsewhere: Path, text: str) -> None:
    write(elsewhere, text)
    with pytest.raises(InvalidConfiguration, match=r"pyproject\.toml"):
        read_settings()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop:secret@db:5432/shop?schema=a", "postgresql://shop:***@db:5432/shop?schema=a"),
        ("postgresql://shop:se@cret@db/shop", "postgresql://shop:***@db/shop"),
        ("postgresql://shop@db/shop", "postgresql://shop@db/shop"),
        ("postgresql:///shop", "postgresql:///shop"),
        ("postgresql:///shop?user=a&password=secret", "postgresql:///shop?user=a&password=***"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redacted(url) == shown
