"""What a loop that talks to the database does when it cannot: say so, and rest longer each time.

The rests double up to a bound and are jittered, so that many workers do not come back at one instant.
"""

from __future__ import annotations

import logging
import random
import time

from pyjobs.errors import PyjobsError

_log = logging.getLogger("pyjobs.worker")

_FIRST = 0.1
_LONGEST = 5.0


class Trouble:
    """Failures in a row of one loop."""

    def __init__(self, who: str, longest: float = _LONGEST) -> None:
        self._who = who
        self._longest = longest
        self._failures = 0
        self._since = 0.0
        self._last: Exception | None = None

    def met(self, error: Exception) -> float:
        """Note a failure; answers how long to rest, in seconds."""
        if self._failures == 0:
            self._since = time.monotonic()
        self._last = error
        rest: float = min(self._longest, _FIRST * 2 ** min(self._failures, 16)) * random.uniform(0.5, 1.5)
        self._failures += 1
        unforeseen = None if isinstance(error, PyjobsError) else error
        _log.warning("%s: %s; again in %.1f s", self._who, error, rest, exc_info=unforeseen)
        return rest

    def over(self) -> None:
        """Note that it works."""
        if self._failures:
            _log.info("%s: works again after %.1f s", self._who, self.lasted)
            self._failures = 0

    def give_up_after(self, seconds: float) -> None:
        """Raise the last failure, if they have lasted that long."""
        if self._last is not None and self.lasted > seconds:
            raise self._last

    @property
    def lasted(self) -> float:
        """Seconds since the first of these failures; 0 when there are none."""
        return time.monotonic() - self._since if self._failures else 0.0
