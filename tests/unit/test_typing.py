"""What a type checker makes of the public interface: a job's ``enqueue`` has its handler's signature."""

from __future__ import annotations

import textwrap
from pathlib import Path

from mypy import api

APPLICATION = """
    from datetime import datetime
    from uuid import UUID

    from pyjobs import JobContext, Jobs

    jobs = Jobs("sqlite:///x.db")


    @jobs.schedule(every="1h")
    @jobs.job
    def plain(user_id: int, note: str = "") -> str:
        return note


    @jobs.job("named", queue="mail", timeout="30s")
    async def named(at: datetime) -> None: ...


    @jobs.job(queue="mail")
    def with_context(user_id: int, *, context: JobContext | None = None) -> None: ...


    id: UUID = plain.enqueue(user_id=1)
    id = plain.enqueue(1, "x")
    id = plain.enqueue_with(delay="5m", unique_key="k")(user_id=1)
    id = with_context.enqueue(user_id=1)
    text: str = plain(user_id=1)
    jobs.enqueue("plain", {"user_id": 1}, priority=-1, at=datetime.now())
    with jobs.batch(callback="plain", args={"user_id": 1}, name="b") as batch:
        batch.add(plain, {"user_id": 1}, queue="low")

    plain.enqueue(user_id="one")  # error
    plain.enqueue()  # error
    plain.enqueue(user_id=1, surprise=2)  # error
    plain.enqueue_with(dealy="5m")  # error
    plain.enqueue_with(delay="5m")(user_id="one")  # error
    named.enqueue(at="tomorrow")  # error
    jobs.enqueue("plain", {"user_id": 1}, dealy="5m")  # error
    jobs.job("x", qeue="mail")  # error
"""


def test_enqueue_has_the_signature_of_its_handler(tmp_path: Path) -> None:
    text = textwrap.dedent(APPLICATION)
    file = tmp_path / "application.py"
    file.write_text(text)
    expected = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# error")]

    told, failed, _ = api.run(["--strict", "--no-error-summary", "--hide-error-context", str(file)])

    found = sorted({int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line})
    assert not failed
    assert found == expected, told
