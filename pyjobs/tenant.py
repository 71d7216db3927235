"""The tenant in scope: whose job is enqueued here, and whose a handler performs.

It is a context variable, so that each thread and each coroutine has its own. ``None`` is no tenant, never
all of them. Inside one tenant another cannot be entered or named by accident (``OtherTenant``): work for
several says so by leaving the scope first, with ``entered(None)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyjobs.errors import BadName, OtherTenant

_scope: ContextVar[str | None] = ContextVar("pyjobs.tenant", default=None)


def current() -> str | None:
    """The tenant in scope; None when there is none."""
    return _scope.get()


@contextmanager
def entered(tenant: str | None) -> Iterator[None]:
    """The block belongs to ``tenant`` (None: to nobody). ``OtherTenant`` when inside a different one."""
    if tenant == "":
        raise BadName("a tenant's name is empty", "name the tenant, or pass None for a job of no tenant")
    check(tenant)
    token = _scope.set(tenant)
    try:
        yield
    finally:
        _scope.reset(token)


def check(tenant: str | None) -> None:
    """``OtherTenant`` unless ``tenant`` may be named here: the one in scope, none, or any when none is."""
    scope = _scope.get()
    if scope is not None and tenant is not None and tenant != scope:
        raise OtherTenant(
            f"the tenant {tenant!r} is named while {scope!r} is in scope",
            "leave the scope first: with jobs.tenant(None): …",
        )
