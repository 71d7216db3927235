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
    ticks = time.time_ns() * 4096 // 1_000_000 & (1 << 60) - 1
    noise = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1
    return UUID(int=ticks >> 12 << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | noise)
