"""`LogHandler`: sends a Python program's log records to a server. Failures never affect the program."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import reprlib
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aggregator.client.client import Client
from aggregator.client.http.errors import UnavailableError, WriteFailedError
from aggregator.client.http.retry import Retry
from aggregator.client.writing.outbox import Unsent
from aggregator.client.writing.sizing import Sizing
from aggregator.client.writing.writer import Writer
from aggregator.errors import InvalidRequestError
from aggregator.model import STREAMS_TOPIC
from aggregator.streams.level import LEVEL_TEXT, python_level
from esformat import ClosedError

_THREAD = "aggregator-log"
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_OWN_NAMES = {"ts", "msg", "level", LEVEL_TEXT, "logger"}
_SIZING = Sizing(min_rows=500, max_rows=10_000, max_bytes=1 << 20)
_LINGER_S = 0.25
_RETRY = Retry(deadline_s=None, longest_s=1.0)


class LogHandler(logging.Handler):
    """Sends records to a stream, in the background and in batches.

        logging.getLogger().addHandler(LogHandler("http://127.0.0.1:3030", {"name": "app1"}))

    A record becomes its formatted message, with the fields `level` (`trace`, `debug`, `info`, `warn`, `error` or
    `fatal`, as from all senders; Python's own name is `level_text`), `logger`, and those in `extra`.

    Logging never waits and never fails. While the server cannot accept records they queue in `queue_bytes`; then some
    are dropped and counted in `dropped`, and the stream gets a record with their number once the server is back. Queued
    records are sent when the program ends. Log records of this handler's own HTTP client are ignored.
    """

    def __init__(
        self,
        url: str,
        tags: Mapping[str, str] | None = None,
        *,
        level: int | str = logging.NOTSET,
        topic: str = STREAMS_TOPIC,
        queue_bytes: int = 8 << 20,
        when_full: str = "drop_oldest",
        exit_timeout_s: float = 5.0,
        **options: Any,
    ) -> None:
        """Create a handler, without contacting the server.

        tags: of the stream; by default the names of the program and the machine. topic: of the stream. when_full:
        "drop_oldest" or "drop_newest". exit_timeout_s: how long the end of the program may wait for the server.
        options: of `Client`, such as token.

        Raises InvalidRequestError for invalid options.
        """
        super().__init__(level)
        if when_full not in ("drop_oldest", "drop_newest"):
            raise InvalidRequestError(f'when_full must be "drop_oldest" or "drop_newest", not {when_full!r}')
        self._url, self._options, self._exit_s = url, options, exit_timeout_s
        self._tags = (
            {"name": Path(sys.argv[0]).stem or "python", "host": socket.gethostname()} if tags is None else tags
        )
        self._writing: dict[str, Any] = {"topic": topic, "queue_bytes": queue_bytes, "when_full": when_full}
        self._failed = 0  # records that a server refused permanently
        self._seen = 0  # value of `dropped` at the last check
        self._taken = 0  # records acknowledged at that time
        self._reported = 0
        self._complained = False
        self._flushed = (0.0, 0)  # duration of the last flush, and records acknowledged after it
        self._writer = self._start()
        for name in ("httpx", "httpcore", "aggregator.client"):
            if _keep_quiet not in (logger := logging.getLogger(name)).filters:
                logger.addFilter(_keep_quiet)

    def _start(self) -> Writer:
        self._pid = os.getpid()
        self._client = Client(self._url, **self._options)
        return self._client.stream_writer(
            self._tags,
            sizing=_SIZING,
            linger_s=_LINGER_S,
            retry=_RETRY,
            name=_THREAD,
            close_at_exit=False,
            **self._writing,
        )

    @property
    def dropped(self) -> int:
        """Number of records that were not and will not be delivered."""
        return self._failed + self._writer.dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. Called by the logger."""
        if threading.current_thread().name.startswith(_THREAD):
            return
        try:
            if os.getpid() != self._pid:  # a forked child lacks the parent's threads
                self._writer = self._start()
                self._failed = self._seen = self._taken = self._reported = 0
                self._flushed = (0.0, 0)
            self._report_when_over(record.created)
            self._add(_row(record, self.format(record)))
        except Exception:  # noqa: BLE001 - whatever is wrong with a record or the handler, the program continues
            self.handleError(record)

    def _add(self, row: dict[str, Any]) -> None:
        try:
            self._writer.add_row(row)
        except WriteFailedError as error:
            self._count(error)
            self._writer.add_row(row)

    def _report_when_over(self, now: float) -> None:
        """Report drops to the stream once they have ended: the server accepts records again, and none is dropped."""
        dropped = self.dropped
        if self._seen != dropped:
            self._seen, self._taken = dropped, self._writer.acknowledged
        elif self._writer.acknowledged > self._taken:
            self._report_dropped(now)

    def _report_dropped(self, now: float) -> None:
        missing = self.dropped - self._reported
        if missing:
            self._reported += missing
            text = f"{missing} log records were dropped before they reached this server"
            row = {"ts": int(now * 1e6), "msg": text, "level": "warn", "logger": __name__}
            with contextlib.suppress(WriteFailedError):  # counted on the next call
                self._writer.add_row(row)

    def _count(self, error: WriteFailedError) -> int:
        """Count records that were refused permanently, and report the first such case on stderr."""
        unsent: list[Unsent] = error.unsent
        count = sum(len(each.events) for each in unsent)
        self._failed += count
        if not self._complained:
            self._complained = True
            _complain(f"log records cannot be delivered to {self._url}: {error.failed[0]}")
        return count

    def flush(self) -> None:
        """Wait until everything is delivered, at most `exit_timeout_s`."""
        if self._pid == os.getpid():
            began = time.monotonic()
            with contextlib.suppress(UnavailableError):
                try:
                    self._writer.flush(self._exit_s)
                except WriteFailedError as error:
                    self._count(error)
            self._flushed = (time.monotonic() - began, self._writer.acknowledged)

    def close(self) -> None:
        """Deliver queued records, for at most `exit_timeout_s`, and stop. Report the rest on stderr.

        The time of a flush just before, as at the end of a program, counts: if that waited in vain, this does not wait
        again.
        """
        if self._pid == os.getpid():
            with contextlib.suppress(ClosedError):  # closed before
                self._report_dropped(time.time())
            undelivered = 0
            try:
                took_s, taken = self._flushed
                spent_s = took_s if taken == self._writer.acknowledged else 0.0
                self._writer.close(max(0.0, self._exit_s - spent_s))
            except WriteFailedError as error:
                undelivered = self._count(error)
            self._client.close()
            if undelivered:
                _complain(f"{self.dropped} log records were not delivered to {self._url}")
        super().close()


def _row(record: logging.LogRecord, text: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "ts": int(record.created * 1e6),
        "msg": text.encode("utf-8", "backslashreplace"),
        "level": python_level(record.levelno),
        LEVEL_TEXT: record.levelname,
        "logger": record.name,
    }
    given = vars(record)
    for name in [name for name in given if name not in _STANDARD]:
        if (value := given[name]) is not None:
            plain = _plain(value)
            name = f"extra.{name}" if name in _OWN_NAMES else name
            row[name] = plain.encode("utf-8", "backslashreplace").decode() if isinstance(plain, str) else plain
    return row


def _plain(value: Any) -> Any:
    """Return a value as a field: lists and mappings as JSON, anything else but text and numbers as text."""
    if isinstance(value, str | int | float):
        return value
    try:
        if isinstance(value, list | tuple | set | frozenset | Mapping):
            return json.dumps(value, default=_listed, ensure_ascii=False, separators=(",", ":"))
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    except (TypeError, ValueError, RecursionError):  # non-text keys, cycles, depth
        return reprlib.repr(value)


def _listed(value: Any) -> Any:
    """Convert a value within a list or a mapping that JSON cannot represent."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, set | frozenset) else str(value)


def _keep_quiet(record: logging.LogRecord) -> bool:
    """Filter for the loggers of clients: suppress records about sending log records, for any handler."""
    return not threading.current_thread().name.startswith(_THREAD)


def _complain(text: str) -> None:
    """Write a line to stderr, if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"aggregator: {text}\n")
