"""The server's own log on stderr: text, or one JSON object per line. Tokens never appear in it."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
from typing import Any

from aggregator.server.config.settings import Logs
from aggregator.server.control.requests import FinishedRequest

_SECRET = re.compile(r"""(agg_[0-9a-f]{12})_[\w-]+|(?i:\b(bearer|basic|apikey))\s+[^\s"\\]+""")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_requests = logging.getLogger("aggregator.server.requests")


def without_secrets(text: str) -> str:
    """Return the text with all tokens masked, wherever they come from."""
    return _SECRET.sub(lambda match: f"{match[1] or match[2]} ***", text)


class TextFormatter(logging.Formatter):
    """Formats records as text: time, level, logger, message, and facts as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by a traceback if there is one."""
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}{facts}"
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return without_secrets(line.replace("\n", "\\n") + trace)


class JsonFormatter(logging.Formatter):
    """Formats records as JSON objects: time, level, logger, message, facts, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        found = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(found, ensure_ascii=False, default=str))


def set_up(logs: Logs) -> None:
    """Send the log of the server and its libraries to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if logs.format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logs.level.upper())
    if logs.level == "info":  # we log start and stop ourselves
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def log_request(request: FinishedRequest) -> None:
    """Log a finished request."""
    _requests.info(
        "request",
        extra={
            "method": request.method,
            "route": request.route,
            "status": request.status,
            "ms": round(request.seconds * 1000, 3),
            "sent_bytes": request.sent_bytes,
            "who": request.who,
            "client": request.client,
        },
    )


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
