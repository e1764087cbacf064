"""Convert lines to events, each with its stream, time, message, fields and typed columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.collect.containers import Unwrapped, join, may_hold, unwrap
from aggregator.collect.lines import split
from aggregator.collect.parsing import WEB_COLUMNS, WEB_FIELDS, Parsed, Parser, parser_of
from aggregator.collect.settings import Files
from aggregator.collect.times import in_lines, to_micros
from aggregator.lql import TagSet
from aggregator.lql.parse.columns import as_text
from aggregator.storage.segments.records import FIELD_MAP, FIELDS
from aggregator.streams.level import LEVEL, LEVEL_TEXT, with_levels

_ARROW = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
MAX_TAG_LENGTH = 512  # characters of a value from a line; a longer value is hardly a name
STREAM = "stream"
"""The field that says whether a container wrote a line to stdout or to stderr."""
_UTF8_MARK = b"\xef\xbb\xbf"  # Windows puts it at the start of files
FAILED = "parse_error"
"""The field of lines that do not match the format; its value is the name of the format."""


@dataclass(slots=True)
class Counts:
    """Counts of stored lines and, of those, the lines that were cut, failed to match the format, or have no time of
    their own (untimed); of unread files; and of patterns that matched no file.
    """

    lines: int = 0
    cut: int = 0
    failed: int = 0
    untimed: int = 0
    unread: int = 0
    unmatched: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another."""
        self.lines += other.lines
        self.cut += other.cut
        self.failed += other.failed
        self.untimed += other.untimed
        self.unread += other.unread
        self.unmatched += other.unmatched


class EventBuilder:
    """Converts bytes of a group of files to events. The same bytes and time always give the same events."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._parse: Parser = parser_of(files)
        web = files.format in ("common", "combined")
        self._columns: Mapping[str, str] = {**(WEB_COLUMNS if web else {}), **files.columns}
        own = WEB_FIELDS if web else ()
        self._fields = None if files.format == "regex" else frozenset((*own, STREAM, *files.fields))

    def events(self, data: bytes, file: str, *, skipping: bool, now_us: int) -> tuple[pa.Table, Counts]:
        """Convert a piece of a file to events, and count its lines. Tags that are too long are cut."""
        lines, wrapping, cut = self._lines(data.removeprefix(_UTF8_MARK), skipping)
        counts = Counts(len(lines), cut)
        parsed = self._parse(lines)
        if wrapping is not None and STREAM not in parsed.parts:
            parsed.parts[STREAM] = wrapping.stream_names
        times, counts.untimed = self._times(parsed, wrapping, now_us)
        if parsed.failed is not None:
            counts.failed = parsed.failed.true_count
        columns = {
            "space": self._streams(parsed, file, len(lines)),
            "timestamp": times.fill_null(now_us).cast(pa.timestamp("us", "UTC")),
            "data": parsed.messages,
        }
        parsed = replace(parsed, parts=with_levels(parsed.messages, parsed.parts))
        typed = {name: _typed(parsed.parts.get(name), _ARROW[kind], len(lines)) for name, kind in self._columns.items()}
        columns |= {FIELDS: self._field_map(parsed, typed), **typed}
        return pa.table(columns), counts

    def _lines(self, data: bytes, skipping: bool) -> tuple[pa.Array, Unwrapped | None, int]:
        """Split a piece into records without wrapping: the messages, the unwrapped data if any, the number cut."""
        cutting, kind = self._files.cutting, self._files.container
        if not may_hold(data, kind):
            records = split(data, cutting, skipping=skipping)
            return self._decoded(records.messages), None, records.cut
        records = split(data, replace(cutting, first_line=None), skipping=skipping)
        found = unwrap(self._decoded(records.messages), kind)
        if not found.streams.any():
            records = split(data, cutting, skipping=skipping)
            return self._decoded(records.messages), None, records.cut
        found = join(found, cutting.first_line).without_empty()
        long = pc.greater(pc.binary_length(found.messages), cutting.max_bytes).true_count
        if long:
            found = replace(found, messages=pc.binary_slice(found.messages, 0, cutting.max_bytes))
        return found.messages, found, records.cut + long

    def _times(self, parsed: Parsed, wrapping: Unwrapped | None, now_us: int) -> tuple[pa.Array, int]:
        """The time of each line in µs since 1970, null for the time of collecting; and the number without own time."""
        zone = self._files.zone
        if parsed.times is not None:
            times = to_micros(as_text(parsed.times), now_us, zone)
        else:
            times = pa.nulls(len(parsed.messages), pa.int64())
        if wrapping is not None:
            times = pc.coalesce(times, to_micros(wrapping.times, now_us))
        if self._files.format == "text" and self._files.time != "none" and times.null_count:
            found, untimed = in_lines(parsed.messages, now_us, zone)
            return pc.coalesce(times, found), untimed if wrapping is None else min(untimed, times.null_count)
        return times, times.null_count if parsed.times is not None else 0

    def _decoded(self, lines: pa.Array) -> pa.Array:
        if self._files.encoding.lower() in ("utf-8", "utf8"):
            return lines  # bytes that are not UTF-8 stay as they are
        texts = [line.decode(self._files.encoding, "backslashreplace").encode() for line in lines.to_pylist()]
        return pa.array(texts, pa.binary())

    def _streams(self, parsed: Parsed, file: str, count: int) -> pa.Array:
        """The canonical text of each line's tags, built once for each distinct set of values."""
        path = os.fsencode(file).decode("utf-8", "backslashreplace")  # names are bytes
        fixed = {**self._files.tags_of_path(path), **self._files.tags}
        if self._files.file_tag:
            fixed[self._files.file_tag] = path
        names = [name for name in self._files.tags_from if name in parsed.parts]
        if not names:
            return pa.repeat(pa.scalar(str(TagSet.cut(fixed)[0])), count)
        coded = [pc.utf8_slice_codeunits(parsed.parts[n], 0, MAX_TAG_LENGTH).dictionary_encode() for n in names]
        codes = np.zeros(count, np.int64)
        for column in coded:
            own = np.asarray(column.indices.fill_null(len(column.dictionary)))
            codes = codes * (len(column.dictionary) + 1) + own
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        rows = pa.array(first)
        values = [column.take(rows).to_pylist() for column in coded]
        texts = []
        for some in zip(*values, strict=True):
            given = {name: value for name, value in zip(names, some, strict=True) if value is not None}
            texts.append(str(TagSet.cut({**fixed, **given})[0]))
        return pa.array(texts).take(pa.array(place))

    def _field_map(self, parsed: Parsed, typed: Mapping[str, pa.Array]) -> pa.Array:
        """The fields as text: parts without a column, values that do not fit their column, tags that were cut."""
        taken = {*self._columns, *self._files.tags_from} - {LEVEL}
        fields = {
            name: texts
            for name, texts in parsed.parts.items()
            if name not in taken and (self._fields is None or name in self._fields or name in (LEVEL, LEVEL_TEXT))
        }
        for name, texts in parsed.parts.items():
            if name in typed:
                fields[name] = pc.if_else(pc.is_null(typed[name]), texts, pa.scalar(None, texts.type))
            elif name in self._files.tags_from:
                cut = pc.greater(pc.utf8_length(texts), MAX_TAG_LENGTH)
                fields[name] = pc.if_else(cut, texts, pa.scalar(None, texts.type))
        if parsed.failed is not None and parsed.failed.true_count:
            name = pa.scalar(self._files.format)
            fields[FAILED] = pc.if_else(parsed.failed, name, pa.scalar(None, pa.string()))
        return map_of(fields.items(), len(parsed.messages))


def map_of(columns: Iterable[tuple[str, pa.Array]], count: int) -> pa.Array:
    """Combine columns of texts into one column of maps, without nulls; a row without entries is null."""
    named = list(columns)
    if not named:
        return pa.nulls(count, FIELD_MAP)
    valid = np.stack([np.asarray(pc.is_valid(texts)) for _, texts in named], axis=1)
    rows, places = np.nonzero(valid)
    joined = pa.concat_arrays([texts.cast(pa.string()) for _, texts in named])
    items = joined.take(pa.array(places * count + rows))
    keys = pa.array([name for name, _ in named]).take(pa.array(places))
    offsets = np.concatenate([[0], np.cumsum(valid.sum(axis=1))])
    empty = np.append(~valid.any(axis=1), False)
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32(), mask=empty), keys, items)


def _typed(texts: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    """Convert texts to a type; null if a text does not fit."""
    if texts is None:
        return pa.nulls(count, kind)
    if pa.types.is_string(kind):
        return texts
    pattern = {
        pa.int64(): r"^[+-]?[0-9]{1,19}$",
        pa.float64(): r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$",
        pa.bool_(): r"^(?:true|false|1|0)$",
    }[kind]
    fits = pc.match_substring_regex(texts, pattern).fill_null(False)
    texts = pc.ascii_ltrim(texts, "+")  # which Arrow does not read
    if kind == pa.int64():
        fits = pc.and_(fits, _is_in_int64(texts))
    found = pc.if_else(fits, texts, pa.scalar(None, pa.string())).cast(kind)
    if not pa.types.is_floating(kind):
        return found
    exact = pc.and_(pc.is_finite(found), _is_exact(texts, found))  # 1e400 is beyond all floats
    return pc.if_else(exact, found, pa.scalar(None, kind))


def _is_exact(texts: pa.Array, found: pa.Array) -> pa.Array:
    """Whether floats equal their texts if these are integers; other numbers are rounded, as everywhere."""
    long = np.asarray(pc.match_substring_regex(texts, r"^-?[0-9]{16,}$").fill_null(False))
    exact = np.ones(len(texts), np.bool_)
    for row in np.flatnonzero(long & np.isfinite(found.to_numpy(zero_copy_only=False))).tolist():
        exact[row] = Decimal(texts[row].as_py()) == Decimal(found[row].as_py())
    return pa.array(exact)


def _is_in_int64(integers: pa.Array) -> pa.Array:
    """Whether integers of up to 19 digits are within the range of an int64. Texts of that length sort as numbers."""
    digits = pc.ascii_ltrim(integers, "-")
    most = pc.if_else(pc.starts_with(integers, "-"), str(2**63), str(2**63 - 1))
    return pc.or_(pc.less(pc.utf8_length(digits), 19), pc.less_equal(digits, most)).fill_null(False)
