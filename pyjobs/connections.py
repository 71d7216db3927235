"""The caller's transaction, whatever it is held by: the DB-API connection behind what ``connection=`` was given.

SQLAlchemy and Django are recognised by how they look and never imported, so that neither has to be there.
"""

from __future__ import annotations

import sys
from typing import Any

from pyjobs.errors import InvalidOption

_HINT = "pass a DB-API connection, a SQLAlchemy session or connection, or a Django connection or its alias"


def driver_connection(given: Any) -> Any:
    """The DB-API connection of a SQLAlchemy session or connection, a Django connection or alias, or the thing itself.

    A session that has not begun yet begins its transaction here, as with any other statement of its own.
    """
    if isinstance(given, str):
        return _opened(_django(given))
    if hasattr(given, "ensure_connection"):  # Django's wrapper
        return _opened(given)
    if hasattr(given, "get_bind"):  # SQLAlchemy's session
        return given.connection().connection.driver_connection
    if hasattr(given, "get_execution_options"):  # SQLAlchemy's connection
        return given.connection.driver_connection
    return given


def _django(alias: str) -> Any:
    django = sys.modules.get("django.db")
    if django is None:
        raise InvalidOption(f"connection is the text {alias!r}, and Django is not in use", _HINT)
    return django.connections[alias]


def _opened(wrapper: Any) -> Any:
    wrapper.ensure_connection()
    return wrapper.connection
