"""docs/cli.md and the commands say the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import pytest

from pyjobs.cli.checks import CHECKS, Finding
from pyjobs.cli.differences import Difference
from pyjobs.cli.main import main
from pyjobs.cli.views import Overview
from pyjobs.records import BatchRecord, DeadRecord, Enqueued, JobRecord, LimitRow, ScheduleRecord, WorkerRecord

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")

EVERYWHERE = {"--app", "--database", "--debug", "--help"}
"""Told at the top of the page, and by each command only where it means something else."""


@dataclass(frozen=True)
class Section:
    """What the page says of one command."""

    arguments: str
    text: str

    @property
    def options(self) -> set[str]:
        return {name for line in self.lines for name in words(re.match(r"- (`-[^`]+` ?)+", line)[0])}  # type: ignore[index]

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.startswith("- `-")]

    @property
    def keys(self) -> list[list[str]]:
        """The keys of its JSON, and those of what that holds."""
        [line] = [line for line in self.lines if line.startswith("- `--json`")]
        return [words(part) for part in re.split(r"; each \w+ of", line.partition("` ")[2])]


def words(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


SECTIONS = {
    name: Section(arguments.strip(), text)
    for name, arguments, text in re.findall(
        r"^### `pyjobs (\w+)(.*?)`$\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
}


def options_of(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in [*parameter.opts, *parameter.secondary_opts]
    }


def test_every_command_is_there_and_no_other() -> None:
    assert {*SECTIONS} == {*main.commands}
    for mentioned in re.findall(r"`pyjobs ([a-z]+)", PAGE):
        assert mentioned in main.commands


@pytest.mark.parametrize("name", main.commands)
def test_each_with_its_arguments_and_options_and_no_other(name: str) -> None:
    command, section = main.commands[name], SECTIONS[name]
    arguments = [
        each.make_metavar(click.Context(command)) for each in command.params if isinstance(each, click.Argument)
    ]
    assert section.arguments == " ".join(arguments)
    assert section.options <= options_of(command)
    assert options_of(command) - EVERYWHERE <= section.options


@pytest.mark.parametrize("name", sorted({*main.commands} - {"demo", "completion"}))
def test_what_is_told_of_all_commands_is_true_of_each(name: str) -> None:
    assert {"--app", "--database", "--debug"} <= options_of(main.commands[name])


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("sync", [None, Difference]),
        ("doctor", [None, Finding]),
        ("enqueue", [Enqueued]),
        ("status", [Overview]),
        ("dead", [DeadRecord]),
        ("batches", [BatchRecord]),
        ("schedules", [ScheduleRecord]),
        ("limits", [LimitRow]),
        ("workers", [WorkerRecord]),
    ],
)
def test_the_keys_of_its_json(name: str, records: list[Any]) -> None:
    for told, record in zip(SECTIONS[name].keys, records, strict=True):
        if record is not None:
            assert told == [field.name for field in fields(record)]


def test_the_keys_of_a_job() -> None:
    assert SECTIONS["list"].keys == [[field.name for field in fields(JobRecord) if field.name not in ("args", "meta")]]


def test_every_check_of_the_doctor() -> None:
    told = re.findall(r"^\| `(\w+)` \|", SECTIONS["doctor"].text, re.MULTILINE)
    assert told == ["application", "database", "schema", *(check.__name__.removeprefix("_") for check in CHECKS)]
