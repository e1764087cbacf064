"""Several data blocks, decoded together: one decompression call per column, Arrow arrays without copies.

A group answers two questions: which of its rows belong to an answer (`select`), and what those rows hold (`to_batch`).
Rows are counted from the group's first; `places` are ascending rows, None for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.codec import Decompressor
from esformat.data_block import FIRST_COLUMN_CHUNK, I64, TIMESTAMPS_CHUNK
from esformat.encoding import (
    BytesNode,
    NodeHead,
    Shape,
    bytes_array,
    check_lengths,
    decode_codes,
    is_bytes,
    numbers_array,
    read_head,
    shape_of,
)
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.event_rows import BatchAttributes, EventRows
from esformat.layout import MAX_FRAME_BYTES
from esformat.packing import decode_many, read_pack
from esformat.query import Narrowed, Portion, Query
from esformat.reader import Reader
from esformat.schema import DATA_COLUMN, TIMESTAMP_TYPE

Mask = npt.NDArray[np.bool_]


class BlockGroup:
    """Data blocks in row order, read and verified but not yet decoded."""

    def __init__(self, reader: Reader, portions: Sequence[Portion]) -> None:
        """Read the blocks of ascending portions. Raises CorruptSegmentError, ClosedError."""
        self._reader, self._portions = reader, portions
        self.blocks = reader.data_blocks([(portion.leaf, portion.block) for portion in portions])
        self._counts = np.array([block.row_count for block in self.blocks])
        self.row_count = int(self._counts.sum())
        self._starts: I64 = np.cumsum(self._counts) - self._counts  # of each block within the group
        self._origins: I64 = np.array([p.leaf.block_rows[p.block] for p in portions])  # within the segment
        self._leaves = list(dict.fromkeys(portion.leaf for portion in portions))
        edges = [leaf.run_edges[:-1] for leaf in self._leaves] + [self._leaves[-1].run_edges[-1:]]
        self._edges: I64 = np.concatenate(edges)  # first row of each run of the leaves, within the segment
        self._times: I64 | None = None
        self._numbers: dict[int, I64] = {}

    # ------------------------------------------------------------ which rows

    def select(self, query: Query, narrowed: Narrowed | None) -> I64 | None:
        """Rows that answer the query; None for all."""
        mask = self._portion_mask()
        for name, value in () if narrowed is None else narrowed.unmet:
            mask = _both(mask, self._equal(name, value))
        if query.timed and not all(
            query.covers(p.leaf.block_min[p.block], p.leaf.block_max[p.block]) for p in self._portions
        ):
            times = self.timestamps()
            if query.start is not None:
                mask = _both(mask, times >= query.start)
            if query.end is not None:
                mask = _both(mask, times < query.end)
        return None if mask is None else np.nonzero(mask)[0]

    def _portion_mask(self) -> Mask | None:
        """Rows within the portions; None if they cover the blocks."""
        mask: Mask | None = None
        for portion, start, origin, count in zip(
            self._portions, self._starts.tolist(), self._origins.tolist(), self._counts.tolist(), strict=True
        ):
            if portion.rows is None and portion.last - portion.first == count:
                continue
            if mask is None:
                mask = np.ones(self.row_count, dtype=np.bool_)
            inside = mask[start : start + count]
            inside[:] = False
            if portion.rows is None:
                inside[portion.first - origin : portion.last - origin] = True
            else:
                inside[portion.rows - origin] = True
        return mask

    def _equal(self, name: str, value: Any) -> Mask:
        """Rows that have `value` in an indexed column."""
        place = self._reader.schema.positions[name]
        heads = self._heads(place)
        if all(head.shape == Shape.CODES for head in heads):
            codes = [self._reader.value_codes(block.dictionary, place).get(value, -1) for block in self.blocks]
            wanted = codes[0] if len(set(codes)) == 1 else np.repeat(np.array(codes), self._counts)
            return self._ints(place, heads) == wanted
        column = self.column(place, None)
        equal = pc.equal(column, pa.scalar(value, column.type)).fill_null(False)
        return np.asarray(equal.to_numpy(zero_copy_only=False)).astype(np.bool_)

    # ------------------------------------------------------------ what they hold

    def timestamps(self) -> I64:
        """Timestamps of all rows, µs."""
        if self._times is None:
            parts = [(b.body, read_pack(b.body, b.chunks[TIMESTAMPS_CHUNK], b.row_count)) for b in self.blocks]
            numbers = decode_many(parts, self._reader.own().plain)
            starts = self._run_starts()
            summed = np.cumsum(numbers)
            bases = np.array([block.base for block in self.blocks])
            lead = summed[starts] - numbers[starts]  # what came before each run, less the base it counts from
            lead -= bases[np.searchsorted(self._starts, starts, side="right") - 1]
            summed -= np.repeat(lead, np.diff(starts, append=self.row_count))
            self._times = summed
        return self._times

    def _run_starts(self) -> I64:
        """Rows at which a run or a block begins."""
        edges = self._edges
        shifts = self._starts - self._origins
        block_of = np.searchsorted(self._origins, edges, side="right") - 1
        inside = (block_of >= 0) & (edges < self._origins[block_of] + self._counts[block_of])
        return np.union1d(edges[inside] + shifts[block_of[inside]], self._starts)

    def to_batch(self, columns: Sequence[str], places: I64 | None) -> pa.RecordBatch:
        """The rows at `places` with the named columns. Raises CorruptSegmentError."""
        arrays = []
        run_of: I64 | None = None
        try:
            for name in columns:
                if name in ("space", "grouping"):
                    if run_of is None:
                        run_of = self._runs_of(places)
                    arrays.append(self._keys(name, run_of))
                elif name == "timestamp":
                    times = self.timestamps()
                    arrays.append(numbers_array(times if places is None else times[places], TIMESTAMP_TYPE))
                else:
                    arrays.append(self.column(self._reader.schema.positions[name], places))
        except EsdbError as error:
            error.path = error.path or self._reader.name
            raise
        except pa.ArrowInvalid as error:
            raise CorruptSegmentError(f"stored values are broken: {error}", path=self._reader.name) from None
        schema = pa.schema([self._reader.schema.arrow.field(name) for name in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _runs_of(self, places: I64 | None) -> I64:
        """For each row, the leaf's run that it belongs to."""
        edges = self._edges
        if places is None:
            starts = self._run_starts()
            block_of = np.searchsorted(self._starts, starts, side="right") - 1
            runs = np.searchsorted(edges, starts - self._starts[block_of] + self._origins[block_of], side="right") - 1
            return np.repeat(runs, np.diff(starts, append=self.row_count))
        block_of = np.searchsorted(self._starts, places, side="right") - 1
        return np.searchsorted(edges, places - self._starts[block_of] + self._origins[block_of], side="right") - 1

    def _keys(self, name: str, run_of: I64) -> pa.Array:
        kind = self._reader.schema.key_type
        if name == "grouping" and not self._has_groupings():
            return pa.repeat(pa.scalar(b"" if self._reader.schema.binary_keys else "", kind), len(run_of))
        arrays = [leaf.runs.spaces if name == "space" else leaf.runs.groupings for leaf in self._leaves]
        keys = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        return keys.cast(kind).take(pa.array(run_of))

    def _has_groupings(self) -> bool:
        return any(leaf.has_groupings for leaf in self._leaves)

    def to_events(self, columns: Sequence[str], places: I64 | None) -> EventRows:
        """The rows at `places`, decoded so far that making `Event`s of them is all that is left to do."""
        names = [name for name in columns if name not in ("space", "grouping", "timestamp", DATA_COLUMN)]
        others = self.to_batch(names, places) if names else None
        run_of = self._runs_of(places)
        times = self.timestamps()
        data = self.column(self._reader.schema.positions[DATA_COLUMN], places) if DATA_COLUMN in columns else None
        return EventRows(
            times=times if places is None else times[places],
            data=data,
            spaces=_objects(self._shown_keys("space"))[run_of],
            groupings=_objects(self._shown_keys("grouping"))[run_of] if self._has_groupings() else None,
            empty=b"" if self._reader.schema.binary_keys else "",
            attributes=BatchAttributes(others, self._reader.schema.indexes),
        )

    def _shown_keys(self, name: str) -> list[str | bytes]:
        keys = [k for leaf in self._leaves for k in (leaf.spaces if name == "space" else leaf.groupings)]
        return keys if self._reader.schema.binary_keys else [key.decode() for key in keys]

    def column(self, place: int, places: I64 | None) -> pa.Array:
        """A payload or index column at `places`."""
        kind = self._reader.fields[place].type
        heads = self._heads(place)
        shapes = {head.shape for head in heads}
        plain = all(head.valid is None for head in heads)
        if shapes == {Shape.CODES} and len({block.dictionary for block in self.blocks}) == 1:
            codes = self._ints(place, heads)
            values = self._reader.contexts(self.blocks[0].dictionary)[place].values
            if values is None:
                raise CorruptSegmentError(f"column {self._reader.fields[place].name!r} has codes but no dictionary")
            return decode_codes(codes if places is None else codes[places], values)
        if shapes == {Shape.INTS} and plain and shape_of(kind) is Shape.INTS:
            numbers = self._ints(place, heads)
            return numbers_array(numbers if places is None else numbers[places], kind)
        if shapes == {Shape.BYTES} and is_bytes(kind):
            return self._bytes(place, kind, places)
        contexts = (self._reader.contexts(block.dictionary)[place] for block in self.blocks)
        whole = pa.concat_arrays([b.column(place, kind, c) for b, c in zip(self.blocks, contexts, strict=True)])
        return whole if places is None else whole.take(pa.array(places))

    def _heads(self, place: int) -> list[NodeHead]:
        plain = self._reader.own().plain
        chunk = FIRST_COLUMN_CHUNK + place
        return [read_head(block.body, block.chunks[chunk], block.row_count, plain) for block in self.blocks]

    def _ints(self, place: int, heads: list[NodeHead]) -> I64:
        if place not in self._numbers:
            parts = [
                (block.body, read_pack(block.body, head.at, block.row_count))
                for block, head in zip(self.blocks, heads, strict=True)
            ]
            self._numbers[place] = decode_many(parts, self._reader.own().plain)
        return self._numbers[place]

    def _bytes(self, place: int, kind: pa.DataType, places: I64 | None) -> pa.Array:
        """Strings or binary, all into one buffer; where few rows are wanted, only the frames that hold them."""
        chunk = FIRST_COLUMN_CHUNK + place
        nodes = [
            BytesNode(b.body, b.chunks[chunk], b.row_count, self._reader.contexts(b.dictionary)[place])
            for b in self.blocks
        ]
        lengths = check_lengths(decode_many([(n.body, n.lengths) for n in nodes], self._reader.own().plain))
        frame_starts = np.concatenate(
            [np.arange(start, start + node.count, node.rows) for start, node in zip(self._starts, nodes, strict=True)]
        )
        sizes = np.add.reduceat(lengths, frame_starts)
        touched: Mask | None = None
        if places is not None:
            touched = np.zeros(len(sizes), dtype=np.bool_)
            touched[np.searchsorted(frame_starts, places, side="right") - 1] = True
            if 2 * int(touched.sum()) > len(sizes):
                touched = None
        decompressors = [
            node.decompressor(self._reader.contexts(block.dictionary)[place])
            for node, block in zip(nodes, self.blocks, strict=True)
        ]
        data = _decode_frames(nodes, decompressors, sizes, touched)
        valid = self._validity(nodes)
        if touched is not None and places is not None:
            kept = np.repeat(touched, np.diff(frame_starts, append=self.row_count))
            lengths = lengths[kept]
            valid = None if valid is None else valid[kept]
            places = (np.cumsum(kept) - 1)[places]
        array = bytes_array(lengths, data, kind, valid)
        return array if places is None else array.take(pa.array(places))

    def _validity(self, nodes: list[BytesNode]) -> npt.NDArray[np.uint8] | None:
        if all(node.head.valid is None for node in nodes):
            return None
        return np.concatenate(
            [np.ones(node.count, np.uint8) if node.head.valid is None else node.head.valid for node in nodes]
        )


def _decode_frames(
    nodes: list[BytesNode], decompressors: list[Decompressor], sizes: I64, touched: Mask | None
) -> pa.Buffer:
    """The frames of several nodes, all or the touched ones, decompressed one after another into one buffer."""
    raw = sizes if touched is None else sizes[touched]
    total = int(raw.sum())
    if total > MAX_FRAME_BYTES:
        raise CorruptSegmentError("the lengths of a group of blocks are out of bounds")
    out = pa.allocate_buffer(total)  # from Arrow's pool: reused pages, where NumPy's would be mapped anew each time
    view = memoryview(out)
    at = first = 0
    pending: list[memoryview] = []
    lengths: list[int] = []
    raws: list[int] = []
    end = 0
    for i, node in enumerate(nodes):
        last = first + len(node.table)
        mine = None if touched is None else touched[first:last]
        pending += [node.body[node.at : node.end]] if mine is None else node.stored_frames(np.nonzero(mine)[0].tolist())
        table = node.table if mine is None else [n for n, t in zip(node.table, mine.tolist(), strict=True) if t]
        lengths += table
        mine_raw = (sizes[first:last] if mine is None else sizes[first:last][mine]).tolist()
        raws += mine_raw
        end += sum(mine_raw)
        first = last
        last_alike = i + 1 == len(nodes) or nodes[i + 1].codec != node.codec
        if last_alike or decompressors[i + 1] is not decompressors[i]:
            if pending:
                decompressors[i].decompress_run(node.codec, memoryview(b"".join(pending)), lengths, raws, view[at:end])
            pending, lengths, raws, at = [], [], [], end
    return out


def _objects(keys: list[str | bytes]) -> npt.NDArray[np.object_]:
    objects = np.empty(len(keys), dtype=object)
    objects[:] = keys
    return objects


def _both(mask: Mask | None, other: Mask) -> Mask:
    return other if mask is None else mask & other
