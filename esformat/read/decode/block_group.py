"""Several data blocks, decoded together: one decompression call per column, Arrow arrays without copies.

A group finds the rows that match a query (`select`) and decodes their columns (`to_batch`). Rows are numbered from the
group's first; `places` are ascending row numbers, None for all rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, compress, groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.core.blocks import FIRST_COLUMN_CHUNK, NODE_BYTES, TIMESTAMPS_CHUNK, packs_of, shapes_of, without_values
from esformat.core.events import Columns
from esformat.core.leaves import BlockSlice, Leaf, row_starts, rows_within, run_starts
from esformat.core.numbers import sum_runs, sum_runs_at
from esformat.core.runs import runs_at
from esformat.core.searching import codes_that_may
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import (
    TextForm,
    Values,
    bytes_array,
    empty_keys,
    is_bytes,
    numbers_array,
    repeated_key,
    slices_mislead,
)
from esformat.format.bytes_node import BytesNode, check_lengths
from esformat.format.data_block import I64, DataBlock, keys_array
from esformat.format.json_fields import FieldCounts
from esformat.format.json_values import FOUND, JsonValues, Step
from esformat.format.layout import MAX_FRAME_BYTES
from esformat.format.node import Shape, shape_of
from esformat.format.packing import decode_many
from esformat.format.schema import DATA_COLUMN, TIMESTAMP_TYPE
from esformat.format.template_node import Decoded, TemplateNode, rendered, text_array
from esformat.format.template_search import Candidates
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import IndexMatches
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import NO_COLUMNS, block_columns
from esformat.read.decode.event_rows import EventRows, Keys, batch_columns

Mask = npt.NDArray[np.bool_]
FEW_KEYS = 16
"""Maximum number of rows whose keys are looked up one by one: an array of all keys of a leaf would cost more."""


class BlockGroup:
    """Data blocks in row order, which are read and verified once something other than the keys is needed."""

    texts = TextForm.PLAIN
    paths: Mapping[str, tuple[Step, ...]] = MappingProxyType({})
    """Names of additional columns of type `FOUND`, and the paths into payloads where their values are found."""
    chunks: tuple[int, ...] | None = None
    """Numbers of the chunks that will be used; None for all but keys."""

    def __init__(self, reader: Reader, parts: Sequence[BlockSlice], blocks: list[DataBlock] | None = None) -> None:
        """parts: ascending slices. blocks: their blocks, if they were already read."""
        self._reader, self._parts = reader, parts
        if blocks is not None:
            self.blocks = blocks
        counts, starts = row_starts(parts)
        self._counts: I64 = np.asarray(counts)
        self._starts: I64 = np.asarray(starts)  # of each block within the group
        self.row_count: int = starts[-1] + counts[-1]
        self._times: I64 | None = None
        self._numbers: dict[int, npt.NDArray[np.integer[Any]]] = {}
        self._starts_of_runs: tuple[Any, Any, Any] | None = None
        self.decompressed_bytes = 0
        """Bytes of text and binary columns that were decompressed for the rows."""

    @cached_property
    def blocks(self) -> list[DataBlock]:
        """The blocks, read on first use. Raises CorruptSegmentError, ClosedError."""
        return self._reader.data_blocks(self._parts, self.chunks)

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self._parts)

    # ------------------------------------------------------------ row selection

    def select(self, query: Query, index_matches: IndexMatches) -> I64 | None:
        """Rows that match the query; None for all."""
        within = rows_within(self._parts)
        mask = None if within is None else np.frombuffer(within, np.bool_)
        with self._reader.named:
            for name, value in index_matches.unmet:
                mask = _both(mask, self._equal(name, value))
            if query.timed and not all(query.covers(part.min_timestamp, part.max_timestamp) for part in self._parts):
                times = self.timestamps()
                if query.start is not None:
                    mask = _both(mask, times >= query.start)
                if query.end is not None:
                    mask = _both(mask, times < query.end)
        return None if mask is None else np.nonzero(mask)[0]

    def _equal(self, name: str, value: Any) -> Mask:
        """Rows that have `value` in an indexed column."""
        place = self._reader.schema.positions[name]
        found = self.codes(place)
        if found is not None:
            numbers = [block.dictionary for block in self.blocks]
            codes = {number: self._reader.value_codes(number, place).get(value, -1) for number in set(numbers)}
            wanted: Any = codes[numbers[0]]
            if len(codes) > 1:
                wanted = np.repeat(np.array([codes[number] for number in numbers]), self._counts)
            return np.asarray(found == wanted)
        column = self.column(place, None)
        equal = pc.equal(column, pa.scalar(value, column.type)).fill_null(False)
        return np.asarray(equal.to_numpy(zero_copy_only=False)).astype(np.bool_)

    def rows_that_may_contain(
        self, required_texts: Mapping[str, Sequence[Sequence[bytes]]], places: I64 | None
    ) -> tuple[I64 | None, bool]:
        """The rows among `places` that may contain the texts, as in `Scan.matching`; and whether all of them do."""
        mask: Mask | None = None
        all_match = True
        with self._reader.named:
            for name, lists in required_texts.items():
                place = self._reader.schema.positions[name]
                if not lists or not is_bytes(self._reader.fields[place].type):
                    all_match &= not lists
                    continue
                found, are_exact = self._rows_with_texts(place, lists)
                mask = mask if found is None else _both(mask, found)
                all_match &= are_exact
        if mask is not None:
            places = mask.nonzero()[0] if places is None else places[mask[places]]
        return places, all_match

    def _rows_with_texts(self, place: int, lists: Sequence[Sequence[bytes]]) -> tuple[Mask | None, bool]:
        """Rows whose value in a column may contain a text of each list, None if that is unknown for all blocks; and
        whether all of these rows do.
        """
        sought: dict[int, list[Candidates]] = {}  # by dictionary

        def possible(dictionary: int) -> list[bytes]:
            found = [self._reader.template_candidates(dictionary, place, texts) for texts in lists]
            sought[dictionary] = found
            return [each.possible.tobytes() for each in found]

        chunk = FIRST_COLUMN_CHUNK + place
        codes = codes_that_may(self.blocks, chunk, possible, self._reader.thread_context().plain)
        if codes.count(None) == len(codes):
            return None, False
        mask = np.zeros(self.row_count, np.bool_)
        for block, start, read in zip(self.blocks, self._starts.tolist(), codes, strict=True):
            if read is None:
                mask[start : start + block.row_count] = True
            elif read:
                mask[start : start + block.row_count] = self._may_contain(block, place, read, sought[block.dictionary])
        return mask, None not in codes and all(each.are_exact for found in sought.values() for each in found)

    def _may_contain(self, block: DataBlock, place: int, read: tuple[Any, int], sought: Sequence[Candidates]) -> Mask:
        """The rows of a block whose value may contain a text for each of `sought`. read: the rows' template codes."""
        context = self._reader.contexts(block.dictionary)[place]
        node = block.template_node(place, context, read)
        mask = node.rows_that_may_contain(sought[0], context)
        for each in sought[1:]:
            if not mask.any():
                break
            mask &= node.rows_that_may_contain(each, context)
        return mask

    def part(self, places: I64) -> tuple[BlockGroup, I64]:
        """A group of only the blocks that contain some rows, and the places of those rows in it."""
        if len(self) == 1:
            return self, places
        ends = np.searchsorted(places, self._starts + self._counts)  # of each block's share of the rows
        shares = np.diff(ends, prepend=0)
        numbers = shares.nonzero()[0].tolist()
        if len(numbers) == len(self):
            return self, places
        read = self._read
        blocks = None if read is None else [read[n] for n in numbers]
        group = type(self)(self._reader, [self._parts[n] for n in numbers], blocks)
        group.texts, group.paths, group.chunks = self.texts, self.paths, self.chunks
        if self._times is not None:
            group._times = self._times[np.repeat(shares > 0, self._counts)]
        return group, places - np.repeat(self._starts[numbers] - group._starts, shares[numbers])

    @classmethod
    def joined(cls, groups: Sequence[tuple[BlockGroup, I64 | None]]) -> tuple[BlockGroup, I64]:
        """Join consecutive groups into one, and return it with the places of their rows in it."""
        parts = [part for group, _ in groups for part in group._parts]
        read = (
            None
            if any(group._read is None for group, _ in groups)
            else [block for group, _ in groups for block in group.blocks]
        )
        joined = cls(groups[0][0]._reader, parts, read)
        first = groups[0][0]
        joined.texts, joined.paths, joined.chunks = first.texts, first.paths, first.chunks
        begins = np.cumsum([0, *(group.row_count for group, _ in groups)]).tolist()
        times = [group._times for group, _ in groups if group._times is not None]
        joined._times = np.concatenate(times) if len(times) == len(groups) else None
        places = [np.arange(group.row_count) if some is None else some for group, some in groups]
        return joined, np.concatenate([begin + some for begin, some in zip(begins, places, strict=False)])

    def detach(self) -> None:
        """Release the buffers that the blocks were read in, because these may contain many more blocks."""
        for block in self._read or ():
            block.detach()

    @property
    def _read(self) -> list[DataBlock] | None:
        """The blocks, if they were already read."""
        return self.__dict__.get("blocks")

    # ------------------------------------------------------------ contents

    def timestamps(self) -> I64:
        """Timestamps of all rows, µs."""
        if self._times is None:
            packs = packs_of(self.blocks, TIMESTAMPS_CHUNK, 0)
            times: I64 = decode_many(packs, self._reader.thread_context().plain).astype(np.int64, copy=False)
            starts, _, bases = self._run_starts()
            sum_runs(times, starts, bases)
            self._times = times
        return self._times

    def times_at(self, places: I64 | None) -> I64:
        """Timestamps of the rows at `places`, µs."""
        if places is None or self._times is not None:
            times = self.timestamps()
            return times if places is None else times[places]
        starts, _, bases = self._run_starts()
        packs = packs_of(self.blocks, TIMESTAMPS_CHUNK, 0)
        return np.asarray(sum_runs_at(packs, starts, bases, places, self._reader.thread_context().plain))

    def _run_starts(self) -> tuple[Any, Any, Any]:
        """Rows at which a run or a block begins, the run there, and the block's base."""
        if self._starts_of_runs is None:
            self._starts_of_runs = run_starts(self._parts)
        return self._starts_of_runs

    def to_batch(self, columns: Sequence[str], places: I64 | None) -> pa.RecordBatch:
        """The rows at `places` with the named columns. Raises CorruptSegmentError."""
        if places is not None and _adjoin(places) and 2 * len(places) >= self.row_count:
            part = self.to_batch(columns, None).slice(int(places[0]), len(places))
            return pa.concat_batches([part]) if slices_mislead(part.schema) else part
        arrays = []
        run_of: I64 | None = None
        with self._reader.named:
            for name in columns:
                if name in self.paths:
                    arrays.append(self._found(self.paths[name], places))
                elif name == "grouping" and not self._has_groupings():
                    count = self.row_count if places is None else len(places)
                    arrays.append(empty_keys(self._reader.schema.key_type, count, self.texts))
                elif name in ("space", "grouping"):
                    if run_of is None:
                        run_of = self._runs_of(places)
                    arrays.append(self._keys(name, run_of))
                elif name == "timestamp":
                    arrays.append(numbers_array(self.times_at(places), TIMESTAMP_TYPE))
                else:
                    arrays.append(self.column(self._reader.schema.positions[name], places))
        if self.texts is not TextForm.PLAIN:
            return pa.RecordBatch.from_arrays(arrays, names=list(columns))
        if self.paths:
            arrow = self._reader.schema.arrow
            fields = [pa.field(name, FOUND) if name in self.paths else arrow.field(name) for name in columns]
            return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        return pa.RecordBatch.from_arrays(arrays, schema=self._reader.schema.select(columns))

    def _runs_of(self, places: I64 | None) -> I64:
        """For each row, the run that it belongs to, numbered within the group's leaves."""
        starts, runs, _ = self._run_starts()
        if places is not None:
            return np.asarray(runs_at(starts, runs, places))
        if runs[0] == runs[-1]:  # they ascend
            return np.full(self.row_count, runs[0])
        return np.repeat(runs, np.diff(starts, append=self.row_count))

    def _keys(self, name: str, run_of: I64) -> pa.Array:
        kind = self._reader.schema.key_type
        if self.texts is TextForm.VIEWS:
            return Values(self._run_keys(name)).taken(run_of, self.texts)
        if len(run_of) <= FEW_KEYS and self.texts is TextForm.PLAIN:
            return pa.array(self._few_keys(name, run_of), kind)
        if self.texts is TextForm.DICTIONARIES and name == "space" and len(run_of):
            begins = np.diff(run_of, prepend=run_of[0]) != 0  # of rows of another run; they ascend
            begins[0] = True
            return Values(self._run_keys(name, run_of[begins])).taken(np.cumsum(begins) - 1, self.texts)
        keys = self._run_keys(name)
        if len(run_of) and run_of[0] == run_of[-1]:  # they ascend
            key = keys[int(run_of[0])].as_py()
            return repeated_key(key if isinstance(key, bytes) else key.encode(), kind, len(run_of))
        return Values(keys).take(run_of)

    def _few_keys(self, name: str, run_of: I64) -> list[Any]:
        """The keys of some runs, looked up one by one, as callers see them."""
        of_leaves = self._keys_of_leaves(name)
        ends = list(accumulate(map(len, of_leaves)))
        found = []
        for run in run_of.tolist():
            number = bisect_right(ends, run)
            keys = of_leaves[number]
            found.append(self._reader.shown(keys[run - ends[number] + len(keys)]))
        return found

    def _keys_of_leaves(self, name: str) -> list[Any]:
        return [leaf.spaces if name == "space" else leaf.groupings for leaf in self._leaves()]

    def _run_keys(self, name: str, runs: I64 | None = None) -> pa.Array:
        """The keys of runs of the group's leaves, by default of all."""
        keys = pa.concat_arrays(list(map(keys_array, self._keys_of_leaves(name))))
        if runs is not None and len(runs) < len(keys):
            keys = keys.take(pa.array(runs))
        try:
            return keys.cast(self._reader.schema.key_type)
        except pa.ArrowInvalid as error:
            raise CorruptSegmentError(f"a key is not UTF-8 text: {error}", path=self._reader.name) from None

    def _key_objects(self, name: str, run_of: I64) -> Keys:
        """The keys of rows as Python objects: one per run, or one per row if there are fewer rows."""
        if name == "grouping" and not self._has_groupings():
            return Keys([b"" if self._reader.schema.binary_keys else ""], run_of)
        if len(run_of) <= FEW_KEYS:
            return Keys(self._few_keys(name, run_of), np.arange(len(run_of)))
        keys = self._run_keys(name)
        first, last = (int(run_of[0]), int(run_of[-1]) + 1) if len(run_of) else (0, 0)  # they ascend
        if last - first > len(run_of):
            return Keys(keys.take(pa.array(run_of)).to_pylist(), np.arange(len(run_of)))
        return Keys(keys.slice(first, last - first).to_pylist(), run_of - first)

    def _leaves(self) -> list[Leaf]:
        leaves = {part.leaf.first_row: part.leaf for part in self._parts}  # one may have been opened twice
        return list(map(self._reader.with_keys, leaves.values()))

    def _has_groupings(self) -> bool:
        return any(leaf.has_groupings for leaf in self._leaves())

    def to_events(self, columns: Sequence[str], places: I64 | None) -> EventRows:
        """The rows at `places`, decoded, ready to be turned into `Event`s."""
        place = self._reader.schema.positions[DATA_COLUMN] if DATA_COLUMN in columns else None
        with self._reader.named:
            run_of = self._runs_of(places)
            others, starts, rows = self._event_columns(columns, places)
            return EventRows(
                times=self.times_at(places),
                data=None if place is None else self.column(place, places),
                spaces=self._key_objects("space", run_of),
                groupings=self._key_objects("grouping", run_of),
                columns=others,
                starts=starts,
                places=rows,
            )

    def _event_columns(self, names: Sequence[str], places: I64 | None) -> tuple[list[Columns], I64, I64 | None]:
        """The columns of the events at `places` besides keys, timestamp and payload: one `Columns` per block, each
        block's first row, and the places of the rows in the blocks.
        """
        names = [name for name in names if name not in ("space", "grouping", "timestamp", DATA_COLUMN)]
        if self._reader.direct and len(names) == len(self._reader.attribute_chunks):
            return [block_columns(self._reader, block) for block in self.blocks], self._starts, places
        if not names:
            return [NO_COLUMNS], self._starts[:1], None
        return *batch_columns(self.to_batch(names, places), names, self._reader.schema.indexes), None

    def column(self, place: int, places: I64 | None) -> pa.Array:
        """The values of a payload or index column at `places`."""
        kind = self._reader.fields[place].type
        shapes, with_nulls = shapes_of(self.blocks, FIRST_COLUMN_CHUNK + place)
        if shapes == {Shape.CODES} and not with_nulls and len({block.dictionary for block in self.blocks}) == 1:
            codes = self._ints(place)
            values = self._reader.contexts(self.blocks[0].dictionary)[place].values
            if values is None:
                raise CorruptSegmentError(f"column {self._reader.fields[place].name!r} has codes but no dictionary")
            return values.taken(codes if places is None else codes[places], self.texts)
        if shapes == {Shape.INTS} and not with_nulls and shape_of(kind) is Shape.INTS:
            numbers = self._ints(place).astype(np.int64, copy=False)
            return numbers_array(numbers if places is None else numbers[places], kind)
        if shapes == {Shape.BYTES} and is_bytes(kind):
            return self._bytes(place, kind, places)
        if shapes <= {Shape.BYTES, Shape.TEMPLATES} and is_bytes(kind):
            return self._texts(place, kind, places)
        return self._any(place, kind, places, as_declared=shapes == {shape_of(kind)})

    def _any(self, place: int, kind: pa.DataType, places: I64 | None, *, as_declared: bool) -> pa.Array:
        """Values of any shape, decoded block by block, except blocks in which all values are null.

        as_declared: whether all blocks have the shape of the column's type.
        """
        flags = without_values(self.blocks, FIRST_COLUMN_CHUNK + place) if as_declared else b""
        empty = set(compress(map(id, self.blocks), flags))
        arrays: list[pa.Array] = []
        for is_empty, members in groupby(self._holding(places), lambda pair: id(pair[0]) in empty):
            if is_empty:
                count = sum(high - low if chosen is None else len(chosen) for _, low, high, chosen in members)
                arrays.append(pa.nulls(count, kind))
                continue
            for block, low, high, chosen in members:
                array = block.column(place, kind, self._reader.contexts(block.dictionary)[place])
                if chosen is not None or high - low < len(array):
                    array = array.take(pa.array(np.arange(low, high) if chosen is None else chosen))
                arrays.append(array)
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, kind)

    def codes(self, place: int) -> npt.NDArray[np.integer[Any]] | None:
        """The codes of a column's values in each block's dictionary; None if not all values are stored as codes."""
        if shapes_of(self.blocks, FIRST_COLUMN_CHUNK + place) != ({Shape.CODES}, False):
            return None
        return self._ints(place)

    def _ints(self, place: int) -> npt.NDArray[np.integer[Any]]:
        """The packed numbers of a column without nulls: as bytes if they are stored as bytes, else as int64."""
        if place not in self._numbers:
            packs = packs_of(self.blocks, FIRST_COLUMN_CHUNK + place, NODE_BYTES)
            self._numbers[place] = decode_many(packs, self._reader.thread_context().plain)
        return self._numbers[place]

    def _bytes(self, place: int, kind: pa.DataType, places: I64 | None) -> pa.Array:
        """Strings or binary, decoded into one buffer; if few rows are wanted, only the frames that contain them."""
        plan = self._plan_frames(place, places)
        return plan.array(plan.decode(self._reader), kind)

    def _texts(self, place: int, kind: pa.DataType, places: I64 | None) -> pa.Array:
        """Strings or binary, stored by templates in some blocks."""
        frames = self._reader.frames
        arrays: list[pa.Array] = []
        waiting: list[Decoded] = []  # rendered with one call
        for block, low, high, chosen in self._holding(places):
            context = self._reader.contexts(block.dictionary)[place]
            node = block.bytes_node(place, context)
            if isinstance(node, TemplateNode):
                waiting.append(node.decoded(low, high, context, frames, chosen))
                continue
            arrays += _rendered(waiting, kind)
            offsets, data = node.offsets_and_bytes(low, high, context, frames)
            valid = node.validity(low, high)
            array = text_array(np.frombuffer(offsets, np.int32), pa.py_buffer(data), kind, valid)
            arrays.append(array if chosen is None else array.take(pa.array(chosen - low)))
        arrays += _rendered(waiting, kind)
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.array([], kind)

    def _found(self, steps: tuple[Step, ...], places: I64 | None) -> pa.StructArray:
        """The values at a path into payloads, as a column of `FOUND`."""
        place = self._reader.schema.positions[DATA_COLUMN]
        kind, frames = self._reader.fields[place].type, self._reader.frames
        arrays: list[pa.StructArray] = []
        waiting: list[tuple[Decoded, npt.NDArray[np.uint8]]] = []
        for block, low, high, chosen in self._holding(places):
            context = self._reader.contexts(block.dictionary)[place]
            node = block.bytes_node(place, context) if block.has_templates(place) else None
            if isinstance(node, TemplateNode):
                known = self._reader.values_in_templates(block.dictionary, place, steps)
                value = node.value_at(known, low, high, chosen, context, frames)
                if value is not None:
                    waiting.append(value)
                    continue
            arrays += _found_in(waiting)
            documents = block.column(place, kind, context)
            documents = documents.slice(low, high - low) if chosen is None else documents.take(pa.array(chosen))
            arrays.append(JsonValues(documents, steps).found())
        arrays += _found_in(waiting)
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, FOUND)

    def count_fields(self, counts: FieldCounts, places: I64 | None) -> None:
        """Add the fields of the payloads at `places` to `counts`."""
        place = self._reader.schema.positions[DATA_COLUMN]
        kind = self._reader.fields[place].type
        with self._reader.named:
            for block, low, high, chosen in self._holding(places):
                context = self._reader.contexts(block.dictionary)[place]
                node = block.bytes_node(place, context) if block.has_templates(place) else None
                if isinstance(node, TemplateNode):
                    known = self._reader.documents_in_templates(block.dictionary, place)
                    alike = node.count_documents(known, low, high, chosen, context)
                    if alike is not None:
                        for document, count in alike:
                            counts.add_alike(document, count)
                        continue
                documents = block.column(place, kind, context)
                counts.add(documents.slice(low, high - low) if chosen is None else documents.take(pa.array(chosen)))

    def _holding(self, places: I64 | None) -> Iterator[tuple[DataBlock, int, int, I64 | None]]:
        """Each block with rows at `places`, with the first and the end of those rows within the block, and the rows
        themselves if they are not consecutive.
        """
        if places is None:
            yield from ((block, 0, block.row_count, None) for block in self.blocks)
            return
        edges = np.searchsorted(places, np.append(self._starts, self.row_count))
        held = np.diff(edges).nonzero()[0]
        firsts, ends, starts = edges[held], edges[held + 1], self._starts[held]
        within = places - np.repeat(starts, ends - firsts)  # their blocks
        columns = (held, firsts, ends, within[firsts], within[ends - 1] + 1)
        for number, first, end, low, high in zip(*(column.tolist() for column in columns), strict=True):
            yield self.blocks[number], low, high, None if high - low == end - first else within[first:end]

    def _plan_frames(self, place: int, places: I64 | None) -> FramePlan:
        chunk = FIRST_COLUMN_CHUNK + place
        nodes = [
            BytesNode(b.body, b.start_of(chunk), b.row_count, self._reader.contexts(b.dictionary)[place])
            for b in self.blocks
        ]
        parts = [(node.body, node.lengths) for node in nodes]
        lengths = check_lengths(decode_many(parts, self._reader.thread_context().plain))
        frame_starts = np.concatenate(
            [np.arange(start, start + node.count, node.rows) for start, node in zip(self._starts, nodes, strict=True)]
        )
        sizes = np.add.reduceat(lengths, frame_starts, dtype=np.int64)
        touched: Mask | None = None
        if places is not None:
            touched = np.zeros(len(sizes), dtype=np.bool_)
            touched[np.searchsorted(frame_starts, places, side="right") - 1] = True
            if 2 * int(touched.sum()) > len(sizes):
                touched = None
        self.decompressed_bytes += int(sizes.sum() if touched is None else sizes[touched].sum())
        valid = self._validity(nodes)
        if touched is not None and places is not None:
            kept = np.repeat(touched, np.diff(frame_starts, append=self.row_count))
            lengths = lengths[kept]
            valid = None if valid is None else valid[kept]
            places = (np.cumsum(kept) - 1)[places]
        numbers = [block.dictionary for block in self.blocks]
        return FramePlan(place, nodes, numbers, sizes, touched, lengths, valid, places)

    def _validity(self, nodes: list[BytesNode]) -> npt.NDArray[np.uint8] | None:
        if all(node.head.valid is None for node in nodes):
            return None
        return np.concatenate(
            [np.ones(node.count, np.uint8) if node.head.valid is None else node.head.valid for node in nodes]
        )


@dataclass(frozen=True, slots=True)
class FramePlan:
    """The frames to decompress for one column of a group, and how their bytes become an array.

    `sizes`: uncompressed bytes of all frames; `touched`: which of them to decompress (None: all). `lengths`, `valid`
    and `places` refer to the values in those frames.
    """

    place: int
    nodes: list[BytesNode]
    dictionaries: list[int]
    sizes: I64
    touched: Mask | None
    lengths: npt.NDArray[Any]
    valid: npt.NDArray[np.uint8] | None
    places: I64 | None

    def array(self, data: pa.Buffer, kind: pa.DataType) -> pa.Array:
        """The wanted values, from the bytes of their frames."""
        array = bytes_array(self.lengths, data, kind, self.valid)
        return array if self.places is None else array.take(pa.array(self.places))

    def decode(self, reader: Reader) -> pa.Buffer:
        """Decompress the frames one after another with the calling thread's decompressors, mostly without the GIL."""
        raw = self.sizes if self.touched is None else self.sizes[self.touched]
        total = int(raw.sum())
        if total > MAX_FRAME_BYTES:
            raise CorruptSegmentError("the lengths of a group of blocks are out of bounds")
        out = pa.allocate_buffer(total)  # Arrow's pool reuses pages, which NumPy would map each time
        view = memoryview(out)
        at = first = 0
        alike = zip(self.nodes, self.dictionaries, strict=True)
        for (number, codec, needed), members in groupby(
            alike, lambda m: (m[1], m[0].codec, m[0].head.needs_dictionary)
        ):
            frames: list[memoryview] = []
            lengths: list[int] = []
            begin = first
            for node, _ in members:
                last = first + len(node.table)
                if self.touched is None:
                    frames.append(node.body[node.at : node.end])
                    lengths += node.table
                else:
                    chosen = node.stored_frames(self.touched[first:last].nonzero()[0].tolist())
                    frames += chosen
                    lengths += map(len, chosen)
                first = last
            mine = (
                self.sizes[begin:first] if self.touched is None else self.sizes[begin:first][self.touched[begin:first]]
            )
            end = at + int(mine.sum())
            context = reader.contexts(number)[self.place]
            decompressor = context.framed if needed else context.plain
            decompressor.decompress_run(codec, memoryview(b"".join(frames)), lengths, mine.tolist(), view[at:end])
            at = end
        return out


def _rendered(waiting: list[Decoded], kind: pa.DataType) -> list[pa.Array]:
    """Render ranges of rows into one array, and empty the list."""
    if not waiting:
        return []
    offsets, data = rendered(waiting)
    parts = [decoded.validity() for decoded in waiting]
    valid: npt.NDArray[np.uint8] | None = None
    if any(part is not None for part in parts):
        pairs = zip(parts, waiting, strict=True)
        valid = np.concatenate([np.ones(len(decoded), np.uint8) if part is None else part for part, decoded in pairs])
    waiting.clear()
    return [text_array(offsets, data, kind, valid)]


def _found_in(waiting: list[tuple[Decoded, npt.NDArray[np.uint8]]]) -> list[pa.StructArray]:
    """Render ranges of rows, with the kinds of their values, into one array, and empty the list."""
    if not waiting:
        return []
    offsets, data = rendered([decoded for decoded, _ in waiting])
    kinds = np.concatenate([kinds for _, kinds in waiting])
    texts = pa.Array.from_buffers(pa.binary(), len(kinds), [None, pa.py_buffer(offsets), data])
    waiting.clear()
    return [pa.StructArray.from_arrays([pa.array(kinds), texts], fields=list(FOUND))]


def _adjoin(places: I64) -> bool:
    return bool(len(places)) and int(places[-1]) - int(places[0]) + 1 == len(places)


def _both(mask: Mask | None, other: Mask) -> Mask:
    return other if mask is None else mask & other
