"""What a URL says of a MySQL or MariaDB database: ``mysql://user:password@host:port/database?option=value``.

The options are how to get there otherwise than over plain TCP; they have the names that PyMySQL gives them.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pyjobs.errors import InvalidConfiguration

SCHEMES = ("mysql", "mariadb")
OPTIONS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
HINT_URL = "use mysql://user:password@host:port/database, or mariadb://…"


def settings(url: str) -> dict[str, Any]:
    """The arguments to connect with. ``InvalidConfiguration`` says what in the URL cannot be read."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidConfiguration(f"the database URL cannot be read: {error}", HINT_URL) from error
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise InvalidConfiguration("the database URL names no database", HINT_URL)
    found = {
        "host": parts.hostname and unquote(parts.hostname),
        "port": port,
        "user": parts.username and unquote(parts.username),
        "password": parts.password and unquote(parts.password),
        "database": database,
        **dict(_option(*each) for each in parse_qsl(parts.query, keep_blank_values=True)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _option(name: str, value: str) -> tuple[str, Any]:
    if name not in OPTIONS:
        raise InvalidConfiguration(f"the database URL has an option {name!r}", "it takes " + ", ".join(OPTIONS))
    if name in ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key"):
        return name, value
    if value.lower() not in SWITCHES:
        raise InvalidConfiguration(f"the option {name} of the database URL is neither true nor false", HINT_URL)
    return name, SWITCHES[value.lower()]
