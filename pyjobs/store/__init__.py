"""Stores: the one place that knows a database driver, and imports it only when a URL asks for it."""

from __future__ import annotations

from pyjobs.store.base import Store

__all__ = ["Store"]
