"""Parse lines into times, messages and named parts, many lines at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.written_float import WrittenFloat, json_of, parse_float, parse_int
from aggregator.collect.settings import Files
from aggregator.lql.parse.columns import as_text
from aggregator.lql.text.predicate import as_binary, as_string

_QUOTED = r'(?:[^"\\]|\\.)*'
_COMMON = (
    r"^(?P<client>\S+) \S+ (?P<user>\S+(?: \S+)*?) \[(?P<time>[^\]]+)\] "
    rf'"(?:(?P<method>[A-Z]+) (?P<path>[^ "]+)(?: (?P<protocol>HTTP/[0-9.]+))?|{_QUOTED})" '
    r"(?P<status>[0-9]{3}) (?P<bytes>[0-9]+|-)"
)
_COMBINED = rf'{_COMMON} "(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})"?'
_PAIR = rf'(?:"{_QUOTED}"|[^\s="])?[^\s=]*(?:=(?:"{_QUOTED}"\S*|[^\s"]\S*)?)?'
_ESCAPE = re.compile(
    r"(?P<code>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4})|\\(?P<letter>.)", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
"""The escapes of JSON, with which writers of logfmt quote values."""
WEB_FIELDS = ("client", "user", "method", "path", "protocol", "referer", "agent")
WEB_COLUMNS = {"status": "integer", "bytes": "integer"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The contents of lines. messages: binary. times: text, null if a line has none. parts: texts by name, null if a
    line lacks one. failed: marks lines that do not match the format; they are still messages.
    """

    messages: pa.Array
    times: pa.Array | None = None
    parts: dict[str, pa.Array] = field(default_factory=dict)
    failed: pa.Array | None = None


Parser = Callable[[pa.Array], Parsed]


def parser_of(files: Files) -> Parser:
    """Return the parser for the files' lines (binary, without line ends)."""
    wanted = tuple(dict.fromkeys([*files.fields, *files.columns, *files.tags_from]))
    if files.format == "text":
        return Parsed
    if files.format == "regex":
        return _of_regex(str(files.pattern), files.time or "ts")
    if files.format in ("common", "combined"):
        return _of_regex(_COMMON if files.format == "common" else _COMBINED, files.time or "time")
    if files.format == "logfmt":
        return _of_logfmt(wanted, files.time or "time")
    return _of_json(wanted, files.time or "time")


# ------------------------------------------------------------ regular expressions


def _of_regex(pattern: str, time: str) -> Parser:
    """Parse with a regular expression. The group named by `time` is the time, msg the message, others are parts."""

    def parse(lines: pa.Array) -> Parsed:
        groups = _groups(lines, pattern)
        failed = pc.is_null(groups)
        messages, parts = lines, {}
        for place, group in enumerate(groups.type):
            found = groups.field(place)
            if failed.true_count:
                found = _spread(found.filter(pc.is_valid(groups)), failed)
            if group.name == "msg":
                messages = pc.if_else(failed, lines, found)
            else:
                parts[group.name] = _present(as_text(found))
        return Parsed(messages, parts.pop(time, None), parts, failed)

    return parse


def _groups(lines: pa.Array, pattern: str) -> pa.StructArray:
    """The groups of a pattern, as bytes; null for lines that do not match.

    In a line that is not UTF-8, each byte is a character, as RE2 would not match broken ones; in all others, none is.
    """
    texts = as_text(lines)
    broken = pc.not_equal(as_binary(texts), lines)
    if not broken.true_count:
        return _in_bytes(pc.extract_regex(texts, pattern))
    parts = [
        _in_bytes(pc.extract_regex(texts.filter(pc.invert(broken)), pattern)),
        _in_bytes(pc.extract_regex(lines.filter(broken), pattern)),
    ]
    order = np.argsort(broken.to_numpy(zero_copy_only=False), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order)))


def _in_bytes(groups: pa.StructArray) -> pa.StructArray:
    fields = [as_binary(groups.field(place)) for place in range(groups.type.num_fields)]
    return pa.StructArray.from_arrays(fields, [field.name for field in groups.type], mask=pc.is_null(groups))


def _spread(texts: pa.Array, failed: pa.Array) -> pa.Array:
    """Expand the values of the lines that matched to all lines, with null for those that failed."""
    return pc.replace_with_mask(pa.nulls(len(failed), texts.type), pc.invert(failed), texts)


def _present(texts: pa.Array) -> pa.Array:
    """Replace empty texts, and the dash that web servers write instead, with null."""
    nothing = pc.or_(pc.equal(texts, ""), pc.equal(texts, "-"))
    return pc.if_else(nothing, pa.scalar(None, texts.type), texts)


# ------------------------------------------------------------ logfmt


def _of_logfmt(wanted: Sequence[str], time: str) -> Parser:
    """Parse key=value and key="quoted value", in any order; never a pair within a quoted value, which a missing
    quote extends to the end of the line.
    """
    patterns = {
        name: rf'^(?:{_PAIR}\s+)*?{re.escape(name)}=(?:"(?P<quoted>{_QUOTED}\\?)(?:"|$)|(?P<plain>[^\s"]*))'
        for name in dict.fromkeys([*wanted, time])
    }

    def parse(lines: pa.Array) -> Parsed:
        texts = as_text(lines)
        parts = {}
        for name, pattern in patterns.items():
            found = pc.extract_regex(texts, pattern)
            quoted, plain = found.field("quoted"), found.field("plain")
            value = pc.if_else(pc.equal(quoted, ""), plain, _unescaped(quoted))
            parts[name] = pc.if_else(pc.is_null(found), pa.scalar(None, value.type), value)
        failed = pc.invert(pc.match_substring_regex(as_string(lines), r"^(?:[^{].*\s)?[^\s=\"{]+="))  # not JSON
        return Parsed(lines, parts.pop(time), parts, failed)

    return parse


def _unescaped(texts: pa.Array) -> pa.Array:
    escaped = pc.match_substring(texts, "\\")
    if not escaped.true_count:
        return texts
    plain = [_ESCAPE.sub(_escaped, text) for text in texts.filter(escaped).to_pylist()]
    return pc.replace_with_mask(texts, escaped, pa.array(plain, texts.type))


def _escaped(found: re.Match[str]) -> str:
    """The character that an escape represents; an unknown escape is its character."""
    if found["code"] is None:
        return _ESCAPES.get(found["letter"], found["letter"])
    text: str = json.loads(f'"{found["code"]}"')
    return found[0] if "\ud800" <= text < "\ue000" else text


# ------------------------------------------------------------ JSON


def _of_json(wanted: Sequence[str], time: str) -> Parser:
    """Parse JSON objects; `a.b` is b in a. One at a time, at 1 to 2 µs each: one bad line makes Arrow's reader fail."""
    paths = [(name, name.split(".")) for name in dict.fromkeys([*wanted, time])]
    decode = json.JSONDecoder(parse_float=parse_float, parse_int=parse_int).decode

    def parse(lines: pa.Array) -> Parsed:
        columns: list[list[str | None]] = [[] for _ in paths]
        failed = np.zeros(len(lines), np.bool_)
        for row, text in enumerate(as_text(lines).to_pylist()):
            try:
                held = decode(text)
            except (ValueError, RecursionError):
                held = None
            failed[row] = not isinstance(held, dict)
            for column, (name, steps) in zip(columns, paths, strict=True):
                value = held.get(name) if isinstance(held, dict) else None
                column.append(_text(_inside(held, steps) if value is None and len(steps) > 1 else value))
        arrays = [pa.array([_utf8(value) for value in column], pa.string()) for column in columns]
        parts = {name: array for (name, _), array in zip(paths, arrays, strict=True)}
        return Parsed(lines, parts.pop(time), parts, pa.array(failed))

    return parse


def _inside(held: object, steps: Sequence[str]) -> object:
    for step in steps:
        held = held.get(step) if isinstance(held, dict) else None
    return held


def _text(value: object) -> str | None:
    """Convert a value to text, objects and lists to JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, WrittenFloat):
        return value.text if value.text == "-0" else str(value)  # an integer or a float, as the column has
    try:
        return json_of(value)
    except RecursionError:
        return None


def _utf8(text: str | None) -> str | None:
    """Replace lone surrogates, which JSON may contain, with question marks."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
