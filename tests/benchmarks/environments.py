"""An environment for each peer, so that none has to agree with another on a version of anything.

Packages come from PyPI and npm by name. What is there already, in the same versions, is not installed again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.catalogue import Peer

HERE = Path(__file__).parent
TESTS = HERE.parent
PROJECT = TESTS.parent
PATIENCE = 600  # seconds for one installation


class Unavailable(Exception):
    """A peer that cannot take part, and why."""


@dataclass(frozen=True)
class Environment:
    """What starts the host of a peer: ``command`` and the adapter's name, then what host.py is told."""

    command: tuple[str, ...]
    variables: dict[str, str]


def prepare(peer: Peer, home: Path, python: Path) -> Environment:
    """The environment of a peer, installed if it is not; ``Unavailable`` with the reason if it cannot be."""
    home.mkdir(parents=True, exist_ok=True)
    if peer.language == "node":
        folder = _node(peer, home)
        return Environment(
            ("node", str(HERE / "host.mjs"), peer.adapter), {**os.environ, "BENCHMARK_PACKAGES": f"{folder}/"}
        )
    interpreter = python_with(peer.adapter, peer.packages, home, python)
    return Environment(
        (str(interpreter), "-m", "benchmarks.host", peer.adapter), {**os.environ, "PYTHONPATH": str(TESTS)}
    )


def python_with(name: str, packages: tuple[str, ...], home: Path, python: Path) -> Path:
    """The interpreter of a virtual environment that has the packages."""
    folder = home / name
    interpreter = folder / "bin" / "python"
    if not _has(folder, packages):
        shutil.rmtree(folder, ignore_errors=True)
        _run([str(python), "-m", "venv", str(folder)], home)
        if packages:
            _run(
                [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], PROJECT
            )
        _note(folder, packages)
    return interpreter


def best_python() -> Path:
    """The newest Python that all peers have had time to support; one of the peers asks for 3.12."""
    versions = ("3.13", "3.12", "3.11")
    for version in versions:
        for candidate in _pythons(version):
            if _answers(candidate):
                return candidate
    return Path(sys.executable)


def _pythons(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    yield from pyenv.glob(f"versions/{version}.*/bin/python")


def _answers(python: Path) -> bool:
    asked = [str(python), "-c", "import venv, ensurepip, sqlite3"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _node(peer: Peer, home: Path) -> Path:
    node = shutil.which("node")
    if not node or not shutil.which("npm"):
        raise Unavailable("there is no node, or no npm")
    folder = home / peer.adapter
    if not _has(folder, peer.packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true}\n')
        _run(["npm", "install", "--no-audit", "--no-fund", *peer.packages], folder, _with_headers(Path(node)))
        _note(folder, peer.packages)
    return folder


def _with_headers(node: Path) -> dict[str, str]:
    """A package with a part in C is built here if it cannot be had built; node's headers may be here too."""
    prefix = node.resolve().parent.parent
    return {"npm_config_nodedir": str(prefix)} if (prefix / "include" / "node").is_dir() else {}


def _has(folder: Path, packages: tuple[str, ...]) -> bool:
    note = folder / "installed.txt"
    return note.exists() and note.read_text() == _asked_for(packages)


def _note(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "installed.txt").write_text(_asked_for(packages))


def _asked_for(packages: tuple[str, ...]) -> str:
    """The packages; of this project also what it depends on, which changes without its name."""
    return "\n".join((*packages, (PROJECT / "pyproject.toml").read_text() if "-e" in packages else ""))


def _run(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"its installation took longer than {PATIENCE} s") from None
    if done.returncode:
        raise Unavailable(f"cannot be installed: {_reason(done.stdout + done.stderr)}")


def _reason(output: str) -> str:
    """The line that says most: the first error that is not one about errors."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(?i)\W*(npm )?error:? (?!subprocess|code|metadata)", line)]
    return without_places((telling or lines[-1:] or ["no reason was given"])[0])


def without_places(text: str) -> str:
    """A message for others to read: folders and addresses are of this machine."""
    return re.sub(r"(\w+://|(?<!\w)/\w)\S*", "…", text)[:200]
