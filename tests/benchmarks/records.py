"""Who was performed, and when: what a handler notes, and what can be told from it.

A worker process notes each execution in a file of its own: the job's number, when its handler began and when it
ended, by the monotonic clock, which all processes of a machine share. The file is memory that the runner can read
while it grows: a note costs a microsecond and no system call, so the slowest peer is not measured by our own
bookkeeping. That every job ran exactly once is told from these notes alone, never from what a queue says.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ENTRY = struct.Struct("<QQQ")  # number + 1 (0: not written yet), began, ended
MOST_ENTRIES = 1 << 24  # the file is sparse: what is not used costs nothing

Handler = Callable[[int], None]


def recorder(file: Path, hold: float = 0.0) -> Handler:
    """The handler of every peer: ``handle(number)`` notes one execution; ``hold`` seconds pass within it. Any threads
    may call it at once: each takes a place of its own, by a step that cannot be interrupted."""
    with file.open("w+b") as opened:
        opened.truncate(ENTRY.size * MOST_ENTRIES)
        memory = mmap.mmap(opened.fileno(), ENTRY.size * MOST_ENTRIES)
    places, pack, now = itertools.count(0, ENTRY.size), ENTRY.pack_into, time.monotonic_ns

    def handle(number: int) -> None:
        began = now()
        if hold:
            time.sleep(hold)
        pack(memory, next(places), number + 1, began, now())

    return handle


def count(files: Iterable[Path]) -> int:
    """How many executions are noted by now."""
    return sum(_written(file) for file in files if file.exists())


def _written(file: Path) -> int:
    """Entries up to the first that is not written yet, found by halving."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        low, high = 0, os.fstat(descriptor).st_size // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if any(os.pread(descriptor, 8, middle * ENTRY.size)):
                low = middle + 1
            else:
                high = middle
        return low
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Executions:
    """What the workers of one run noted, in one line by each worker; in columns, since they may be millions."""

    numbers: array[int]
    began: array[int]
    ended: array[int]
    by_worker: tuple[int, ...]

    @classmethod
    def read(cls, files: Sequence[Path]) -> Executions:
        numbers, began, ended = array("Q"), array("Q"), array("Q")
        shares: list[int] = []
        for file in files:
            entries = _entries(file)
            written = entries[0::3]
            numbers.extend(number - 1 for number in written if number)
            began.extend(itertools.compress(entries[1::3], written))
            ended.extend(itertools.compress(entries[2::3], written))
            shares.append(len(numbers) - sum(shares))
        return cls(numbers, began, ended, tuple(shares))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def first(self) -> int:
        return min(self.began)

    @property
    def last(self) -> int:
        return max(self.ended)

    def mistakes(self, expected: Iterable[int]) -> list[str]:
        """What is wrong with the claim that exactly ``expected`` ran, each once; empty when it holds."""
        seen, twice, wanted = set[int](), set[int](), set(expected)
        for number in self.numbers:
            (twice if number in seen else seen).add(number)
        found = {"missing": wanted - seen, "twice": twice, "never enqueued": seen - wanted}
        return [f"{len(numbers)} {what} (such as {min(numbers)})" for what, numbers in found.items() if numbers]

    def most_at_once(self, group: Callable[[int], str]) -> dict[str, int]:
        """For each group, how many of its handlers ran at one moment at most."""
        moments: dict[str, list[tuple[int, int]]] = {}
        for number, began, ended in zip(self.numbers, self.began, self.ended, strict=True):
            moments.setdefault(group(number), []).extend(((began, 1), (ended, -1)))
        # At one and the same moment an end counts before a beginning.
        return {name: max(itertools.accumulate(step for _, step in sorted(steps))) for name, steps in moments.items()}

    def per_interval(self, start: int, end: int, seconds: float) -> list[float]:
        """Executions a second in each whole interval between two moments."""
        width = int(seconds * 1e9)
        counts = [0] * ((end - start) // width)
        for began in self.began:
            if start <= began < start + width * len(counts):
                counts[(began - start) // width] += 1
        return [count / seconds for count in counts]


def _entries(file: Path) -> array[int]:
    """What is written, and a little more: a thread may have taken a place and not have written it yet."""
    entries = array("Q")
    with file.open("rb") as opened:
        read = opened.read((_written(file) + 1_000) * ENTRY.size)
    entries.frombytes(read[: len(read) // ENTRY.size * ENTRY.size])
    return entries
