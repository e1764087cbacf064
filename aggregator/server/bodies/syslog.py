"""Syslog messages in any common format as records of streams. Pure.

Host and app name the stream; priority, process, message id and structured data become fields. Supported are RFC 5424,
RFC 3164 as it is sent in practice (with and without a host, a year, fractions, a zone), and the formats of Cisco and
FortiGate. No text is lost: a message in an unknown format is kept whole.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import Any

from aggregator.server.bodies.shared.records import TAGS_AND_RECORD, free_name
from aggregator.server.bodies.shared.refusals import Count, ignore
from aggregator.streams.level import SYSLOG_LEVELS

MAX_NAME_BYTES = 255
"""Limit on a host, app, process or message id. RFC 5424 allows 48 for an app, which many senders exceed."""
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_PRIORITIES = [
    {"facility": facility, "severity": severity, "level": level}
    for facility in _FACILITIES
    for severity, level in zip(_SEVERITIES, SYSLOG_LEVELS, strict=True)
]
_PRIORITY = re.compile(rb"\s{0,64}+<(\d{1,3})>")

# RFC 5424's structured data. A parameter may have a space after its `=`, as in an example of the RFC.
_ELEMENT = re.compile(
    rb"\[([^\]\"= ]{1,255}+)((?: [^\]\"= ]{1,255}+= ?\"[^\"\\]*+(?:\\.[^\"\\]*+|(?!))*+\"|(?!))*+) ?\]", re.DOTALL
)
_PARAMETER = re.compile(rb" ([^\]\"= ]++)= ?\"([^\"\\]*+(?:\\.[^\"\\]*+|(?!))*+)\"", re.DOTALL)
_ESCAPED = re.compile(rb"\\([\"\\\]])")

# The times of RFC 3164, with what senders add. Before the time: Cisco's sequence number, host or card, and the sign for
# an unsynchronised clock.
_CLOCK = rb"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_DAY_AHEAD = dt.timedelta(days=1)
_DAY = rb"(?P<month>[A-Za-z]{3}) {1,2}(?P<day>\d{1,2}) (?:(?P<year>\d{4}) )?"
_OLD_TIME = re.compile(
    rb" {0,4}+(?:(?P<sequence>\d{1,10}+)?: ?(?:(?P<origin>[A-Za-z][^\s:]{0,254}+): ?)?)?(?P<sign>[*.])?"
    rb"(?:(?P<year_before>\d{4}) )?" + _DAY + _CLOCK + rb"(?: (?P<year_after>(?:199|20\d)\d)(?= ))?"
    rb"(?: (?P<zone>[A-Za-z]{1,7}|[+-]\d\d:?\d\d)(?=[ :]|\Z))?:?(?: {1,2}|\Z)"
)
_ISO_TIME = re.compile(
    rb" {0,4}+(?P<date>\d{4}-\d\d-\d\d)[T ]" + _CLOCK + rb"(?: ?(?P<zone>[Zz]|[+-]\d\d:?\d\d))?:?(?: {1,2}|\Z)"
)
_FORTIGATE = re.compile(rb"date=(?P<date>\d{4}-\d\d-\d\d) time=(?P<clock>\d\d:\d\d:\d\d) ")
_FORTIGATE_NAME = re.compile(rb' devname="?([^" ]{1,255}+)')
_FORTIGATE_ZONE = re.compile(rb' tz="?([+-]\d\d:?\d\d)')
_FIRST_BYTES = 1_024
"""The part of a FortiGate's message that is searched for its name and zone."""

# What follows the time. A host has the characters of names and addresses; a tag ends with a colon or a process.
_HOST = re.compile(rb"(?:([0-9A-Za-z_\x80-\xff][\w./@:%\x80-\xff-]{0,254}+)(?<!:)|\[([\w.:%-]{1,253}+)\]|-)(?: |\Z)")
_ADDRESS = re.compile(rb"[0-9A-Fa-f:.]{1,45}[0-9A-Fa-f](?: |\Z)")
_TAG = re.compile(  # a number alone is not an app: it counts messages, and each would be a stream
    rb"(?!\d{1,255}+:)(?P<app>[^\s:\[\]\"={}<>]{1,255}+)"
    rb"(?:\[(?P<pid>[^\]\s]{1,255}+)\](?::? |:?\Z|:)|: |:\Z|(?<=[A-Za-z_]):(?![/\\:=\d\s]))"
)
_MNEMONIC = re.compile(rb"(?:: ?)?(?P<id>%(?P<app>[A-Z][\w-]{0,64}?)-[0-7]-\w{1,64}+) ?:(?: |\Z)")
_UPTIME = re.compile(rb" {0,4}+(?P<sequence>\d{1,10}+)?: (?:(?P<uptime>(?:[\d.dhwy]|:(?! )|(?!)){2,16}+): )?(?=%)")
_ENDS_WITH_PID = re.compile(rb"([^\[\]]++)\[([^\]]++)\]")
_MONTHS = {name: number for number, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_ZONES = {
    b"Z": 0, b"UTC": 0, b"GMT": 0, b"WET": 0, b"WEST": 60, b"BST": 60, b"CET": 60, b"CEST": 120, b"MEZ": 60,
    b"MESZ": 120, b"EET": 120, b"EEST": 180, b"SAST": 120, b"MSK": 180, b"IST": 330, b"SGT": 480, b"HKT": 480,
    b"JST": 540, b"KST": 540, b"AWST": 480, b"ACST": 570, b"ACDT": 630, b"AEST": 600, b"AEDT": 660, b"NZST": 720,
    b"NZDT": 780, b"NST": -210, b"NDT": -150, b"AST": -240, b"ADT": -180, b"EST": -300, b"EDT": -240, b"CST": -360,
    b"CDT": -300, b"MST": -420, b"MDT": -360, b"PST": -480, b"PDT": -420, b"AKST": -540, b"AKDT": -480, b"HST": -600,
    b"BRT": -180, b"ART": -180,
}  # fmt: skip
"""Minutes east of UTC. Ambiguous names have the meaning of RFC 822, or else the most common one."""
_MARK = b"\xef\xbb\xbf"
_NONE = b"-"


def read_message(
    message: bytes, peer: str, now: dt.datetime, *, cut: bool = False, count: Count = ignore
) -> TAGS_AND_RECORD:
    """Return the record of a message and the tags of its stream. Nothing is refused; unknown formats are counted.

    peer: the sender's address, used if the message names no host. now: an aware time. Times without a year are the
    latest at most a day after it, and those without a zone are in its zone.
    """
    record: dict[str, Any] = {"truncated": True} if cut else {}
    priority = _PRIORITY.match(message)
    rest = message
    if priority is not None and (value := int(priority[1])) < len(_PRIORITIES):
        record |= _PRIORITIES[value]
        rest = message[priority.end() :]
    tags = {"host": peer}
    if not (_new(rest, tags, record, now) or _old(rest, tags, record, now) or _fortigate(rest, tags, record, now)):
        record["ts"] = now
        if rest is not message:  # only after a priority: other lines are just text
            rest = _app(_uptime(rest, record), tags, record)
        if "app" not in tags:
            count("unparsed", why=f"the last from {peer}")
        record["msg"] = _text(rest)
    return tags, record


# ------------------------------------------------------------ RFC 5424


def _new(rest: bytes, tags: dict[str, str], record: dict[str, Any], now: dt.datetime) -> bool:
    """Parse a message of RFC 5424. Return False, and change nothing, if it is not one."""
    parts = rest.lstrip(b" ").split(b" ", 6)
    if len(parts) < 6 or parts[0] != b"1" or max(map(len, parts[2:6])) > MAX_NAME_BYTES:
        return False
    moment = now if parts[1] == _NONE else _iso(parts[1], now)
    if moment is None or not all(parts[2:6]):
        return False
    _, _, host, app, pid, message_id, *behind = parts
    if host != _NONE:
        tags["host"] = _decoded(host)
    if app != _NONE:
        if pid == _NONE and app.endswith(b"]") and (found := _ENDS_WITH_PID.fullmatch(app)):
            app, pid = found[1], found[2]
        tags["app"] = _decoded(app)
    if pid != _NONE:
        record["pid"] = _decoded(pid)
    if message_id != _NONE:
        record["msgid"] = _decoded(message_id)
    text = behind[0] if behind else b""
    if text[:1] == b"[":
        text = _structured(text, record)
    elif text == _NONE or text[:2] == b"- ":
        text = text[2:]
    record["ts"], record["msg"] = moment, _text(text.removeprefix(_MARK))
    return True


def _structured(text: bytes, record: dict[str, Any]) -> bytes:
    """Store the structured data at the start of a text as fields, and return the text after it."""
    at, found = 0, []
    while text[at : at + 1] == b"[" and (element := _ELEMENT.match(text, at)):
        found.append(element)
        at = element.end()
    if at != len(text) and text[at : at + 1] != b" ":
        return text  # not structured data
    values: dict[str, list[str]] = {}  # several per parameter: RFC 5424 allows repetition
    for element in found:
        name = _decoded(element[1])
        if not element[2]:
            record[free_name(name, "sd.", record)] = ""
        for parameter in _PARAMETER.finditer(element[2]):
            field = f"{name}.{_decoded(parameter[1])}"
            given = parameter[2] if b"\\" not in parameter[2] else _ESCAPED.sub(rb"\1", parameter[2])
            values.setdefault(field, []).append(_decoded(given))
    record |= {field: several if len(several) > 1 else several[0] for field, several in values.items()}
    return text[at + 1 :]


# ------------------------------------------------------------ older forms


def _old(rest: bytes, tags: dict[str, str], record: dict[str, Any], now: dt.datetime) -> bool:
    """Parse a message of RFC 3164, which begins with a time. Return False, and change nothing, if it does not."""
    found = _OLD_TIME.match(rest)
    if found is not None:
        at, moment = _old_moment(found, now)
        if moment is None:
            return False
        if found["sequence"]:
            record["meta.sequenceId"] = found["sequence"].decode()
        if found["sign"]:
            record["timeQuality.isSynced"] = "0"
        named = found["origin"] is not None
        if named and b"/" in found["origin"]:  # IOS XR names the card
            record["node"] = _decoded(found["origin"])
        elif named:
            tags["host"] = _decoded(found["origin"])
    else:
        found = _ISO_TIME.match(rest)
        moment = None if found is None else _iso_moment(found, now)
        if found is None or moment is None:
            return False
        at, named = found.end(), False
    text = rest[at:]
    if not named:
        text = _host(text, tags)
    record["ts"], record["msg"] = moment, _text(_app(text, tags, record))
    return True


def _host(text: bytes, tags: dict[str, str]) -> bytes:
    """Remove a host from the start of a text, if there is one."""
    if _MNEMONIC.match(text) or (_TAG.match(text) and not _ADDRESS.match(text)):
        return text
    if text.startswith(b"Message forwarded from "):  # AIX
        name, colon, behind = text[23:].partition(b": ")
        if colon and 0 < len(name) <= MAX_NAME_BYTES and b" " not in name:
            tags["host"] = _decoded(name)
            return behind
    found = _HOST.match(text)
    if found is None or text.startswith(b"last message repeated "):
        return text
    if found[1] or found[2]:
        tags["host"] = _decoded(found[1] or found[2])
    return text[found.end() :]


def _app(text: bytes, tags: dict[str, str], record: dict[str, Any]) -> bytes:
    """Remove an app and its process, or Cisco's message id, from the start of a text, if there are any."""
    found = _MNEMONIC.match(text)
    if found is not None:
        tags["app"], record["msgid"] = _decoded(found["app"]), _decoded(found["id"])
        return text[found.end() :]
    found = _TAG.match(text)
    if found is None:
        return text
    tags["app"] = _decoded(found["app"])
    if found["pid"]:
        record["pid"] = _decoded(found["pid"])
    return text[found.end() :]


def _uptime(text: bytes, record: dict[str, Any]) -> bytes:
    """Remove the sequence number and the uptime of a Cisco without a clock from the start of a text."""
    found = _UPTIME.match(text)
    if found is None:
        return text
    for name, group in (("meta.sequenceId", "sequence"), ("uptime", "uptime")):
        if found[group]:
            record[name] = found[group].decode()
    return text[found.end() :]


def _fortigate(rest: bytes, tags: dict[str, str], record: dict[str, Any], now: dt.datetime) -> bool:
    """Read the time and the host from a FortiGate's key=value pairs; the message keeps all pairs."""
    found = _FORTIGATE.match(rest)
    if found is None:
        return False
    zone, name = _FORTIGATE_ZONE.search(rest, 0, _FIRST_BYTES), _FORTIGATE_NAME.search(rest, 0, _FIRST_BYTES)
    moment = _iso_second(found["date"], found["clock"], zone and zone[1], now)
    if moment is None:
        return False
    if name:
        tags["host"] = _decoded(name[1])
    record["ts"], record["msg"] = moment, _text(rest)
    return True


def _text(text: bytes) -> str | bytes:
    text = text.rstrip(b"\r\n\0")
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def _decoded(text: bytes) -> str:
    r"""Decode text of a tag or field; invalid UTF-8 is escaped, as `\xff`."""
    return text.decode("utf-8", "backslashreplace")


# ------------------------------------------------------------ times


def _iso(text: bytes, now: dt.datetime) -> dt.datetime | None:
    found = _ISO_TIME.fullmatch(text)
    return None if found is None else _iso_moment(found, now)


def _iso_moment(found: re.Match[bytes], now: dt.datetime) -> dt.datetime | None:
    date, clock, fraction, zone = found.group("date", "clock", "fraction", "zone")
    return _with_fraction(_iso_second(date, clock, zone, now), fraction)


def _old_moment(found: re.Match[bytes], now: dt.datetime) -> tuple[int, dt.datetime | None]:
    """Return where the rest of a message begins, and its time; None if the time is invalid."""
    month, day, clock, fraction, zone, *years = found.group(
        "month", "day", "clock", "fraction", "zone", "year", "year_before", "year_after"
    )
    at = found.end()
    if zone is not None and _zone(zone) is None:
        if not found.string.startswith(b": %", found.end("zone")):  # else it is an unknown zone
            at = found.start("zone")
        zone = None
    moment = _old_second(month, day, next(filter(None, years), None), clock, zone, now)
    return at, _with_fraction(moment, fraction)


def _with_fraction(moment: dt.datetime | None, digits: bytes | None) -> dt.datetime | None:
    if moment is None or digits is None:
        return moment
    return moment + dt.timedelta(0, 0, int(digits[:6].ljust(6, b"0")))


@lru_cache(1024)
def _zone(text: bytes) -> dt.tzinfo | None:
    """Return the zone for a name or for hours and minutes; None if it is unknown."""
    if text[:1] in b"+-":
        minutes = int(text[1:3]) * 60 + int(text[-2:])
        return dt.timezone(dt.timedelta(minutes=-minutes if text[:1] == b"-" else minutes)) if minutes < 1440 else None
    known = _ZONES.get(text)
    return None if known is None else dt.timezone(dt.timedelta(minutes=known))


@lru_cache(4096)  # most messages of a batch fall into few seconds
def _iso_second(date: bytes, clock: bytes, zone: bytes | None, now: dt.datetime) -> dt.datetime | None:
    tz = now.tzinfo if zone is None else _zone(zone.upper())
    try:
        found = dt.datetime.fromisoformat(f"{date.decode()} {clock.decode()}").replace(tzinfo=tz)
        return found.astimezone(dt.UTC) if tz is not None else None
    except (ValueError, OverflowError):
        return None


@lru_cache(4096)
def _old_second(
    month: bytes, day: bytes, year: bytes | None, clock: bytes, zone: bytes | None, now: dt.datetime
) -> dt.datetime | None:
    """Return a time in a zone. Without a year: the latest that is at most a day ahead, as clocks and zones differ."""
    number, tz = _MONTHS.get(month.lower(), 0), now.tzinfo if zone is None else _zone(zone)
    hour, minute, second = map(int, clock.split(b":"))
    found = []
    for each in (now.year - 1, now.year, now.year + 1) if year is None else (int(year),):
        try:
            found.append(dt.datetime(each, number, int(day), hour, minute, second, tzinfo=tz))
        except ValueError:  # 29 February, or no such time
            continue
    return max((moment for moment in found if moment <= now + _DAY_AHEAD), default=min(found, default=None))
