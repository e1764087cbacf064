"""Reader of JSON lines: pyarrow parses blocks of whole lines; if it cannot, they are parsed line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from esformat.convert import json_members
from esformat.convert.arrays import Ints, Mask
from esformat.convert.column_type import join
from esformat.convert.errors import InputError
from esformat.convert.json_values import DEEPEST, columns, parse_object
from esformat.convert.json_words import take
from esformat.convert.records import Block, blocks, readable, whole_lines, without_mark
from esformat.convert.roles import Roles
from esformat.convert.rows import LINE, BadRow, Origin, Rows
from esformat.convert.source import Source
from esformat.core.json_paths import outline

_TOO_LONG = "the line is too long"
_NO_LINES = (
    (re.compile(rb"\s*\["), "a JSON array", "jq -c '.[]'"),
    (re.compile(rb'\s*\{\s*\n\s*"'), "pretty-printed JSON", "jq -c ."),
)
"""Other forms of JSON: a regex for the beginning, the name, and a command that turns it into lines."""
_EXACT_IN_FLOAT = float(2**53)
_Columns: TypeAlias = "dict[str, pa.BinaryArray]"


class JsonReader:
    """Reads a file with one JSON object per line. Blank lines are ignored."""

    def __init__(self, source: Source, roles: Roles) -> None:
        self._source = source
        self._roles = roles
        # Types of the blocks so far. Passed to the parser, they keep text that looks like a time as text.
        self._types: dict[str, pa.DataType] = {}
        self._takes = False  # in the previous block, some values that become bytes were not text
        self._texts = roles.bytes - roles.also_typed  # parsed as text: else the parser would convert other values
        self._floats = {name: kind for name, kind in roles.known.items() if _are_floats(kind)}  # as integers, -0 is 0
        if not self._parses_all:
            self._types = dict.fromkeys(roles.named, pa.null())

    @property
    def _parses_all(self) -> bool:
        """Whether every key becomes a column. If not, only named keys do; the rest stays JSON text or is dropped."""
        return self._roles.keeps_rest and not self._roles.data_json

    def rows(self) -> Iterator[Rows]:
        """Yield the rows, one batch per block of the file. Raises InputError if reading cannot continue."""
        with self._source.open() as stream:
            for block in blocks(stream.read, whole_lines, broken=_TOO_LONG):
                if block.first_line == 1:
                    block = self._checked_start(block)
                yield self._parse(block)

    def _checked_start(self, block: Block) -> Block:
        block = without_mark(block, self._source.path)
        for start, what, program in _NO_LINES:
            if start.match(block.data):
                hint = f"put one object on each line, for example with {program}"
                raise InputError(f"is {what}, not JSON lines", path=self._source.path, hint=hint)
        return block

    def _parse(self, block: Block) -> Rows:
        lines = left = _Lines.of(block, self._source.path)
        words: _Columns = {}
        bad: list[BadRow] = []
        parsed = not block.broken and not self._takes
        found = self._parse_fast(block.data) if parsed else None
        if self._roles.bytes and not block.broken and (found is None or not self._has_texts(found)):
            words, left = self._taken(lines)
            self._takes = left.data != block.data
        if not block.broken and (self._takes or not parsed):
            found = self._parse_fast(left.data, words)
        if found is None or found.num_rows != len(lines):
            found, good, bad = self._parse_each(lines, left, block.broken)
            lines = lines.only(good)
            words = {name: words[name].filter(pa.array(good)) for name in words.keys() & set(found.schema.names)}
        found = self._with_words(found, words)
        types = {each.name: pa.string() if pa.types.is_binary(each.type) else each.type for each in found.schema}
        rest = json_members.without(lines.text, self._roles.named) if self._roles.data_json else None
        return Rows(found, types, lines.origin, bad, rest, words)

    def _has_texts(self, batch: pa.RecordBatch) -> bool:
        """Whether all values that become bytes are text or null."""
        types = [field.type for field in batch.schema if field.name in self._roles.bytes]
        return all(pa.types.is_string(type_) or pa.types.is_null(type_) for type_ in types)

    def _taken(self, lines: _Lines) -> tuple[_Columns, _Lines]:
        """Extract the members that become bytes; none from lines that are not UTF-8 or are nested too deeply."""
        if not len(lines):
            return {}, lines
        if _is_readable(lines.data):
            columns, data, edges = take(lines.text, self._roles.bytes, self._texts)
            return columns, replace(lines, data=data, starts=edges[:-1], ends=edges[1:])
        found = [lines.line(row) for row in range(len(lines))]
        bad = np.array([not _is_readable(line) for line in found])
        texts = [b"" if unread else line for line, unread in zip(found, bad.tolist(), strict=True)]
        columns, data, edges = take(pa.array(texts, pa.binary()).cast(pa.string()), self._roles.bytes, self._texts)
        starts = np.where(bad, len(data) + lines.starts, edges[:-1])
        ends = np.where(bad, len(data) + lines.ends, edges[1:])
        return columns, replace(lines, data=data + lines.data, starts=starts, ends=ends)

    def _with_words(self, batch: pa.RecordBatch, words: _Columns) -> pa.RecordBatch:
        """Replace columns by the extracted bytes, except columns whose type depends on their values."""
        for name in self._texts & words.keys():
            batch = batch.set_column(batch.schema.get_field_index(name), name, words[name])
        return batch

    def _parse_fast(self, data: bytes, known: Container[str] = ()) -> pa.RecordBatch | None:
        """Parse whole lines with pyarrow; None if it fails or would lose information. known: keys that occur."""
        depth, bare_null, null_in_list = outline(data)
        # pyarrow's parser crashes if a null outside objects comes first, and takes later ones for objects
        if not depth or depth > DEEPEST or bare_null or not _is_text(data):
            return None
        found = None
        texts = dict.fromkeys(self._texts, pa.string())
        named = {**self._floats, **texts}
        named = {name: named[name] for name in named if json.dumps(name, ensure_ascii=False).encode() in data}
        if self._types:
            types = {**self._types, **named}
            found = _read(data, pa.schema(list(types.items())), "error" if self._parses_all else "ignore")
        if found is None and not null_in_list:  # else it would lose elements of lists
            found = _read(data, pa.schema(list(named.items())))
            if found is None and named.keys() - texts:  # perhaps not floats
                named = {name: kind for name, kind in named.items() if name in texts}
                found = _read(data, pa.schema(list(named.items())))
            unsure = [name for name in named if name not in known]
            if found is not None and any(found[name].null_count == len(found) for name in unsure):  # or is absent
                found = _read(data, None)
        if found is not None and _texts_for_times(found.schema) != found.schema:
            found = _read(data, _texts_for_times(found.schema))
        if found is None or any(_loses_digits(column) for column in found.columns):
            return None
        return self._known(found)

    def _known(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remember the types of `batch`, and drop columns that are not needed."""
        wanted = [field for field in batch.schema if self._parses_all or field.name in self._types]
        for field in wanted:
            self._types[field.name] = join(self._types.get(field.name, pa.null()), field.type)
        return batch.select([field.name for field in wanted])

    def _parse_each(self, lines: _Lines, left: _Lines, broken: str) -> tuple[pa.RecordBatch, Mask, list[BadRow]]:
        """Parse the remainders of lines one by one; lines that are not JSON objects become bad rows."""
        objects, good, bad = [], np.ones(len(lines), dtype=np.bool_), []
        for row in range(len(lines)):
            try:
                if broken:
                    raise ValueError(broken)
                found = parse_object(left.line(row), floats=bool(self._floats))
                objects.append(found | dict.fromkeys(self._texts & found.keys()))
            except ValueError as error:
                good[row] = False
                bad.append(lines.origin.bad_row(row, str(error)))
        return self._known(columns(objects)), good, bad


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a block that are not blank: line i is bytes [starts[i], ends[i]) of `data`."""

    path: str
    data: bytes
    starts: Ints
    ends: Ints
    numbers: Ints  # in the file, from 1

    @classmethod
    def of(cls, block: Block, path: str) -> Self:
        stored = np.frombuffer(block.data, dtype=np.uint8)
        ends = np.array([len(block.data)]) if block.broken else np.flatnonzero(stored == ord("\n")) + 1
        starts = np.concatenate([[0], ends[:-1]])
        blank = stored[starts] <= ord(" ")  # candidates, checked below
        for line in np.flatnonzero(blank):
            blank[line] = not block.data[starts[line] : ends[line]].strip()
        numbers = np.arange(block.first_line, block.first_line + len(ends))
        return cls(path, block.data, starts, ends, numbers).only(~blank)

    def only(self, chosen: Mask) -> Self:
        kept = (self.starts[chosen], self.ends[chosen], self.numbers[chosen])
        return type(self)(self.path, self.data, *kept)

    def __len__(self) -> int:
        return len(self.numbers)

    def line(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]]

    @property
    def origin(self) -> Origin:
        return Origin(self.path, LINE, lambda row: (int(self.numbers[row]), readable(self.line(row))))

    @property
    def text(self) -> pa.StringArray:
        """The lines as a column; they must be UTF-8. Contiguous lines are not copied."""
        if np.array_equal(self.starts[1:], self.ends[:-1]):
            offsets = np.concatenate([self.starts[:1], self.ends]).astype(np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
            return pa.Array.from_buffers(pa.string(), len(self), buffers)
        return pa.array([self.line(row) for row in range(len(self))], pa.binary()).cast(pa.string())


def _is_readable(data: bytes) -> bool:
    """Whether whole lines are UTF-8, and not nested too deeply."""
    return _is_text(data) and outline(data)[0] <= DEEPEST


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(
    data: bytes, types: pa.Schema | None, others: Literal["infer", "ignore", "error"] = "infer"
) -> pa.RecordBatch | None:
    """Parse whole lines as `types`; None if that fails.

    others: the type of keys not in `types` is inferred, or they are ignored, or they make it fail.
    """
    try:
        table = pa.json.read_json(
            pa.BufferReader(data),
            pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pa.json.ParseOptions(
                explicit_schema=types,
                unexpected_field_behavior=others,
            ),
        )
        table.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return table.combine_chunks().to_batches()[0] if len(table) else None


def _are_floats(type_: pa.DataType) -> bool:
    while pa.types.is_list(type_):
        type_ = type_.value_type
    return bool(pa.types.is_float64(type_))


def _texts_for_times(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with string in place of temporal types, since JSON has no times."""
    return pa.schema([(field.name, _text_for_time(field.type)) for field in schema])


def _text_for_time(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_text_for_time(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _text_for_time(field.type)) for field in type_])
    return type_


def _loses_digits(column: pa.Array) -> bool:
    """Whether a float of `column` may be a rounded integer: JSON integers can have more digits than float64."""
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.greater_equal(pc.abs(column), _EXACT_IN_FLOAT)).as_py())
    if pa.types.is_struct(column.type):
        return any(_loses_digits(child) for child in column.flatten())
    return pa.types.is_list(column.type) and _loses_digits(column.flatten())
