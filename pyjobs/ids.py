"""Ids of jobs and batches: UUIDv7 (RFC 9562), so that new rows land next to each other in an index.

The caller makes the id before the call, so that a call whose reply was lost can be sent again. The clock
read here orders ids and decides nothing; with a wrong one, only the index's locality suffers.
"""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_id() -> UUID:
    """A UUIDv7: 48 bits of milliseconds, then 74 random bits."""
    moment = time.time_ns() // 1_000_000 & (1 << 48) - 1
    noise = int.from_bytes(os.urandom(10), "big")
    low = 0b10 << 62 | noise & (1 << 62) - 1
    return UUID(int=moment << 80 | 0x7 << 76 | (noise >> 62 & 0xFFF) << 64 | low)
