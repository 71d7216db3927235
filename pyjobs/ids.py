"""Ids of jobs and batches: UUIDv7 (RFC 9562), so that new rows land next to each other in an index.

The caller makes the id before the call, so that a call whose reply was lost can be sent again. The clock
read here orders ids and decides nothing; with a wrong one, only the index's locality suffers.
"""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_id() -> UUID:
    """A UUIDv7: the time in steps of a quarter of a microsecond, so that one thread's ids sort as they were made, and
    62 random bits."""
    return UUID(int=_timed() | int.from_bytes(os.urandom(8)) & (1 << 62) - 1)


def new_ids(count: int) -> list[UUID]:
    """UUIDv7s that sort in the order of the list: the time of the call, then a counter, then 42 random bits."""
    timed = _timed()
    noise = os.urandom(6 * count)
    return [
        UUID(int=timed | (number & 0xFFFFF) << 42 | int.from_bytes(noise[6 * number : 6 * number + 6]) >> 6)
        for number in range(count)
    ]


def _timed() -> int:
    """A UUIDv7 whose last 62 bits are still 0: 60 bits of time, around the version, and the variant."""
    ticks = time.time_ns() * 4096 // 1_000_000 & (1 << 60) - 1
    return ticks >> 12 << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62
