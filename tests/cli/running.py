"""Running commands: what came of one, and what one prints when it believes that a person looks."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Pyjobs = Callable[..., Ran]


def on_terminal(command: Sequence[str], columns: int, **environment: str) -> tuple[int, list[str]]:
    """A command on a terminal of that width: its exit status, and the lines it showed, without their colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=inherited | {"TERM": "xterm"} | environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            read = os.read(ours, 65_536)
        except OSError:  # Linux's way of saying that the other end is closed
            break
        if not read:
            break
        shown += read
    os.close(ours)
    return process.wait(), _STEERING.sub("", shown.decode()).replace("\r\n", "\n").split("\n")
