"""Encode sorted rows as data blocks: cut them, choose how each column is stored, encode many blocks at a time.

Choices are made once per file, on a sample of its own rows: whether text columns get a dictionary of values, whether
frames get a zstd dictionary, how many byte planes stay raw. Everything here is a pure function of its input.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.format.arrays import bytes_of, is_bytes, numbers_of, plain_lists
from esformat.format.codec import Codec, make_compressor
from esformat.format.data_block import Runs, encode_data_block, encode_timestamps
from esformat.format.dictionary import ColumnDictionary
from esformat.format.directory import BlockSpan
from esformat.format.encoding import encode_codes, encode_node, encode_slices
from esformat.format.frame import check_of
from esformat.format.node import EncodeContext, Shape, shape_of
from esformat.format.packing import best_raw, encode_int_slices
from esformat.format.schema import EventSchema
from esformat.write.template_choice import column_context, variable_raws
from esformat.write.templated import encode_templated

BLOCK_ROWS = 2048  # measured: docs/decisions/0005-blocks-and-frames.md
BLOCK_BYTES = 1 << 20
MAX_DICTIONARY_VALUES = 4096
MAX_DICTIONARY_VALUE_BYTES = 16 << 10

TASK_BLOCKS = 24  # blocks that one thread encodes at a time: enough to keep NumPy busy, few enough to share out
TASK_BYTES = 8 << 20  # … and at most this many bytes of rows, unless one block has more
NULL, UNKNOWN = -1, -2  # codes that no value in a column's dictionary has

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coded:
    """A column that is stored as codes: positions in its dictionary's values, NULL, or UNKNOWN for any other value.

    `values`: the same rows as values; None if none is UNKNOWN. Blocks with an UNKNOWN are stored as values.
    """

    codes: I64
    values: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.codes)


Column: TypeAlias = Any  # pyarrow has no type stubs: pa.Array | Coded


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Consecutive rows of the segment, in its order.

    `run_starts`: rows at which a run begins, including 0; `spaces`, `groupings`: binary keys of those runs;
    `continues`: whether the first run began before these rows.
    """

    timestamps: I64
    run_starts: I64
    spaces: pa.Array
    groupings: pa.Array
    columns: Sequence[Column]
    continues: bool


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """An encoded data block, and what its leaf stores about it."""

    stored: bytes
    span: BlockSpan
    runs: Runs
    continues: bool


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """How the blocks of one file are stored: decided once, the same for all blocks."""

    schema: EventSchema
    codec: Codec
    level: int | None
    dictionaries: dict[int, ColumnDictionary]
    raw: dict[int, int]
    """Raw byte planes by column; -1 stands for the timestamps."""
    frame_bytes: int | None = None
    """Approximate size of a frame of text or binary, in bytes; None: FRAME_TARGET_BYTES."""
    raws: dict[int, list[int]] = field(default_factory=dict)
    """By column with templates: the raw byte planes of each variable."""

    @property
    def dictionary_number(self) -> int:
        """The number by which data blocks refer to their dictionary block."""
        return 1 if self.dictionaries else 0


def cut_blocks(row_bytes: I64 | None, row_count: int, block_rows: int = BLOCK_ROWS) -> list[int]:
    """The edges of the blocks: at most `block_rows` rows each and BLOCK_BYTES, unless a single row has more. If
    `row_bytes` is None, rows are small enough to count them alone.
    """
    if row_bytes is None:
        return [*range(0, row_count, block_rows), row_count]
    ends = np.cumsum(row_bytes)
    edges = [0]
    while edges[-1] < row_count:
        start = edges[-1]
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + BLOCK_BYTES, side="right"))
        edges.append(min(max(fitting, start + 1), start + block_rows, row_count))
    return edges


def rows_are_small(longest_bytes: int) -> bool:
    """Whether rows of at most this size are cut into blocks and tasks by their number alone."""
    block_bytes = longest_bytes * BLOCK_ROWS
    return block_bytes <= BLOCK_BYTES and block_bytes * TASK_BLOCKS <= TASK_BYTES


def cut_tasks(edges: list[int], row_bytes: I64 | None) -> list[tuple[int, int]]:
    """The blocks [first, last) of each task: they are encoded together, and so share the number of rows in a frame."""
    count = len(edges) - 1
    if row_bytes is None:
        return [(first, min(first + TASK_BLOCKS, count)) for first in range(0, count, TASK_BLOCKS)]
    ends = np.append(0, np.cumsum(row_bytes))[edges].tolist()
    tasks = []
    first = 0
    while first < count:
        last = bisect_right(ends, ends[first] + TASK_BYTES, first) - 1
        last = min(max(last, first + 1), first + TASK_BLOCKS, count)
        tasks.append((first, last))
        first = last
    return tasks


def wants_codes(values: pa.Array, row_count: int) -> bool:
    """Whether a text column with these distinct values is stored as codes: they are few, short and repeated."""
    return (
        0 < len(values) <= MAX_DICTIONARY_VALUES
        and 4 * len(values) <= row_count
        and row_count >= BLOCK_ROWS
        and (pc.sum(pc.binary_length(values)).as_py() or 0) <= MAX_DICTIONARY_VALUE_BYTES
    )


def may_want_codes(kind: pa.DataType) -> bool:
    """Whether columns of this type can be stored as codes."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def choose_raw(rows: SortedRows, schema: EventSchema, codec: Codec, level: int | None) -> dict[int, int]:
    """Measure, on the first rows, how many low byte planes of each column of numbers should stay uncompressed."""
    compressor = make_compressor(codec, level)
    if codec is Codec.NONE:
        return {}
    count = min(len(rows.timestamps), BLOCK_ROWS)
    steps = np.diff(rows.timestamps[:count], prepend=rows.timestamps[:1])
    starts = rows.run_starts[rows.run_starts < count]
    steps[starts] = rows.timestamps[starts] - rows.timestamps[:count].min()
    raw = {-1: best_raw(steps, compressor)}
    for place, (stored, column) in enumerate(zip(schema.fields, rows.columns, strict=True)):
        if isinstance(column, pa.Array) and shape_of(stored.type) is Shape.INTS:
            raw[place] = best_raw(numbers_of(column.slice(0, count)), compressor)
    return raw


def choose_raws(rows: SortedRows, form: BlockFormat) -> dict[int, list[int]]:
    """Like `choose_raw`, for the variables of columns that are stored as templates."""
    raws = {}
    for place, dictionary in form.dictionaries.items():
        if dictionary.templates is not None:
            context = column_context(dictionary, form.codec, form.level, form.frame_bytes)
            raws[place] = variable_raws(rows.columns[place], context)
    return raws


class BlockEncoder:
    """Encodes rows into blocks of one format. Belongs to one thread."""

    def __init__(self, form: BlockFormat) -> None:
        self._form = form
        plain = make_compressor(form.codec, form.level)
        self._keys = EncodeContext(plain, plain)
        self._timestamps = EncodeContext(plain, plain, raw=form.raw.get(-1, 0))
        self._columns = []
        for place in range(len(form.schema.fields)):
            stored, raw, raws = form.dictionaries.get(place), form.raw.get(place, 0), form.raws.get(place)
            context = column_context(stored, form.codec, form.level, form.frame_bytes, raw=raw, raws=raws)
            self._columns.append(context)

    def encode(self, rows: SortedRows, bounds: list[int]) -> list[EncodedBlock]:
        """Encode the rows between consecutive `bounds` as one block each."""
        edges = np.asarray(bounds[:-1])
        starts = np.union1d(rows.run_starts, edges)
        piece_rows = np.diff(starts, append=bounds[-1])
        run_of = pa.array(np.searchsorted(rows.run_starts, starts, side="right") - 1)
        runs = Runs(rows.spaces.take(run_of), rows.groupings.take(run_of), piece_rows)
        pieces = np.searchsorted(starts, bounds).tolist()
        begins = np.isin(edges, rows.run_starts)
        if rows.continues:
            begins[0] = False

        keys = self._encode_keys(runs, pieces)
        chunks, low, high = encode_timestamps(rows.timestamps, rows.run_starts, bounds, self._timestamps)
        columns = [
            _encode_column(column, bounds, context) for column, context in zip(rows.columns, self._columns, strict=True)
        ]
        blocks = []
        for i, (base, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            a, b = pieces[i], pieces[i + 1]
            stored = encode_data_block(
                base,
                b - a,
                bounds[i + 1] - bounds[i],
                [keys[i], chunks[i], *(column[i] for column in columns)],
                self._form.dictionary_number,
            )
            span = BlockSpan(bounds[i + 1] - bounds[i], len(stored), check_of(stored), base, top)
            blocks.append(EncodedBlock(stored, span, runs.slice(a, b, piece_rows[a:b]), not begins[i]))
        return blocks

    def _encode_keys(self, runs: Runs, pieces: list[int]) -> list[bytes]:
        rows = encode_int_slices(runs.rows, pieces, self._keys.plain)
        spaces = encode_slices(runs.spaces, pieces, self._keys)
        groupings = encode_slices(runs.groupings, pieces, self._keys)
        return [b"".join(parts) for parts in zip(rows, spaces, groupings, strict=True)]


def _encode_column(column: Column, bounds: list[int], context: EncodeContext) -> list[bytes]:
    if isinstance(column, Coded):
        return _encode_coded(column, bounds, context)
    if context.templates is not None:
        return encode_templated(column, bounds, context)
    return encode_slices(column, bounds, context)


def _encode_coded(column: Coded, bounds: list[int], context: EncodeContext) -> list[bytes]:
    """Encode as codes, but encode the values themselves in blocks with a value that is not in the dictionary."""
    nodes = encode_codes(np.maximum(column.codes, NULL) + 1, bounds, context)
    if column.values is not None:
        unknown = np.searchsorted(bounds, (column.codes == UNKNOWN).nonzero()[0], side="right") - 1
        for block in np.unique(unknown).tolist():
            first, last = bounds[block], bounds[block + 1]
            nodes[block] = encode_node(column.values.slice(first, last - first), context)
    return nodes


def row_bytes(columns: Sequence[Column], count: int) -> I64:
    """Uncompressed bytes of each row without its keys. The size depends on the row alone, not on its neighbours."""
    total = np.full(count, 16, dtype=np.int64)
    for column in columns:
        if isinstance(column, Coded):
            total += 1
            if column.values is not None:
                total += np.where(column.codes == UNKNOWN, _value_bytes(column.values), 0)
        else:
            total += _value_bytes(column)
    return total


def _value_bytes(array: pa.Array) -> I64 | int:
    """Bytes of each value, or one size for all; a nested value has the bytes of its parts."""
    kind = array.type
    if is_bytes(kind):
        return np.diff(bytes_of(array)[0])
    shape = shape_of(kind)
    if shape is Shape.NULL:
        return 0
    if shape is Shape.STRUCT:
        parts = (_value_bytes(part) for part in array.flatten())
        return sum(parts, np.zeros(len(array), dtype=np.int64))
    if shape is Shape.LIST:
        lists = plain_lists(array)
        lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
        return 4 + _summed(_value_bytes(lists.flatten()), np.append(0, np.cumsum(lengths)))
    if shape is Shape.FIXED:
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
        return _summed(_value_bytes(array.flatten()), np.append(0, np.cumsum(valid * kind.list_size)))
    return max(1, int(kind.bit_width) // 8)


def _summed(sizes: I64 | int, edges: I64) -> I64:
    """The sums of `sizes` between edges."""
    if isinstance(sizes, int):
        return np.diff(edges) * sizes
    return np.diff(np.append(0, np.cumsum(sizes))[edges])


def slice_rows(rows: SortedRows, first: int, last: int) -> SortedRows:
    """Rows [first, last) of these rows; at least one. Columns must contain values, not codes."""
    a = int(np.searchsorted(rows.run_starts, first, side="right")) - 1
    b = int(np.searchsorted(rows.run_starts, last, side="left"))
    return SortedRows(
        timestamps=rows.timestamps[first:last],
        run_starts=np.maximum(rows.run_starts[a:b], first) - first,
        spaces=rows.spaces.slice(a, b - a),
        groupings=rows.groupings.slice(a, b - a),
        columns=[column.slice(first, last - first) for column in rows.columns],
        continues=bool(rows.run_starts[a] < first) or (a == 0 and rows.continues),
    )
