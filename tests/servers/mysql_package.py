"""Unpacks the newest MySQL server that Debian has into a folder, without installing anything.

    python mysql_package.py FOLDER

apt fetches the package and all it depends on, down to the C library, with a state of its own in a temporary folder:
what is installed here is neither asked nor changed. So the server needs to be started through the loader that came
with it (see mysql.py), and runs on any Debian or Ubuntu that apt-get and dpkg are on. The mirror is the one this
machine's apt uses; signatures are checked by the keys Debian's keyring brings.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "mysql-server-core"
SUITE = "sid"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pyjobs-mysql-") as temporary:
        apt = _own_apt(Path(temporary), _mirror())
        subprocess.run([*apt, "--quiet=2", "update"], check=True)
        subprocess.run(
            [*apt, "--quiet=2", "--yes", "--no-install-recommends", "--download-only", "install", PACKAGE],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        unpacked = Path(temporary) / "unpacked"
        for archive in sorted(Path(temporary).glob("cache/archives/*.deb")):
            subprocess.run(["dpkg-deb", "--extract", archive, unpacked], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked, folder)


def _mirror() -> str:
    """Where this machine's apt has Debian itself from."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Component: main"],
        capture_output=True,
        text=True,
        check=True,
    )
    for site in told.stdout.split():
        if not site.rstrip("/").endswith("-security"):
            return site
    raise SystemExit("apt knows no Debian mirror here, so there is no MySQL to be had from one")


def _own_apt(folder: Path, mirror: str) -> list[str]:
    """The command for an apt that knows of nothing but this folder."""
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror} {SUITE} main\n")
    options = {
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": folder / "parts",
        "Dir::Etc::preferences": folder / "none",
        "Dir::Etc::preferencesparts": folder / "parts",
        "Acquire::Languages": "none",
    }
    configuration = folder / "apt.conf"
    settings = "".join(f'{name} "{value}";\n' for name, value in options.items())
    # What the machine has its apt do afterwards is not for this one.
    configuration.write_text("#clear APT::Update;\n#clear APT::Sandbox;\n" + settings)
    return ["apt-get", f"--config-file={configuration}"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
