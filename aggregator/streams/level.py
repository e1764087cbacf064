"""One `level` for log records of all senders: trace, debug, info, warn, error or fatal.

It is derived from the conventions of senders (OTLP, syslog, journald, ECS, loggers of many languages), and from
messages in JSON, logfmt or klog format. The sender's own field is kept; if it is named `level` and has a different
value, it is kept as `level_text`. Words are interpreted as in Grafana's table of log levels; numbers as in
OpenTelemetry, syslog, pino or Python, depending on the name of the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LEVEL = "level"
LEVEL_TEXT = "level_text"
"""The field for a sender's `level` that is not a word of LEVELS."""
LEVELS = ("trace", "debug", "info", "warn", "error", "fatal")
SYSLOG_LEVELS = ("fatal", "fatal", "fatal", "error", "warn", "info", "info", "debug")
"""By severity, from emerg to debug."""
_WORDS = {
    "trace": "trace trc verbose finest finer silly",
    "debug": "debug dbg dbug fine",
    "info": "info information informational inf notice success log",
    "warn": "warn warning wrn",
    "error": "error err eror erro severe",
    "fatal": "fatal ftl critical crit alert emerg emergency panic dpanic",
}
_LEVEL_OF = {word: level for level, words in _WORDS.items() for word in words.split()}
_LETTERS = {
    "t": "trace", "v": "trace", "d": "debug", "i": "info", "n": "info", "w": "warn", "e": "error", "f": "fatal",
    "c": "fatal",
}  # fmt: skip
_LEVEL_OF |= _LETTERS
_LONGEST_WORD = 16

_OTLP, _SYSLOG, _PYTHON, _ANY = "otlp", "syslog", "python", "any"
_NAMES = {
    _OTLP: "severity_number severityNumber SeverityNumber",
    _ANY: "level severity severity_text severityText SeverityText log.level loglevel log_level logLevel LogLevel lvl "
    "detected_level levelname level_name Level LEVEL Severity SEVERITY @l",
    _SYSLOG: "PRIORITY syslog.severity.code",
    _PYTHON: "levelno",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_RANKS = {name: rank for rank, name in enumerate(_KINDS)}
"""Names of fields with a level, the meaning of numbers in them, and their precedence."""
_STEPS_OF_TEN = {10: "trace", 20: "debug", 30: "info", 40: "warn", 50: "error", 60: "fatal"}  # pino, bunyan

_MOST_BYTES = 65_536
"""Longest message in which a level is searched for."""
_IN_MESSAGES = ("level", "lvl", "severity", "loglevel", "log_level", "log.level", "levelname", "logLevel", "Level",
                "Severity", "severity_text", "SeverityText", "@l")  # fmt: skip
_NAME = b"(?:%b)" % "|".join(map(re.escape, _IN_MESSAGES)).encode()
_SPACE = rb"[\t-\r ]"  # of ASCII: what \s matches differs between Python and Arrow
_JSON = re.compile(
    b"^" + _SPACE + rb'*\{[^{}\[\]]*?"' + _NAME + rb'"\s*:\s*"?(?P<value>[A-Za-z]{1,16}|\d{1,2})"?\s*[,}]'
)
"""Matches a level before all nested objects and lists, so that no inner one is mistaken for it."""
_LOGFMT = re.compile(
    rb'^(?:[^"]|"(?:[^"\\]|\\.)*")*?(?:^|'
    + _SPACE
    + b")"
    + _NAME
    + rb'=(?:"(?P<quoted>[A-Za-z]{1,16})"|(?P<plain>[A-Za-z]{1,16}))(?:'
    + _SPACE
    + b"|$)",
    re.DOTALL,
)
"""Never matches a pair inside quotes."""
_KLOG = re.compile(rb"(?P<letter>[IWEF])[01]\d[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d\.\d")
_JSON_LINES = r'(?s)^[\t-\r ]*\{.*(?:evel|everity|lvl|@l|_text|evelname)"'
_LOGFMT_LINES = r'(?:evel|everity|lvl|evelname|_text|erityText|@l)="?[A-Za-z]'
_KLOG_LINES = r"^[IWEF][01]\d[0-3]\d [0-2]\d:"
"""Prefilters: every message with a readable level matches one of these patterns."""


def level_of(value: Any, name: str = LEVEL) -> str | None:
    """The level of a value in a field of that name; None if it does not name one."""
    if isinstance(value, str):
        return _level_of_text(value, name) if len(value) <= _LONGEST_WORD else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _level_of_number(value, _KINDS.get(name, _ANY))


@lru_cache(1024)
def _level_of_text(text: str, name: str) -> str | None:
    word = text.strip().lower()
    if word in _LEVEL_OF:
        return _LEVEL_OF[word]
    if word.isascii() and word.isdigit():
        return _level_of_number(int(word), _KINDS.get(name, _ANY))
    found = re.fullmatch(r"(trace|debug|info|warn|error|fatal)[1-4]", word)  # OpenTelemetry's short names
    return found[1] if found else None


def _level_of_number(number: float, kind: str) -> str | None:
    if not 0 <= number <= 1_000:
        return None
    if kind == _OTLP:
        return LEVELS[min(int(number - 1) // 4, 5)] if 1 <= number <= 24 else None
    if kind == _PYTHON:
        return python_level(number)
    if number in _STEPS_OF_TEN and kind == _ANY:
        return _STEPS_OF_TEN[int(number)]
    return SYSLOG_LEVELS[int(number)] if number in range(8) else None


def python_level(number: float) -> str:
    """The level for a number of Python's `logging`."""
    return LEVELS[min(max(int(number // 10), 0), 5)]


def add_level(record: dict[str, Any], tags: Mapping[str, str] | None = None, *, words: bool = False) -> bool:
    """Set a record's `level` from a field or a tag; return whether it has one then.

    words: ignore numbers whose meaning the field's name does not define, for records that may not be logs.
    """
    own = record.get(LEVEL)
    if own.__class__ is str and own in LEVELS and "severity_number" not in record:
        return True
    level = _stated_level(record, words) or (_stated_level(tags, words) if tags else None)
    if level is None:
        return False
    if own is not None and own != level and LEVEL_TEXT not in record:
        record[LEVEL_TEXT] = own
    record[LEVEL] = level
    return True


def add_level_of_all(record: dict[str, Any], tags: Mapping[str, str]) -> None:
    """Set a record's `level` from a field or a tag, or otherwise from the message."""
    if add_level(record, tags) or record.get(LEVEL) is not None:
        return
    message = record.get("msg")
    if message and (level := level_in(message.encode("utf-8", "replace") if isinstance(message, str) else message)):
        record[LEVEL] = level


def _stated_level(fields: Mapping[str, Any], words: bool = False) -> str | None:
    """The level in the field with the highest precedence."""
    names = [name for name in fields if name in _RANKS]
    if len(names) > 1:
        names.sort(key=_RANKS.__getitem__)
    for name in names:
        value = fields[name]
        if words and not isinstance(value, str) and _KINDS[name] == _ANY:
            continue
        if (level := level_of(value, name)) is not None:
            return level
    inner = fields.get("log")
    return level_of(inner.get(LEVEL)) if isinstance(inner, dict) else None


def level_in(message: bytes) -> str | None:
    """The level in a message of a common format: JSON, logfmt, klog's. Words in sentences do not count."""
    if message[:1] in (b"I", b"W", b"E", b"F") and (klog := _KLOG.match(message)):
        return _LETTERS[klog[1].decode().lower()]
    hinted = b"evel" in message or b"everity" in message or b"lvl" in message or b"@l" in message
    if not hinted or len(message) > _MOST_BYTES:
        return None
    if message.lstrip()[:1] != b"{":
        pair = _LOGFMT.match(message)
        return level_of((pair["quoted"] or pair["plain"]).decode()) if pair else None
    member = _JSON.match(message)
    level = level_of(member["value"].decode()) if member else None
    return _in_object(message) if level is None else level


def _in_object(message: bytes) -> str | None:
    """The level of a JSON object in which nested values precede it, or several fields name it."""
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return _stated_level(found) if isinstance(found, dict) else None


# ------------------------------------------------------------ columns


def with_levels(messages: pa.Array, parts: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Add `level` to the fields of records, given as text columns by name, like `add_level_of_all` for each record.

    messages: binary. `level_text` is added if needed.
    """
    levels = _levels(messages, parts)
    made = dict(parts)
    own = parts.get(LEVEL)
    if own is not None:
        differs = pc.and_(pc.is_valid(levels), pc.not_equal(own, levels)).fill_null(False)
        if differs.true_count and LEVEL_TEXT not in parts:
            made[LEVEL_TEXT] = pc.if_else(differs, own, pa.scalar(None, own.type))
        made[LEVEL] = pc.coalesce(levels, own.cast(pa.string()))
    elif levels.null_count < len(levels):
        made[LEVEL] = levels
    return made


def _levels(messages: pa.Array, parts: Mapping[str, pa.Array]) -> pa.Array:
    levels = pa.nulls(len(messages), pa.string())
    for name in sorted(parts.keys() & _RANKS.keys(), key=_RANKS.__getitem__):
        coded = parts[name].dictionary_encode()
        known = pa.array([level_of(text, name) for text in coded.dictionary.to_pylist()], pa.string())
        levels = pc.coalesce(levels, known.take(coded.indices))
    unknown = pc.is_null(levels)
    if LEVEL in parts:  # values that are not understood are kept
        unknown = pc.and_(unknown, pc.is_null(parts[LEVEL]))
    for candidates, read in ((_KLOG_LINES, _in_klog), (_JSON_LINES, _in_json), (_LOGFMT_LINES, _in_logfmt)):
        maybe = pc.and_(unknown, pc.match_substring_regex(messages, candidates)).fill_null(False)
        if maybe.true_count:
            found = read(messages.filter(maybe))
            levels = pc.replace_with_mask(levels, maybe, found)
            unknown = pc.and_(unknown, pc.is_null(levels))
    return levels


def _in_json(messages: pa.Array) -> pa.Array:
    levels = _known(pc.extract_regex(messages, _JSON.pattern).field("value"))
    rest = pc.is_null(levels)
    if not rest.true_count:
        return levels
    found = [level_in(message) for message in messages.filter(rest).to_pylist()]
    return pc.replace_with_mask(levels, rest, pa.array(found, pa.string()))


def _in_logfmt(messages: pa.Array) -> pa.Array:
    pair = pc.extract_regex(messages, b"(?s)" + _LOGFMT.pattern)
    words = pc.if_else(pc.equal(pair.field("quoted"), b""), pair.field("plain"), pair.field("quoted"))
    is_json = pc.match_substring_regex(messages, b"^" + _SPACE + rb"*\{")  # even if broken
    return _known(pc.if_else(is_json, None, words))


def _in_klog(messages: pa.Array) -> pa.Array:
    return _known(pc.extract_regex(messages, b"^" + _KLOG.pattern).field("letter"))


def _known(words: pa.Array) -> pa.Array:
    """The levels for words."""
    coded = words.cast(pa.string()).dictionary_encode()
    return pa.array([level_of(word) for word in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)
