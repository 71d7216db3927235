"""Runs one Python adapter, in the environment of its peer: ``python -m benchmarks.host PEER TASK URL …``.

- ``install URL``: make the peer's tables.
- ``work URL RECORDS READY GO CONCURRENCY HOLD``: perform jobs. The file READY is made once all is imported, and the
  worker starts when the file GO appears, so that what it costs to start Python counts for nobody.
- ``produce URL``: enqueue what is asked for, one JSON object a line on standard input, an answer each on standard
  output. Clocks run around the calls alone.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.records import recorder


def main(peer: str, task: str, url: str, *rest: str) -> None:
    adapter = importlib.import_module(f"benchmarks.peers.{peer}")
    run = getattr(adapter, "run", asyncio.run)  # a peer may bring its own event loop
    match task:
        case "install":
            run(adapter.install(url))
        case "work":
            records, ready, go, concurrency, hold = rest
            handle = recorder(Path(records), float(hold))
            _wait_for_the_word(Path(ready), Path(go))
            run(adapter.work(url, handle, int(concurrency)))
        case "produce":
            run(_produce(adapter, url))


def _wait_for_the_word(ready: Path, go: Path) -> None:
    ready.touch()
    while not go.exists():
        time.sleep(0.001)


async def _produce(adapter: Any, url: str) -> None:
    async with adapter.producer(url) as producer:
        for line in sys.stdin:
            answer = await _enqueue(producer, **json.loads(line))
            print(json.dumps(answer), flush=True)


async def _enqueue(
    producer: Any,
    do: str,
    ranges: list[list[int]],
    *,
    chunk: int | None = None,
    gap: float = 0.0,
    extra: dict[str, Any],
) -> dict[str, Any]:
    numbers = [number for each in ranges for number in range(*each)]
    match do:
        case "one":
            began = time.monotonic()
            for number in numbers:
                await producer.one(number)
            return {"seconds": time.monotonic() - began}
        case "paced":
            return {"commits": [moments async for moments in _paced(producer, numbers, gap)]}
        case _:
            enqueue = getattr(producer, do)
            began = time.monotonic()
            for some in _chunks(numbers, chunk or len(numbers)):
                await enqueue(some, **extra)
            return {"seconds": time.monotonic() - began}


async def _paced(producer: Any, numbers: list[int], gap: float) -> Any:
    """One job each ``gap`` seconds: its number, the moment before the call and the moment after."""
    start = time.monotonic()
    for place, number in enumerate(numbers):
        await asyncio.sleep(max(0.0, start + place * gap - time.monotonic()))
        before = time.monotonic_ns()
        await producer.one(number)
        yield number, before, time.monotonic_ns()


def _chunks(numbers: list[int], size: int) -> Iterator[list[int]]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


if __name__ == "__main__":
    with suppress(AttributeError):  # how a worker is ended: without a word
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # a peer whose threads go on must not keep a finished producer alive
