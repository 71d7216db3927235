"""Stores: the one place that knows a database driver, and imports it only when a URL asks for it."""

from __future__ import annotations

from urllib.parse import urlsplit

from pyjobs.errors import DriverMissing, InvalidConfiguration
from pyjobs.store.base import Store

__all__ = ["Store", "open_store"]


def open_store(url: str) -> Store:
    """The store for the database at ``url``: ``postgresql://…``, ``mysql://…``, ``mariadb://…`` or
    ``sqlite:///file.db``. It connects when first used.

    Raises ``InvalidConfiguration`` for a URL that names no database known here, ``DriverMissing`` when the package
    for it is not installed.
    """
    match urlsplit(url).scheme:
        case "postgresql" | "postgres":
            try:
                from pyjobs.store.postgresql import PostgresqlStore
            except ModuleNotFoundError as error:
                hint = "pip install 'pyjobs[postgresql]'"
                raise DriverMissing(f"the package {error.name} is not installed", hint) from error
            return PostgresqlStore(url)
        case "mysql" | "mariadb":
            try:
                from pyjobs.store.mysql import MysqlStore
            except ModuleNotFoundError as error:
                hint = "pip install 'pyjobs[mysql]'"
                raise DriverMissing(f"the package {error.name} is not installed", hint) from error
            return MysqlStore(url)
        case "sqlite":
            from pyjobs.store.sqlite import SqliteStore

            return SqliteStore(url)
        case scheme:
            raise InvalidConfiguration(
                f"{scheme + '://' if scheme else 'a URL without a scheme'} is not a database pyjobs knows",
                "use postgresql://…, mysql://…, mariadb://… or sqlite:///file.db",
            )
