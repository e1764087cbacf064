"""Which rows of a data block answer a query, and those rows as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.data_block import FIRST_COLUMN_CHUNK, I64, DataBlock
from esformat.directory import Leaf
from esformat.encoding import BytesNode, Shape, bytes_array, decode_codes, is_bytes, numbers_array, read_head, shape_of
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.packing import decode_ints, read_pack
from esformat.query import Narrowed, Portion, Query
from esformat.reader import Reader
from esformat.schema import TIMESTAMP_TYPE, Field

Mask = npt.NDArray[np.bool_]


def rows_equal(reader: Reader, block: DataBlock, name: str, value: Any) -> Mask:
    """Which rows of a block have `value` in an indexed column."""
    place = reader.schema.positions[name]
    field = reader.fields[place]
    context = reader.contexts(block.dictionary)[place]
    at = block.chunks[FIRST_COLUMN_CHUNK + place]
    head = read_head(block.body, at, block.row_count, context.plain)
    if head.shape == Shape.CODES:
        code = reader.value_codes(block.dictionary, place).get(value, -1)
        return decode_ints(block.body, read_pack(block.body, head.at, block.row_count), context.plain) == code
    column = block.column(place, field.type, context)
    equal = pc.equal(column, pa.scalar(value, field.type)).fill_null(False)
    return np.asarray(equal.to_numpy(zero_copy_only=False)).astype(np.bool_)


def run_starts(leaf: Leaf, block: int) -> I64:
    """Rows of a leaf's block, counted from the block's first, at which a run begins; 0 is always among them."""
    first, last = leaf.block_rows[block], leaf.block_rows[block + 1]
    edges = leaf.run_edges
    a, b = np.searchsorted(edges, (first, last))
    starts = edges[a:b] - first
    return starts if len(starts) and starts[0] == 0 else np.concatenate([[0], starts])


def select(
    reader: Reader, query: Query, leaf: Leaf, block: DataBlock, portion: Portion, narrowed: Narrowed | None
) -> I64 | None:
    """Rows of the block, counted from its first, that answer the query; None for all rows of the block."""
    origin = leaf.block_rows[portion.block]
    low, high = portion.first - origin, portion.last - origin
    chosen = None if portion.rows is None else portion.rows - origin
    mask: Mask | None = None
    for name, value in () if narrowed is None else narrowed.unmet:
        equal = rows_equal(reader, block, name, value)
        mask = equal if mask is None else mask & equal
    if query.timed and not query.covers(leaf.block_min[portion.block], leaf.block_max[portion.block]):
        times = block.timestamps(run_starts(leaf, portion.block), reader.own().plain)
        within = np.ones(block.row_count, dtype=np.bool_)
        if query.start is not None:
            within &= times >= query.start
        if query.end is not None:
            within &= times < query.end
        mask = within if mask is None else mask & within
    if chosen is not None:
        return chosen if mask is None else chosen[mask[chosen]]
    if mask is not None:
        return low + np.nonzero(mask[low:high])[0]
    if low == 0 and high == block.row_count:
        return None
    return np.arange(low, high)


class Picked:
    """Chosen rows of several data blocks of one leaf: the input for one batch."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.blocks: list[tuple[int, DataBlock]] = []
        self.choices: list[I64 | None] = []
        self.row_count = 0

    def add(self, number: int, block: DataBlock, rows: I64 | None) -> None:
        """Take `rows` of a block (None: all)."""
        count = block.row_count if rows is None else len(rows)
        if count:
            self.blocks.append((number, block))
            self.choices.append(rows)
            self.row_count += count

    def everything(self) -> bool:
        """Whether all rows of all blocks were taken."""
        return all(choice is None for choice in self.choices)

    def segment_rows(self) -> I64:
        """Row numbers in the segment."""
        parts = []
        for (number, block), choice in zip(self.blocks, self.choices, strict=True):
            origin = self.leaf.block_rows[number]
            parts.append(np.arange(origin, origin + block.row_count) if choice is None else choice + origin)
        return np.concatenate(parts)


def to_batch(reader: Reader, picked: Picked, columns: Sequence[str]) -> pa.RecordBatch:
    """The picked rows as a batch with the named columns, in row order. Raises CorruptSegmentError."""
    arrays = []
    run_of: I64 | None = None
    try:
        for name in columns:
            if name in ("space", "grouping"):
                if run_of is None:
                    run_of = np.searchsorted(picked.leaf.run_edges, picked.segment_rows(), side="right") - 1
                keys = picked.leaf.runs.spaces if name == "space" else picked.leaf.runs.groupings
                arrays.append(keys.cast(reader.schema.key_type).take(pa.array(run_of)))
            elif name == "timestamp":
                arrays.append(_timestamps(reader, picked))
            else:
                place = reader.schema.positions[name]
                arrays.append(_column(reader, picked, place, reader.fields[place]))
    except EsdbError as error:
        error.path = error.path or reader.name
        raise
    except pa.ArrowInvalid as error:
        raise CorruptSegmentError(f"stored values are broken: {error}", path=reader.name) from None
    schema = pa.schema([reader.schema.arrow.field(name) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _timestamps(reader: Reader, picked: Picked) -> pa.Array:
    plain = reader.own().plain
    parts = []
    for (number, block), choice in zip(picked.blocks, picked.choices, strict=True):
        times = block.timestamps(run_starts(picked.leaf, number), plain)
        parts.append(times if choice is None else times[choice])
    return numbers_array(np.concatenate(parts), TIMESTAMP_TYPE)


def _column(reader: Reader, picked: Picked, place: int, field: Field) -> pa.Array:
    if is_bytes(field.type):
        array = _bytes_column(reader, picked, place, field)
        if array is not None:
            return array
    numbers = _number_column(reader, picked, place, field)
    if numbers is not None:
        return numbers
    parts = []
    for (_number, block), choice in zip(picked.blocks, picked.choices, strict=True):
        column = block.column(place, field.type, reader.contexts(block.dictionary)[place])
        parts.append(column if choice is None else column.take(pa.array(choice)))
    return pa.concat_arrays(parts)


def _number_column(reader: Reader, picked: Picked, place: int, field: Field) -> pa.Array | None:
    """A column of plain numbers or of codes of one dictionary, all blocks at once; None if some block differs."""
    parts = []
    values = None
    shapes = set()
    for (_number, block), choice in zip(picked.blocks, picked.choices, strict=True):
        context = reader.contexts(block.dictionary)[place]
        head = read_head(block.body, block.chunks[FIRST_COLUMN_CHUNK + place], block.row_count, context.plain)
        shapes.add(head.shape)
        if head.shape == Shape.CODES and values is None:
            values = context.values
        if head.valid is not None or head.shape not in (Shape.CODES, Shape.INTS) or len(shapes) > 1:
            return None
        if head.shape == Shape.CODES and (values is None or context.values is not values):
            return None
        numbers = decode_ints(block.body, read_pack(block.body, head.at, block.row_count), context.plain)
        parts.append(numbers if choice is None else numbers[choice])
    if shapes == {Shape.CODES}:
        return decode_codes(np.concatenate(parts), values)
    if shape_of(field.type) is not Shape.INTS:
        raise CorruptSegmentError(f"column {field.name!r} is stored in the shape of numbers")
    return numbers_array(np.concatenate(parts), field.type)


def _bytes_column(reader: Reader, picked: Picked, place: int, field: Field) -> pa.Array | None:
    """A column of strings or binary, all blocks into one buffer; None if some block stores it as codes.

    Where few rows of a block are wanted, only the frames that hold them are decompressed.
    """
    nodes: list[BytesNode] = []
    for _number, block in picked.blocks:
        context = reader.contexts(block.dictionary)[place]
        at = block.chunks[FIRST_COLUMN_CHUNK + place]
        if block.body[at] == Shape.CODES:
            return None
        nodes.append(BytesNode(block.body, at, block.row_count, context))
    plans = [_plan_frames(node, choice) for node, choice in zip(nodes, picked.choices, strict=True)]
    out = np.empty(sum(plan.byte_count for plan in plans), dtype=np.uint8)
    view = memoryview(out)
    at = before = 0
    places = []
    for node, plan in zip(nodes, plans, strict=True):
        for first, last in plan.spans:
            sizes = plan.sizes[first:last]
            end = at + int(sizes.sum())
            node.decode_frames(first, last, sizes.tolist(), view[at:end])
            at = end
        places.append(plan.places + before)
        before += len(plan.lengths)
    lengths = np.concatenate([plan.lengths for plan in plans])
    valid = None
    if any(node.head.valid is not None for node in nodes):
        valid = np.concatenate(
            [(np.ones(node.count, np.uint8) if node.head.valid is None else node.head.valid)[plan.kept]
             for node, plan in zip(nodes, plans, strict=True)]
        )  # fmt: skip
    array = bytes_array(lengths, pa.py_buffer(out), field.type, valid)
    return array if picked.everything() else array.take(pa.array(np.concatenate(places)))


class _FramePlan:
    """Which frames of a node to decode for some of its rows, and where those rows then are."""

    __slots__ = ("byte_count", "kept", "lengths", "places", "sizes", "spans")

    def __init__(
        self, lengths: I64, sizes: I64, spans: list[tuple[int, int]], kept: Any, places: I64
    ) -> None:
        self.lengths = lengths[kept]
        self.sizes = sizes
        self.spans = spans
        self.kept = kept
        self.places = places
        self.byte_count = sum(int(sizes[a:b].sum()) for a, b in spans)


def _plan_frames(node: BytesNode, choice: I64 | None) -> _FramePlan:
    lengths = node.all_lengths()
    sizes = node.frame_sizes(lengths)
    if choice is None:
        return _FramePlan(lengths, sizes, [(0, len(sizes))], slice(None), np.arange(node.count))
    touched = np.unique(choice // node.rows)
    if 2 * len(touched) > len(sizes):
        return _FramePlan(lengths, sizes, [(0, len(sizes))], slice(None), choice)
    breaks = np.nonzero(np.diff(touched) > 1)[0] + 1
    spans = [(int(part[0]), int(part[-1]) + 1) for part in np.split(touched, breaks)]
    kept = np.concatenate([np.arange(a * node.rows, min(b * node.rows, node.count)) for a, b in spans])
    return _FramePlan(lengths, sizes, spans, kept, np.searchsorted(kept, choice))
