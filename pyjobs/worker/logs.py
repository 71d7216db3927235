"""Log lines as JSON: one object a line, with the fields that were given as ``extra`` beside the message."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

_ALWAYS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """``at``, ``level``, ``logger``, ``message``, the fields, and ``error`` with the stack if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _ALWAYS)
        stack = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        if stack:
            line["error"] = stack
        return json.dumps(line, default=str, ensure_ascii=False)
