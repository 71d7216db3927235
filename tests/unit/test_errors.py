"""The catalogue of errors: the classes, the SQL of every dialect and the page say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyjobs import errors
from pyjobs.errors import FROM_CONTRACT, PyjobsError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PyjobsError)]
DIALECTS = sorted(folder for folder in (ROOT / "sql").iterdir() if folder.is_dir())
# What no routine can find out: whether a driver fits it; and in SQLite, which has no session, the tenant in scope.
DRIVERS_OWN = {"postgresql": {"PJ012"}, "mysql": {"PJ012"}, "sqlite": {"PJ009", "PJ012"}}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (\w+)$", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_code_has_its_section_and_no_section_is_left_over() -> None:
    assert list(sections()) == [each.code for each in [*CLASSES[1:], CLASSES[0]]]


@pytest.mark.parametrize("error", CLASSES, ids=lambda each: each.code)
def test_a_section_names_the_class_and_the_contract_code(error: type[PyjobsError]) -> None:
    text = sections()[error.code]
    assert f"`{error.__name__}`" in text
    assert re.findall(r"PJ\d{3}", text) == ([error.contract_code] if error.contract_code else [])
    assert "**What to do**" in text


def test_no_two_errors_share_a_code() -> None:
    assert len({each.code for each in CLASSES}) == len(CLASSES)
    assert sorted(FROM_CONTRACT) == [f"PJ{number:03}" for number in range(1, 13)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda each: each.code)
def test_every_error_is_raised_somewhere(error: type[PyjobsError]) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "pyjobs").rglob("*.py") if path.name != "errors.py"]
    raised_here = any(re.search(rf"\b{error.__name__}\(", source) for source in sources)
    assert raised_here or error.contract_code in FROM_CONTRACT.keys() - {"PJ012"}  # the routines raise those: see below


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_the_routines_of_each_dialect_raise_every_contract_code_and_no_other(dialect: Path) -> None:
    raised = set()
    for path in dialect.glob("*.sql"):
        raised |= set(re.findall(r"'(PJ\d{3})\b", path.read_text(encoding="utf-8")))
    assert raised == FROM_CONTRACT.keys() - DRIVERS_OWN[dialect.name]
