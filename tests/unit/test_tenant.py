from __future__ import annotations

import asyncio
import threading

import pytest

from pyjobs import tenant
from pyjobs.errors import BadName, OtherTenant


def test_a_scope_begins_and_ends() -> None:
    assert tenant.current() is None
    with tenant.entered("acme"):
        assert tenant.current() == "acme"
        with tenant.entered("acme"):
            assert tenant.current() == "acme"
        assert tenant.current() == "acme"
    assert tenant.current() is None


def test_a_scope_ends_when_the_block_raises() -> None:
    with pytest.raises(KeyError), tenant.entered("acme"):
        raise KeyError
    assert tenant.current() is None


def test_another_tenant_is_not_entered_by_accident() -> None:
    with tenant.entered("acme"):
        with pytest.raises(OtherTenant, match=r"'other'.*'acme'"), tenant.entered("other"):
            pytest.fail("the scope was entered")
        assert tenant.current() == "acme"


def test_leaving_the_scope_first_allows_it() -> None:
    with tenant.entered("acme"):
        with tenant.entered(None):
            assert tenant.current() is None
            with tenant.entered("other"):
                assert tenant.current() == "other"
        assert tenant.current() == "acme"


def test_none_and_the_same_may_be_named_in_scope() -> None:
    tenant.check("anybody")
    with tenant.entered("acme"):
        tenant.check("acme")
        tenant.check(None)
        with pytest.raises(OtherTenant):
            tenant.check("ACME")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(BadName), tenant.entered(""):
        pytest.fail("the scope was entered")


def test_each_thread_and_each_task_has_its_own() -> None:
    seen: list[str | None] = []

    async def visit(name: str, turn: asyncio.Barrier) -> str | None:
        with tenant.entered(name):
            await turn.wait()
            return tenant.current()

    async def both() -> list[str | None]:
        turn = asyncio.Barrier(2)
        return list(await asyncio.gather(visit("acme", turn), visit("other", turn)))

    with tenant.entered("outer"):
        thread = threading.Thread(target=lambda: seen.append(tenant.current()))
        thread.start()
        thread.join()
    assert seen == [None]
    assert asyncio.run(both()) == ["acme", "other"]
