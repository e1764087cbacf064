"""What was kept otherwise than it came, or not at all: counted for `/metrics`, and told in the log now and then.

Senders of logs hear of nothing, or cannot change what they send. So what cannot be stored as it is, is stored with the
least change, and that is told here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock

TAGS_CUT = "tags_cut"
TIME_REPLACED = "time_replaced"
TEXT_ESCAPED = "text_escaped"
MESSAGE_CUT = "message_cut"
REFUSED = "refused"
_MEANINGS = {
    TAGS_CUT: "tags were too long: cut, and whole in the fields",
    TIME_REPLACED: "no time could be read: the time of arrival stands for it",
    TEXT_ESCAPED: "text was not UTF-8: escaped",
    MESSAGE_CUT: "messages were too long, or ended early: marked as truncated",
    REFUSED: "could not be stored",
}
HOWS = tuple(_MEANINGS)
_EVERY_S = 10.0
_log = logging.getLogger("aggregator.server.records")
Tell = Callable[[str], None]
"""Takes one of HOWS, for one record, or one request where text was escaped."""


def untold(how: str) -> None:
    """Tell nobody."""


class Mended:
    """Counts by what happened, one of HOWS. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self.counts: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self._why: dict[str, str] = {}
        self._next = clock()

    def tell(self, how: str, why: str = "") -> None:
        """Count one, and say it if nothing was said for some seconds."""
        with self._lock:
            self.counts[how] += 1
            self._untold[how] += 1
            self._why[how] = why
            now = self._clock()
            if now < self._next:
                return
            self._next = now + _EVERY_S
            told, self._untold = self._untold, Counter()
            reasons = dict(self._why)
        for kind, count in told.items():
            why = f" ({reasons[kind]})" if reasons[kind] else ""
            _log.warning("%d log records: %s%s", count, _MEANINGS[kind], why)
