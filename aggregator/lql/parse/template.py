"""Format strings: `{ts} {vars:name}: {msg}`, compiled once, rendered by batch on demand.

{msg}  {msg.json()}          the message; the message as a JSON string
{ts}  {ts.format(LAYOUT)}    the time, in RFC 3339 with whole seconds or in the layout (see `layout`)
{vars}  {vars:NAME}          all tags and fields; one of them, a field before a tag, empty if there is none
{{  {}                       {  }
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.parse.columns import Columns, as_text, decoded
from aggregator.lql.parse.tag_set import written
from aggregator.lql.parse.tag_text import each_written, tag_lists, tag_values
from aggregator.lql.text.layout import Layout
from aggregator.lql.text.predicate import as_binary

MAX_PIECES = 200
MAX_LENGTH = 4_000  # characters, including layouts of times
_PIECE = re.compile(r"(?P<open>\{\{)|(?P<close>\{\})|\{(?P<what>[^{}]+)\}|(?P<text>[^{}]+|\})|(?P<wrong>\{)", re.DOTALL)
_SECONDS = "2006-01-02T15:04:05Z07:00"
_TS = re.compile(r"ts\.format\((.*)\)", re.DOTALL | re.IGNORECASE)
_NEEDS_ESCAPE = r'[\x00-\x1f"\\\x7f]'


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a format string: what it prints, and the columns that it reads."""

    render: Callable[[pa.RecordBatch, Columns], pa.Array | pa.Scalar]
    reads: Callable[[Columns], set[str | None]]


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled format string."""

    text: str
    parts: tuple[Part, ...]

    @classmethod
    def compile(cls, text: str, mark: Mark | None = None) -> Self:
        """Raises LqlError, at `mark` if given."""
        if len(text) > MAX_LENGTH:
            raise LqlError(f"the format string has {len(text)} characters, more than {MAX_LENGTH}", mark=mark)
        parts: list[Part] = []
        literal = ""
        for found in _PIECE.finditer(text):
            if found["what"] is None and found["wrong"] is None:
                literal += "{" if found["open"] else "}" if found["close"] else found["text"]
                continue
            if literal:
                parts.append(_literal(literal))
                literal = ""
            parts.append(_part(found, mark))
        if literal or not parts:
            parts.append(_literal(literal))
        if len(parts) > MAX_PIECES:
            raise LqlError(f"the format string has {len(parts)} parts, more than {MAX_PIECES}", mark=mark)
        return cls(text, tuple(parts))

    def reads(self, columns: Columns) -> list[str]:
        """Names of the columns that `render` reads, in the order of the schema."""
        read = set[str | None]().union(*(part.reads(columns) for part in self.parts))
        return [name for name in columns.schema.names if name in read]

    def render(self, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
        """One text per row, large_string without nulls. Broken bytes of a message become U+FFFD."""
        return as_text(self.render_bytes(batch, columns))

    def render_bytes(self, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
        """One text per row, large_binary without nulls, with the unchanged bytes of messages."""
        made = [part.render(batch, columns).cast(pa.large_binary()) for part in self.parts]
        texts = [
            pa.repeat(part, batch.num_rows) if isinstance(part, pa.Scalar) else part.fill_null(b"") for part in made
        ]
        if len(texts) == 1:
            return texts[0]
        return pc.binary_join_element_wise(*texts, pa.scalar(b"", pa.large_binary()))


def check_template(text: str, mark: Mark | None) -> None:
    """Raises LqlError if `text` is not a format string."""
    Template.compile(text, mark)


def _part(found: re.Match[str], mark: Mark | None) -> Part:
    what = (found["what"] or "").strip()
    lower = what.lower()
    if found["wrong"] is not None:
        raise LqlError(
            f"{{ at character {found.start() + 1} of the format string is not closed",
            mark=mark,
            hint="write {{ for a literal brace",
        )
    if lower == "msg":
        return Part(_message, lambda columns: {columns.message})
    if lower in ("msg.json", "msg.json()"):
        return Part(_json, lambda columns: {columns.message})
    if lower == "ts":
        return _times(Layout.of(_SECONDS))
    layout = _TS.fullmatch(what)
    if layout is not None:
        try:
            return _times(Layout.of(layout[1].strip("\"'")))
        except ValueError as error:
            raise LqlError(f"{error} in {{{what}}}", mark=mark) from None
    if lower == "vars":
        return Part(_all_vars, lambda columns: {columns.tags, columns.extra, *columns.fields})
    if lower.startswith("vars:"):
        name = what[len("vars:") :].strip()
        if not name:
            raise LqlError(
                "{vars:} lacks the name of a tag or field", mark=mark, hint="write {vars:name}, or {vars} for all"
            )
        return _var(name)
    raise LqlError(
        f"unknown placeholder {{{what}}} in the format string",
        mark=mark,
        hint="use {msg}, {msg.json()}, {ts}, {ts.format(2006-01-02)}, {vars} or {vars:name}, or {{ for a literal brace",
    )


def _literal(text: str) -> Part:
    return Part(lambda batch, columns: pa.scalar(text), lambda columns: set())


def _message(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    return as_binary(decoded(batch.column(columns.message)))


def _json(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    texts = as_text(batch.column(columns.message)).cast(pa.large_string()).fill_null("")
    mark, nothing = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    quoted = pc.binary_join_element_wise(mark, texts, mark, nothing)
    special = pc.match_substring_regex(texts, _NEEDS_ESCAPE)
    if special.true_count == 0:
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.large_string()))


def _times(layout: Layout) -> Part:
    return Part(
        lambda batch, columns: layout.render(micros(batch.column(columns.timestamp))),
        lambda columns: {columns.timestamp},
    )


def micros(times: pa.Array) -> pa.Array:
    """Timestamps of any unit, or integers in microseconds, as int64 microseconds."""
    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
    return times.cast(pa.int64())


def _var(name: str) -> Part:
    def render(batch: pa.RecordBatch, columns: Columns) -> pa.Array | pa.Scalar:
        found = var_text(batch, columns, name)
        return pa.scalar("") if found is None else found

    return Part(render, lambda columns: {columns.tags, columns.extra, *({name} & set(columns.fields))})


def var_text(batch: pa.RecordBatch, columns: Columns, name: str) -> pa.Array | None:
    """The field, or otherwise the tag of each row's stream, as text; null if there is neither. None if no row has it.

    A tag takes precedence over an empty field.
    """
    sets = _tag_sets(batch, columns)
    tag = None if sets is None else _of_each(sets, lambda texts: tag_values(texts, name))
    value = field_text(batch, columns, name)
    if tag is None or value is None:
        return value if tag is None else tag
    tag, value = tag.cast(pa.large_string()), value.cast(pa.large_string())
    return pc.coalesce(pc.if_else(pc.equal(value, ""), None, value), tag, value)


def _all_vars(batch: pa.RecordBatch, columns: Columns) -> pa.Array | pa.Scalar:
    """Tags, then existing fields, in the form of a tag list without braces."""
    sets = _tag_sets(batch, columns)
    parts = [None if sets is None else _of_each(sets, tag_lists)]
    parts += [_assignments(name, as_text(batch.column(name))) for name in columns.fields]
    if columns.extra is not None:
        parts.append(_mapped(batch.column(columns.extra)))
    there = [part.cast(pa.large_string()) for part in parts if part is not None]
    if not there:
        return pa.scalar("")
    some = reduce(pc.or_, [pc.is_valid(part) for part in there])
    there[0] = pc.if_else(some, there[0], "")  # Arrow omits rows that are null everywhere
    return pc.binary_join_element_wise(*there, pa.scalar(",", pa.large_string()), null_handling="skip")


def _tag_sets(batch: pa.RecordBatch, columns: Columns) -> pa.DictionaryArray | None:
    """The text of each row's tag set; None if batches do not contain the stream."""
    if columns.tags is None or columns.tags not in batch.schema.names:
        return None
    return as_text(batch.column(columns.tags)).dictionary_encode()


def _of_each(sets: pa.DictionaryArray, made: Callable[[pa.Array], pa.Array]) -> pa.Array:
    return made(sets.dictionary).take(sets.indices)


def field_text(batch: pa.RecordBatch, columns: Columns, name: str) -> pa.Array | None:
    """The field as text, null if absent; None if no row has it."""
    column = as_text(batch.column(name)) if name in columns.fields else None
    if columns.extra is None:
        return column
    mapped = batch.column(columns.extra)
    extra = as_text(pc.map_lookup(mapped, pa.scalar(name, mapped.type.key_type), "first"))
    return extra if column is None else pc.coalesce(column.cast(extra.type), extra)


def _assignments(name: str, texts: pa.Array) -> pa.Array:
    """name=value per row, null if the value is null."""
    return _joined(pa.scalar(written(name), pa.large_string()), each_written(texts))


def _mapped(maps: pa.MapArray) -> pa.Array:
    """name=value for all entries of each map, separated by commas; null if there are none."""
    bounds = np.asarray(maps.offsets)
    first, last = int(bounds[0]), int(bounds[-1])
    names, values = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    texts = _joined(each_written(as_text(names)), each_written(as_text(values).fill_null("")))
    lists = pa.ListArray.from_arrays(pa.array(bounds - first), texts, mask=maps.is_null())
    joined = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    return pc.if_else(pc.equal(joined, ""), None, joined)


def _joined(names: pa.Array | pa.Scalar, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(names, values, pa.scalar("=", pa.large_string()))
