"""Syslog messages, RFC 5424 and the older RFC 3164, as records of streams; and their framing over TCP. Pure.

Host and app name the stream. Priority, process, message id and structured data are fields. What is written in neither
way is kept as it is: its whole text is the message.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import Any

from aggregator.server.refusals import Tell, untold
from aggregator.server.shipped import TAGS_AND_RECORD

MAX_MESSAGE_BYTES = 65_536
"""What is longer is cut there, and marked."""
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_PRIORITY = re.compile(rb"<(\d{1,3})>")
_NEW = re.compile(
    rb"1 (?P<time>\S{1,64}) (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) (?P<pid>[!-~]{1,128}) (?P<id>[!-~]{1,32}) "
    rb"(?P<data>-|(?:\[[^\]\"= ]{1,32}(?: [^\]\"= ]{1,32}=\"(?:[^\"\\]|\\.)*+\")*+\])++)(?: (?P<text>.*+))?",
    re.DOTALL,
)
_OLD = re.compile(
    rb"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)) "
    rb"(?P<host>[!-~]{1,255}) (?:(?P<app>[^\s:\[]{1,48})(?:\[(?P<pid>[^\]\s]{1,128})\])?: ?)?(?P<text>.*+)",
    re.DOTALL,
)
_ELEMENT = re.compile(rb"\[([^\]\"= ]++)((?: [^\]\"= ]++=\"(?:[^\"\\]|\\.)*+\")*+)\]", re.DOTALL)
_PARAMETER = re.compile(rb" ([^\]\"= ]++)=\"((?:[^\"\\]|\\.)*+)\"", re.DOTALL)
_ESCAPED = re.compile(rb"\\([\"\\\]])")
_MARK = b"\xef\xbb\xbf"
_NONE = b"-"


def read_message(
    message: bytes, peer: str, now: dt.datetime, *, cut: bool = False, tell: Tell = untold
) -> TAGS_AND_RECORD:
    """The record of a message, and the tags of its stream. Nothing is refused; what has neither form is told.

    peer: the address that it came from, which stands for a host that it does not name. now: an aware time; times
    without a year are next to it, and those without a zone in its zone.
    """
    tags: dict[str, str] = {"host": peer}
    record: dict[str, Any] = {"truncated": True} if cut else {}
    priority = _PRIORITY.match(message)
    rest = message
    if priority is not None and int(priority[1]) < 8 * len(_FACILITIES):
        facility, severity = divmod(int(priority[1]), 8)
        record |= {"facility": _FACILITIES[facility], "severity": _SEVERITIES[severity]}
        rest = message[priority.end() :]
        found = _NEW.fullmatch(rest)
        if found is not None and (found["time"] == _NONE or _iso(found["time"]) is not None):
            return _new(found, tags, record, now)
    found = _OLD.fullmatch(rest)
    moment = None if found is None else _moment(found["time"], now)
    if found is None or moment is None:
        tell("unparsed", why=f"the last from {peer}")
        return tags, {**record, "ts": now, "msg": _text(rest)}
    tags["host"] = _decoded(found["host"])
    if found["app"]:
        tags["app"] = _decoded(found["app"])
    if found["pid"]:
        record["pid"] = _decoded(found["pid"])
    return tags, {**record, "ts": moment, "msg": _text(found["text"])}


def _new(found: re.Match[bytes], tags: dict[str, str], record: dict[str, Any], now: dt.datetime) -> TAGS_AND_RECORD:
    for name in ("host", "app"):
        if found[name] != _NONE:
            tags[name] = _decoded(found[name])
    for name, group in (("pid", "pid"), ("msgid", "id")):
        if found[group] != _NONE:
            record[name] = _decoded(found[group])
    for element in _ELEMENT.finditer(found["data"]):
        for parameter in _PARAMETER.finditer(element[2]):
            name = f"{_decoded(element[1])}.{_decoded(parameter[1])}"
            value = _decoded(_ESCAPED.sub(rb"\1", parameter[2]))
            record[name] = [*_listed(record[name]), value] if name in record else value
    moment = now if found["time"] == _NONE else _iso(found["time"])
    return tags, {**record, "ts": moment, "msg": _text((found["text"] or b"").removeprefix(_MARK))}


def _listed(values: str | list[str]) -> list[str]:
    """The values of a parameter that comes several times, which RFC 5424 allows."""
    return values if isinstance(values, list) else [values]


def _text(text: bytes) -> str | bytes:
    text = text.rstrip(b"\r\n\0")
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def _decoded(text: bytes) -> str:
    r"""Text of a tag or field; what is no UTF-8 is escaped, as `\xff`."""
    return text.decode("utf-8", "backslashreplace")


def _moment(text: bytes, now: dt.datetime) -> dt.datetime | None:
    return _iso(text) if text[:1].isdigit() else _without_year(text.decode(), now)


def _iso(text: bytes) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(text.decode("ascii"))
        return found.astimezone(dt.UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


@lru_cache(4096)  # most messages of a batch are of few seconds
def _without_year(text: str, now: dt.datetime) -> dt.datetime | None:
    """The time of the year that is next to `now`, in its zone."""
    found = []
    for year in (now.year - 1, now.year, now.year + 1):
        try:
            found.append(dt.datetime.strptime(f"{year} {text}", "%Y %b %d %H:%M:%S").replace(tzinfo=now.tzinfo))
        except ValueError:  # 29 February
            continue
    return min(found, key=lambda moment: abs(moment - now), default=None)


class Framer:
    """Messages out of the bytes of a TCP connection: counted octets where a count stands first, else up to line ends.

    Holds at most one message of MAX_MESSAGE_BYTES.
    """

    _COUNT = re.compile(rb"([1-9]\d{0,8}) (?=<)")

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._left: int | None = None  # of a counted message, behind what is held; None: it ends with its line
        self._dropping = False  # the message was given, cut; its end is looked for

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Messages that end in `data`, and whether each was cut."""
        self._held += data
        found: list[tuple[bytes, bool]] = []
        while self._held and self._step(found):
            pass
        return found

    def finish(self) -> list[tuple[bytes, bool]]:
        """What is held when the connection ends: a last line without its end; half a counted message, cut."""
        held, self._held = bytes(self._held), bytearray()
        return [(held, self._left is not None)] if held.strip() and not self._dropping else []

    def _step(self, found: list[tuple[bytes, bool]]) -> bool:
        """Take one thing off what is held; False where more bytes are needed."""
        if self._left is not None:
            return self._counted(self._left, found)
        if not self._dropping:
            if self._held[0] in b"\n\r\0":
                del self._held[:1]
                return True
            count = self._COUNT.match(self._held)
            if count is not None:
                self._left = int(count[1])
                del self._held[: count.end()]
                return True
            if len(self._held) < 12 and re.fullmatch(rb"[1-9]\d{0,8} ?", self._held):
                return False
        return self._line(found)

    def _counted(self, left: int, found: list[tuple[bytes, bool]]) -> bool:
        if self._dropping:
            gone = min(left, len(self._held))
            del self._held[:gone]
            self._left = left - gone
            if self._left:
                return False
            self._left, self._dropping = None, False
            return True
        wanted = min(left, self._max_bytes)
        if len(self._held) < wanted:
            return False
        found.append((bytes(self._held[:wanted]), left > wanted))
        del self._held[:wanted]
        self._left, self._dropping = (left - wanted, True) if left > wanted else (None, False)
        return True

    def _line(self, found: list[tuple[bytes, bool]]) -> bool:
        line = self._held.find(b"\n")
        null = self._held.find(b"\0", 0, line if line >= 0 else len(self._held))
        end = null if null >= 0 else line
        if self._dropping:
            del self._held[: end + 1 if end >= 0 else len(self._held)]
            self._dropping = end < 0
            return end >= 0
        if end < 0 and len(self._held) <= self._max_bytes:
            return False
        size = end if 0 <= end <= self._max_bytes else self._max_bytes
        found.append((bytes(self._held[:size]), size != end))
        self._dropping = size != end
        del self._held[: size if self._dropping else size + 1]
        return True
